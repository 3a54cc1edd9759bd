"""Identification of dims and coordinates of fields, and validation of times and values.

Dims and coordinates are identified by CF attributes (axis, standard name, units) and then by common
names, never by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.roles import LATITUDE_NAMES, LATITUDE_UNITS, TIME_NAMES, role_by_metadata

if TYPE_CHECKING:
    import xarray as xr

_NOT_SPACE = ("member", "ensemble", "realization", "number", "sample", "channel", "variable")
_BLOCK_BYTES = 64 * 2**20
# Exceptions that h5py, h5netcdf, scipy and zarr raise for damaged files.
READ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    RuntimeError,
    EOFError,
    OverflowError,
    AttributeError,
    MemoryError,
    AssertionError,
)


def filter_fix(error: str) -> str:
    """Return what to do about an error of HDF5 that comes from a filter it lacks, "" for others.

    Example:
        >>> filter_fix("required filter 'zfp' is not registered")[:24]
        'pip install hdf5plugin, '
    """
    if not any(word in error for word in ("filter", "plugin")):
        return ""
    return "pip install hdf5plugin, or scitoolkit decompress IN OUT for files of `compress`"


def find_time_dim(array: xr.DataArray) -> str | None:
    """Return the time dim of an array, or None; see `time_dim`."""
    names = [str(d) for d in array.dims]
    for name in names:
        if name in array.coords and is_time(array[name].variable):
            return name
    # Names only after the metadata of all dims: a lead time `step` may come before the dates.
    return next((n for n in names if n.lower() in TIME_NAMES), None)


def time_dim(array: xr.DataArray) -> str:
    """Return the name of the time dim, by decoded dates, CF attributes or common names.

    Raises:
        DataError: the array has no time dim.

    Example:
        >>> import xarray as xr
        >>> time_dim(xr.DataArray(np.zeros((3, 2)), dims=("x", "time")))
        'time'
    """
    name = find_time_dim(array)
    if name is None:
        raise DataError(
            "no time dim",
            where=f"variable {array.name}",
            allowed=f"one of its dims ({', '.join(map(str, array.dims))}) called time, or with "
            "CF attributes of time",
            fix="give the dims by name, as in dims: [time, y, x]",
        )
    return name


def spatial_dims(array: xr.DataArray) -> tuple[str, ...]:
    """Return the dims other than time and collections (member, channel, ...) in stored order.

    Example:
        >>> import xarray as xr
        >>> spatial_dims(xr.DataArray(np.zeros((3, 2, 2)), dims=("time", "y", "x")))
        ('y', 'x')
    """
    time = find_time_dim(array)
    names = (str(d) for d in array.dims)
    return tuple(n for n in names if n != time and n.lower() not in _NOT_SPACE)


def latitude_name(array: xr.DataArray | xr.Dataset) -> str | None:
    """Return the name of the latitude coordinate (1-D or 2-D), or None.

    A coordinate `y` is a latitude only if its units are; otherwise it is a length.

    Example:
        >>> import xarray as xr
        >>> latitude_name(xr.DataArray(np.zeros(2), dims="y", coords={
        ...     "y": ("y", [0.0, 1.0], {"units": "degrees_north"})}))
        'y'
    """
    for name, coordinate in array.coords.items():
        attrs = coordinate.attrs
        unit = str(attrs.get("units", "")).lower()
        if attrs.get("standard_name") == "latitude" or unit in LATITUDE_UNITS:
            return str(name)
    return next((str(n) for n in array.coords if str(n).lower() in LATITUDE_NAMES), None)


def check_time(array: xr.DataArray, *, min_steps: int = 1, where: str = "") -> None:
    """Raise if the time coordinate is too short, or not strictly increasing.

    Args:
        array: a field with a time dim.
        min_steps: minimum number of steps.
        where: file, for messages.

    Raises:
        DataError: too few steps, a missing time, or times that repeat or go backward.
    """
    dim = time_dim(array)
    where = ": ".join(part for part in (where, f"variable {array.name}, {dim}") if part)
    if array.sizes[dim] < min_steps:
        steps = f"{array.sizes[dim]} time step" + ("s" if array.sizes[dim] != 1 else "")
        raise DataError(steps, where=where, allowed=f"{min_steps} or more")
    if dim not in array.coords:
        return
    fix = f"sort and drop duplicates: ds.sortby({dim!r}).drop_duplicates({dim!r})"
    require_increasing(array[dim].values, where, place="index", fix=fix)


def require_increasing(times: np.ndarray, where: str, *, place: str, fix: str) -> None:
    """Raise if a time is missing, repeats or goes backward.

    Args:
        times: numbers or dates, (steps,).
        where: file, for messages.
        place: what the position of a time is called.
        fix: of times that repeat or go backward.

    Raises:
        DataError: with the first such position.

    Example:
        >>> require_increasing(np.array([0.0, 1.0, 2.0]), "a.nc", place="row", fix="sort them")
    """
    if times.dtype.kind in "fM" and not np.isfinite(times).all():
        missing = int(np.argmin(np.isfinite(times)))
        raise DataError(
            f"the time of {place} {missing} is missing (NaN, infinite or the fill value)",
            where=where,
            fix=f"write a time for every {place}",
        )
    # cftime dates have dtype object, and so has their comparison.
    ahead = np.asarray(times[1:] > times[:-1], dtype=bool)
    if not ahead.all():
        i = int(np.argmin(ahead)) + 1
        kind = "repeats" if times[i] == times[i - 1] else "goes backward"
        raise DataError(
            f"time {kind} at {place} {i} ({times[i - 1]} then {times[i]})",
            where=where,
            allowed="strictly increasing times",
            fix=fix,
        )


@dataclass(frozen=True)
class FieldCheck:
    """Counts and range of a field, from `check_field`.

    Attributes:
        values: number of values.
        non_finite: number of NaN (missing) and infinite values.
        infinite: number of infinite values.
        empty_steps: time steps without any finite value.
        minimum: smallest finite value, in the field's unit.
        maximum: largest finite value, in the field's unit.
    """

    values: int
    non_finite: int
    infinite: int
    empty_steps: tuple[int, ...]
    minimum: float
    maximum: float


def check_field(array: xr.DataArray, *, where: str = "") -> FieldCheck:
    """Validate the values of a field, reading it once in blocks of time.

    Args:
        array: the field; without a time dim it is read at once.
        where: file, for messages.

    Raises:
        DataError: all values are NaN, all are equal, some are infinite, or reading fails.

    Example:
        >>> import xarray as xr
        >>> check_field(xr.DataArray([0.0, 2.0, np.nan], dims="x")).non_finite
        1
    """
    where = ": ".join(part for part in (where, f"variable {array.name}") if part)
    require_numbers(array, where)
    finite = infinite = 0
    empty: list[int] = []
    low, high = np.inf, -np.inf
    for start, block in _time_blocks(array, where):
        good = np.isfinite(block)
        finite += int(good.sum())
        infinite += int(np.isinf(block).sum())
        if find_time_dim(array) is not None:
            empty += (start + np.flatnonzero(~good.reshape(len(block), -1).any(axis=1))).tolist()
        if good.any():
            low = min(low, float(block.min(where=good, initial=np.inf)))
            high = max(high, float(block.max(where=good, initial=-np.inf)))
    if not finite:
        raise DataError(f"all {array.size} values are NaN or infinite", where=where)
    if infinite:
        raise DataError(f"{infinite} values are infinite", where=where)
    if low == high:
        raise DataError(f"constant: every value is {low:g}", where=where)
    return FieldCheck(array.size, array.size - finite, infinite, tuple(empty), low, high)


def _time_blocks(array: xr.DataArray, where: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first step, values with time first) in blocks of about `_BLOCK_BYTES`."""
    dim = find_time_dim(array)
    steps = array.sizes[dim] if dim else 1
    size = max(1, int(_BLOCK_BYTES // max(1, array.nbytes // max(1, steps))))
    for start in range(0, steps, size):
        part = array
        if dim:
            part = array.transpose(dim, ...).isel({dim: slice(start, start + size)})
        try:
            block = part.to_numpy()
        except READ_ERRORS as error:
            text = f"cannot be read from step {start} on ({error})"
            raise DataError(text, where=where, fix=filter_fix(str(error))) from None
        # Integers have no infinity, which is the initial value of the minimum over valid cells.
        yield start, block if block.dtype.kind == "f" else block.astype(np.float64)


def require_dims(array: xr.DataArray, dims: Sequence[str], *, where: str = "") -> None:
    """Raise if an array does not have all of `dims`.

    Raises:
        DataError: with the missing dim, those present and the nearest.
    """
    for dim in dims:
        if dim not in array.dims:
            present = [str(d) for d in array.dims]
            near = nearest_name(dim, present)
            raise DataError(
                f"dim {dim!r} not found",
                where=": ".join(part for part in (where, f"variable {array.name}") if part),
                allowed=", ".join(present),
                fix=f"did you mean {near}?" if near else "",
            )


def require_numbers(array: xr.DataArray, where: str) -> None:
    """Raise DataError for an array of anything but real numbers."""
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"has {array.dtype} values, not real numbers", where=f"{where}: variable {array.name}"
        )


def is_time(variable: xr.Variable) -> bool:
    """Return whether a coordinate is a time: dates, or CF attributes of time."""
    if variable.dtype.kind == "M":
        return True
    if variable.dtype.kind == "O" and variable.size:
        return hasattr(variable.values.flat[0], "calendar")
    return role_by_metadata(variable.attrs) == "time"
