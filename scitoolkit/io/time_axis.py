"""Time axes as numbers: days, phase of the year in the file's calendar, and breakpoints.

The step is not assumed. A breakpoint is an uneven step, for example a week of three days between
two files, or a missing month. Windows must not cross breakpoints, where "one step" has another
length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.calendar_steps import calendar_steps
from scitoolkit.io.coordinates import check_time, time_dim
from scitoolkit.io.dates import seconds_since, with_year_number, year_number

# Calendar months differ by 10 %, leap years by 0.3 %, which are not breakpoints; shorter steps must
# be exact.
_CALENDAR_STEP_DAYS, _CALENDAR_TOLERANCE, _TOLERANCE = 27.0, 0.2, 0.01


@dataclass(frozen=True)
class Breakpoint:
    """Uneven step: `actual` instead of `expected` days between steps `index - 1` and `index`."""

    index: int
    expected: float
    actual: float


@dataclass(frozen=True)
class TimeAxis:
    """Decoded time axis.

    Attributes:
        days: (T,) float64, days since the first step; the stored numbers if they are not dates.
        phases: (T,) fraction of the year, in [0, 1); None without dates.
        years: (T,) int64, calendar year, where 1 BC is 0; None without dates.
        calendar: CF name, or "none".
        step: median step, in the unit of `days`.
        breakpoints: uneven steps.
    """

    days: np.ndarray
    phases: np.ndarray | None
    years: np.ndarray | None
    calendar: str
    step: float
    breakpoints: tuple[Breakpoint, ...]

    @property
    def breakpoint_indices(self) -> tuple[int, ...]:
        """First step after each breakpoint, as `window_starts` expects them."""
        return tuple(breakpoint.index for breakpoint in self.breakpoints)


def decimal_years(times: np.ndarray) -> np.ndarray:
    """Return decimal years of dates of any calendar; NaN for times that are plain numbers.

    Args:
        times: datetime64 or cftime objects (or numbers), of any shape.

    Returns:
        float64 of the same shape. The fraction refers to the length of the date's year, which
        handles leap years and 360-day calendars. The year before 1 is 0, also in calendars that
        have none.

    Example:
        >>> decimal_years(np.array(["2000-01-01", "2000-07-02", "2001-07-02T12"], "M8[s]"))
        array([2000. , 2000.5, 2001.5])
    """
    times = np.asarray(times)
    flat = times.ravel()
    if times.size and times.dtype.kind == "M":
        _, phases, years = _from_datetime64(flat)
    elif times.size and times.dtype.kind == "O" and hasattr(flat[0], "calendar"):
        _, phases, years = _from_cftime(flat)
    else:
        return np.full(times.shape, np.nan)
    return (years + phases).reshape(times.shape)


def read_time_axis(array: xr.DataArray) -> TimeAxis:
    """Return the time axis of a field.

    Args:
        array: a field with a time dim; without a time coordinate, times are step numbers.

    Raises:
        DataError: fewer than two steps, or times that do not increase.

    Example:
        >>> times = np.array(["2001-01-01", "2001-01-08", "2001-01-15", "2001-01-18"], "M8[ns]")
        >>> axis = read_time_axis(xr.DataArray(np.zeros(4), dims="time", coords={"time": times}))
        >>> axis.step, axis.breakpoints
        (7.0, (Breakpoint(index=3, expected=7.0, actual=3.0),))
    """
    check_time(array, min_steps=2)
    dim = time_dim(array)
    if dim not in array.coords:
        return _axis(np.arange(array.sizes[dim], dtype=np.float64), None, None, "none")
    times = array[dim].values
    if times.dtype.kind == "M":
        return _even_by_calendar(times, _axis(*_from_datetime64(times), "proleptic_gregorian"))
    if times.dtype.kind == "O":
        return _even_by_calendar(times, _axis(*_from_cftime(times), times[0].calendar))
    if times.dtype.kind in "iuf":
        return _axis(times.astype(np.float64), None, None, "none")
    raise DataError(f"times of type {times.dtype}", where=f"variable {array.name}, {dim}")


def _even_by_calendar(times: np.ndarray, axis: TimeAxis) -> TimeAxis:
    """Return the axis with the breakpoints of times that count parts of a month or year."""
    steps = calendar_steps(times) if axis.step <= _CALENDAR_STEP_DAYS else None
    if steps is None:
        return axis
    uneven = np.flatnonzero(np.diff(steps.counts) != steps.step)
    days = np.diff(axis.days)
    breakpoints = tuple(Breakpoint(int(i) + 1, axis.step, float(days[i])) for i in uneven)
    return replace(axis, breakpoints=breakpoints)


def _axis(
    days: np.ndarray, phases: np.ndarray | None, years: np.ndarray | None, calendar: str
) -> TimeAxis:
    steps = np.diff(days)
    step = float(np.median(steps))
    return TimeAxis(
        days, phases, years, calendar, step, _breakpoints(steps, step, phases is not None)
    )


def _breakpoints(steps: np.ndarray, step: float, dates: bool) -> tuple[Breakpoint, ...]:
    calendar_step = dates and step > _CALENDAR_STEP_DAYS
    tolerance = _CALENDAR_TOLERANCE if calendar_step else _TOLERANCE
    uneven = np.flatnonzero(np.abs(steps - step) > tolerance * step)
    return tuple(Breakpoint(int(i) + 1, step, float(steps[i])) for i in uneven)


def _from_datetime64(times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    day = np.timedelta64(1, "D")
    year = times.astype("datetime64[Y]")
    # The year of a date in nanoseconds may begin before them, or end after them.
    begin = year.astype("M8[s]")
    length = ((year + np.timedelta64(1, "Y")).astype("M8[s]") - begin) / day
    whole = times.astype("M8[s]")
    return (
        seconds_since(times, times[0]) / 86400,
        ((whole - begin) / day + (times - whole) / day) / length,
        year.astype(np.int64) + 1970,
    )


def _from_cftime(times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    def days(delta) -> float:
        return delta.total_seconds() / 86400.0

    phases = []
    for t in times:
        begin = t.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
        phases.append(days(t - begin) / days(with_year_number(begin, year_number(t) + 1) - begin))
    since = np.array([days(t - times[0]) for t in times])
    return since, np.array(phases), np.array([year_number(t) for t in times], dtype=np.int64)
