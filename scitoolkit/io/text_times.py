"""Times that files store as text: `Times` of WRF, dates of ISO 8601 in NetCDF4 and Zarr."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.dates import in_finest_unit
from scitoolkit.io.roles import TIME_NAMES

if TYPE_CHECKING:
    import xarray as xr

UNITS = {"units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"}
"""Attributes of the numbers that `seconds_of_text` returns."""
_LENGTH = 10  # of a date without a time of day
_DATE = re.compile(r"\d{4}-[01]\d-[0-3]\d(T[\d:.]*)?$")


def may_be_text_times(name: str, shape: tuple[int, ...], kind: str) -> bool:
    """Return whether a variable is a vector of texts, or of characters, named like a time."""
    texts = len(shape) == 1 or (len(shape) == 2 and shape[1] >= _LENGTH and kind == "S")
    return texts and kind in "SUOT" and name.rpartition("/")[2].lower() in TIME_NAMES


def _exists(text: str) -> bool:
    try:
        return not np.isnat(np.datetime64(text))
    except ValueError:
        return False


def seconds_of_text(values: Any, where: str = "times") -> np.ndarray | None:
    """Return the seconds since 1970 of dates, (rows,) float64; None if the texts are no dates.

    Args:
        values: (rows,) texts, or (rows, length) characters; empty ones are NaN.
        where: file and variable, for messages.

    Raises:
        DataError: dates of which some do not exist, such as 2001-02-30.

    Example:
        >>> seconds_of_text(np.array([b"1970-01-01_00:00:10", b"1970-01-02T00:00:00Z", b""]))
        array([1.00e+01, 8.64e+04,      nan])
    """
    array = np.asarray(values)
    if array.ndim == 2:
        array = np.array([b"".join(row) for row in array.tolist()])
    listed = array.tolist()
    if not all(isinstance(text, str | bytes) for text in listed):
        return None  # decoded dates of another calendar are objects as well
    texts = [t.decode(errors="replace") if isinstance(t, bytes) else t for t in listed]
    # WRF separates the time of day by an underscore; numpy reads times without a zone as UTC.
    plain = [t.strip("\x00 ").replace("_", "T").removesuffix("Z") for t in texts]
    if any(t and (len(t) < _LENGTH or t[4:5] != "-") for t in plain):
        return None
    try:
        dates = np.array(plain, "datetime64[us]")
    except ValueError:
        wrong = [p for p in plain if _DATE.match(p) and not _exists(p)]
        if not wrong or not all(_DATE.match(p) for p in plain if p):
            return None
        raise DataError(
            f"{len(wrong)} times are dates that do not exist, the first is {wrong[0]}",
            where=where,
            allowed="days of the standard calendar",
            fix="write other calendars as numbers with the attributes units and calendar",
        ) from None
    seconds = (dates - np.datetime64(0, "us")) / np.timedelta64(1, "s")
    return np.where(np.isnat(dates), np.nan, seconds)


def with_text_times(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with dates where a dim has no times but those of a variable of text."""
    for name, variable in dataset.variables.items():
        if not may_be_text_times(str(name), variable.shape, variable.dtype.kind):
            continue
        dim = variable.dims[0]
        seconds = (
            None
            if dim in dataset.coords and dim != name
            else seconds_of_text(variable.values, f"variable {name}")
        )
        if seconds is not None:
            since = np.where(np.isnan(seconds), 0, np.rint(seconds * 1e6)).astype("timedelta64[us]")
            dates = np.where(
                np.isnan(seconds), np.datetime64("NaT"), np.datetime64(0, "us") + since
            )
            made = dataset.assign_coords({dim: in_finest_unit(dates)})
            made.set_close(dataset.close)
            return made
    return dataset
