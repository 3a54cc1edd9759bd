"""Dates of any year: the unit of datetime64 that holds them, one kind for several files, seconds.

datetime64[ns] ends in 1677 and 2262, and casts of other years to it wrap around without an error.
xarray decodes dates outside to cftime, so that one simulation may have both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

_PER_SECOND = {"ns": 10**9, "us": 10**6, "s": 1}
_SOLAR = ("standard", "gregorian", "proleptic_gregorian")
"""Calendars that agree on the dates that datetime64[ns] holds."""


def in_finest_unit(dates: np.ndarray) -> np.ndarray:
    """Return dates in nanoseconds, or in the finest coarser unit that holds all of them.

    Args:
        dates: datetime64 of any shape and unit; NaT stays NaT.

    Returns:
        datetime64[ns] of the same shape; [us] before 1678 or after 2261, [s] beyond 292,000 years.

    Example:
        >>> in_finest_unit(np.array(["2001-01-01", "0850-01-01"], "M8[D]")).dtype
        dtype('<M8[us]')
    """
    whole = dates.astype("M8[s]")
    seconds = np.abs(whole[~np.isnat(whole)].astype(np.int64)).max(initial=0)
    unit = next(u for u, scale in _PER_SECOND.items() if seconds < (2**63 - 1) // scale)
    return dates.astype(f"M8[{unit}]")


def moved(times: np.ndarray, by: Any) -> np.ndarray:
    """Return times later by a length of time, in a unit that holds them.

    numpy adds in the finer of two units, where the dates of other years wrap around.

    Args:
        times: (T,) numbers, datetime64 of any unit, or cftime.
        by: number, timedelta64 or timedelta, as the times need.

    Returns:
        (T,) of the kind of the times; dates in a coarser unit where theirs does not hold them.

    Example:
        >>> moved(np.array(["2262-04-01"], "M8[ns]"), np.timedelta64(30, "D")).dtype
        dtype('<M8[us]')
    """
    if times.dtype.kind != "M":
        return np.asarray(times + by)
    whole = times.astype("M8[s]") + by.astype("m8[s]")
    unit = np.datetime_data(in_finest_unit(whole).dtype)[0]
    fits = next(scale for name, scale in _PER_SECOND.items() if name == unit)
    own = _PER_SECOND.get(np.datetime_data(times.dtype)[0], 1)
    unit = unit if fits < own else np.datetime_data(times.dtype)[0]
    return np.asarray(times.astype(f"M8[{unit}]") + by.astype(f"m8[{unit}]"))


def has_plain_years(dates: np.ndarray) -> bool:
    """Return whether all years of datetime64 dates are 1 to 9999, as texts of dates have them.

    Example:
        >>> has_plain_years(np.array(["0850-01-01", "-0500-01-01"], "M8[D]"))
        False
    """
    years = dates[~np.isnat(dates)].astype("M8[Y]").astype(np.int64) + 1970
    return bool(((years > 0) & (years < 10_000)).all())


def of_one_kind(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return times that are to be joined as one kind: all cftime if some are, or of one unit.

    Dates of datetime64 become those of the calendar of the others if it has the same days. Numbers,
    and dates of another calendar, are returned as they are.

    Args:
        parts: datetime64, cftime or numbers, of any shape.

    Example:
        >>> import cftime
        >>> early = np.array([cftime.DatetimeGregorian(1600, 1, 1)])
        >>> of_one_kind([early, np.array(["1700-01-01"], "M8[ns]")])[1][0].isoformat()
        '1700-01-01T00:00:00'
    """
    import cftime

    dated = [p.ravel().astype("M8[s]") for p in parts if p.dtype.kind == "M"]
    if len({p.dtype for p in parts if p.dtype.kind == "M"}) > 1:
        # numpy joins dates in the finest unit, which may not hold all.
        kind = in_finest_unit(np.concatenate(dated)).dtype
        parts = [p.astype(kind) if p.dtype.kind == "M" else p for p in parts]
    firsts = [p.flat[0] for p in parts if p.size and p.dtype.kind == "O"]
    calendar = next((str(f.calendar) for f in firsts if hasattr(f, "calendar")), "")
    if calendar not in _SOLAR:
        return list(parts)
    unit = "microseconds since 1970-01-01"
    return [
        np.asarray(cftime.num2date(p.astype("M8[us]").astype(np.int64), unit, calendar))
        if p.dtype.kind == "M" and not np.isnat(p).any()
        else p
        for p in parts
    ]


def joined_times(parts: Sequence[xr.Variable], dim: str) -> xr.Variable:
    """Return the times of several files, (rows,), as one variable along a dim."""
    import xarray as xr

    values = of_one_kind([p.values for p in parts])
    return xr.Variable.concat([p.copy(data=v) for p, v in zip(parts, values, strict=True)], dim=dim)


def seconds_since(times: np.ndarray, origin: Any) -> np.ndarray:
    """Return the seconds (T,) float64 since a date, also over centuries.

    The difference of datetime64[ns] is wrong beyond 292 years: whole seconds are subtracted.

    Args:
        times: (T,) datetime64 of any unit, or cftime; of numbers the difference is returned.
        origin: date of the same kind.

    Raises:
        TypeError: dates of two kinds, or of two calendars.

    Example:
        >>> times = np.array(["1700-01-01", "2000-01-01"], "M8[ns]")
        >>> seconds_since(times, times[0]) / 86400
        array([     0., 109572.])
    """
    if times.dtype.kind in "iuf":
        return np.asarray(times - origin, np.float64)
    if times.dtype.kind != "M":
        return np.array([(t - origin).total_seconds() for t in times], np.float64)
    if not isinstance(origin, np.datetime64):
        raise TypeError(f"a date of {type(origin).__name__} and datetime64 have no difference")
    second, whole, begin = np.timedelta64(1, "s"), times.astype("M8[s]"), origin.astype("M8[s]")
    return (whole - begin) / second + ((times - whole) / second - (origin - begin) / second)


def year_number(date: Any) -> int:
    """Return the year of a cftime date as a number without a hole: 1 BC is 0.

    Example:
        >>> import cftime
        >>> year_number(cftime.DatetimeGregorian(2000, 1, 1))
        2000
    """
    return int(date.year) + int(date.year < 0 and not date.has_year_zero)


def with_year_number(date: Any, number: int, **parts: int) -> Any:
    """Return a cftime date with another year, as `year_number` counts, and other parts.

    Example:
        >>> import cftime
        >>> with_year_number(cftime.DatetimeGregorian(2000, 1, 1), 2001, month=3).isoformat()
        '2001-03-01T00:00:00'
    """
    return date.replace(year=number - int(number < 1 and not date.has_year_zero), **parts)
