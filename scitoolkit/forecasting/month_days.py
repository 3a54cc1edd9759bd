"""Months that two files date by different days, such as the 1st and the last."""

from __future__ import annotations

from logging import Logger

import numpy as np

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.log import get_logger
from scitoolkit.io.dates import with_year_number, year_number
from scitoolkit.io.time_axis import decimal_years

log: Logger = get_logger(__name__)

_NEAR = 3
"""Days by which dates of months may drift (31, 28), as `calendar_steps` has it."""


def years_like(times: np.ndarray, trained: DataFacts | None) -> np.ndarray:
    """Return decimal years (T,) of times; months are dated by the day of the training.

    The season of a model is a function of the date. A mean of January is dated 1, 15 or 31 January,
    and a file with another custom than that of the training would be forecast with the season of
    another part of the month.

    Args:
        times: (T,) of a file.
        trained: facts of the training data; None for the training data themselves.
    """
    day = None if trained is None else _day_of_months(trained)
    if day is None or not len(times) or not _is_dated(times):
        return decimal_years(times)
    days = _days(times)
    if np.abs(days - np.minimum(day, _lengths(times))).max() <= _NEAR:
        return decimal_years(times)
    log.warning(
        "months are dated by day %d and in the training by day %d: the season of a month is that "
        "of the training",
        int(np.median(days)),
        day,
    )
    return decimal_years(_dated(times, day))


def _day_of_months(trained: DataFacts) -> int | None:
    """Return the day of the month of the first training time; None if the steps are no months."""
    import cftime

    for dim in trained.dims:
        if dim.role == "time" and dim.kind == "dates" and dim.step and dim.step.unit == "month":
            calendar = dim.calendar or "standard"
            first = cftime.num2date(dim.first, "seconds since 1970-01-01", calendar)
            return int(first.day)
    return None


def _is_dated(times: np.ndarray) -> bool:
    return times.dtype.kind == "M" or hasattr(times.flat[0], "calendar")


def _days(times: np.ndarray) -> np.ndarray:
    if times.dtype.kind == "M":
        dates = times.astype("M8[D]")
        return (dates - dates.astype("M8[M]")).astype(np.int64) + 1
    return np.array([t.day for t in times])


def _lengths(times: np.ndarray) -> np.ndarray:
    if times.dtype.kind == "M":
        months = times.astype("M8[M]")
        return ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(np.int64)
    return np.array([t.daysinmonth for t in times])


def _dated(times: np.ndarray, day: int) -> np.ndarray:
    days = np.minimum(day, _lengths(times))
    if times.dtype.kind == "M":
        months = times.astype("M8[M]").astype("M8[D]")
        return (months + (days - 1)).astype("M8[s]")
    dates = [
        with_year_number(t, year_number(t), day=int(d)) for t, d in zip(times, days, strict=True)
    ]
    return np.array(dates, dtype=object)
