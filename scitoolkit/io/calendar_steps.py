"""Steps of the calendar: months, parts of a month, parts of a year and weekdays.

Such times are not equally far apart in days, but they are even. Dekads (days 1, 11, 21), pentads
and half months count equal parts of a month; the 5, 8, 10 or 16 days of satellite data begin
again each year; markets and counters of traffic have the days from Monday to Friday.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.dates import in_finest_unit, seconds_since, with_year_number, year_number

_MONTH_DAYS, _DRIFT = 27.0, 3
"""Steps above so many days may be months, whose days of the month differ by at most `_DRIFT`."""
_MONTH_PARTS = {2: "half of a month", 3: "third of a month", 6: "sixth of a month"}
_YEAR_PARTS = {5: 73, 8: 46, 10: 37, 16: 23}
"""Length in days, and number in a year."""
WEEKDAY = "day of five a week"
_THURSDAY = np.datetime64("1970-01-01")
_YEAR = 366 * 86400
_LEAP_DAY = 59
"""Days of a year before 29 February."""


@dataclass(frozen=True)
class CalendarSteps:
    """Times as a count of parts of the calendar.

    Attributes:
        unit: such as `month` or `third of a month`.
        counts: (T,) int64, number of the part since year 0.
        date_of: returns the date of a count.
    """

    unit: str
    counts: np.ndarray
    date_of: Callable[[int], Any] = field(compare=False)

    @property
    def step(self) -> int:
        """Median number of parts between neighbours."""
        return int(np.median(np.diff(self.counts)))


@dataclass(frozen=True)
class _Civil:
    """Years, months (0-11), days of the month and of the year (both from 0), their lengths."""

    years: np.ndarray
    months: np.ndarray
    days: np.ndarray
    month_days: np.ndarray
    year_days: np.ndarray
    lengths: np.ndarray
    seconds: np.ndarray
    make: Callable[[int, int, int], Any]
    """Date of a year, month and day (from 0), at the time of day of the last date."""

    def month_length(self, year: int, month: int) -> int:
        first = self.make(year, month, 0)
        after = self.make(year + month // 11, (month + 1) % 12, 0)
        return int(
            (after - first) / _DAY if isinstance(first, np.datetime64) else (after - first).days
        )


_DAY = np.timedelta64(1, "D")
_MONTHS = re.compile(r"(?P<unit>months?|years?)\s+since\s+(?P<begin>.+)", re.IGNORECASE)
_WHOLE = 1e-6
"""Rounding of a number of months that is meant to be whole."""
_CALENDARS = {"360": "360_day", "365": "365_day", "366": "366_day"}
"""Names of calendars that other programs write, and those of CF."""


def with_cf_calendar(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a stored time with CF's name of its calendar.

    `months since` are months of 30 days if the calendar is `360`, as many archives write it.

    Example:
        >>> with_cf_calendar({"calendar": "360"})
        {'calendar': '360_day'}
    """
    calendar = str(attributes.get("calendar", ""))
    return {**attributes, **({"calendar": _CALENDARS[calendar]} if calendar in _CALENDARS else {})}


def months_as_days(
    values: np.ndarray, attributes: Mapping[str, Any], where: str = ""
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return times in `months since` or `years since` as days, with the attributes of days.

    Months have no fixed length in most calendars, so that readers of CF refuse them. Archives mean
    whole months, or the same part of each month: 0.5 is its middle. Other units, and the calendar
    with months of 30 days, are returned as they are.

    Args:
        values: times of any shape; NaN stays NaN.
        attributes: of the stored variable, with `units` and `calendar`.
        where: file and variable, for messages.

    Raises:
        DataError: the times are at different parts of their months, or begin after the 28th.

    Example:
        >>> months_as_days(np.array([0.0, 1.0, 2.0]), {"units": "months since 2001-01-01"})
        (array([ 0., 31., 59.]), {'units': 'days since 2001-01-01'})
    """
    named = with_cf_calendar(attributes)
    unit = _MONTHS.fullmatch(str(named.get("units", "")).strip())
    if unit is None or named.get("calendar") == "360_day":
        return values, named
    import cftime

    days = f"days since {unit['begin']}"
    calendar = str(named.get("calendar", "standard"))
    try:
        first = cftime.num2date(0, days, calendar)
    except ValueError as error:
        raise DataError(f"unit {named['units']!r} ({error})", where=where) from None
    months = np.asarray(values, np.float64) * (12 if unit["unit"].lower().startswith("y") else 1)
    whole = np.floor(months + _WHOLE)
    # The part of a month is kept as a part: half a February is shorter than half a March.
    part = months - whole
    finite = np.isfinite(months)
    # Beyond the 28th, the same day does not exist in every month.
    if first.day > 28 or (finite.any() and np.ptp(part[finite]) > 2 * _WHOLE):
        raise DataError(
            f"times in {named['units']!r} that are not the same day of each month",
            where=where,
            allowed="whole months, or the same part of each month",
            fix=f"write the times as `{days}`",
        )
    out = np.full(months.shape, np.nan)
    for place in zip(*np.nonzero(finite), strict=True):
        year, month = divmod(first.month - 1 + int(whole[place]), 12)
        year += year_number(first)
        begin = with_year_number(first, year, month=month + 1)
        after = with_year_number(first, year + month // 11, month=(month + 1) % 12 + 1)
        number, end = cftime.date2num([begin, after], days, calendar)
        out[place] = number + max(part[place], 0.0) * (end - number)
    return out, {**named, "units": days}


def calendar_steps(times: np.ndarray) -> CalendarSteps | None:
    """Return times counted in parts of the calendar; None if they are not such steps.

    Args:
        times: (T,) increasing dates, datetime64 or cftime.

    Example:
        >>> days = [f"2001-{m:02}-{d:02}" for m in (1, 2, 3) for d in (1, 11, 21)]
        >>> calendar_steps(np.array(days, "M8[s]")).unit
        'third of a month'
    """
    if len(times) < 2:
        return None
    civil = _civil(times)
    if civil is None:
        return None
    between = np.diff(civil.seconds)
    if not (between > 0).all():
        return None
    # Longer steps can only be months or years; the shortest month has 28 days.
    if np.median(between) > _MONTH_DAYS * 86400:
        return _months(civil)
    # Steps of one length need no calendar, and three times fit too many calendars.
    if len(times) < 4 or (between == between[0]).all():
        return None
    weekdays = _weekdays(times) if np.median(between) == 86400 else None
    if weekdays is not None:
        return weekdays
    for parts, unit in _MONTH_PARTS.items():
        steps = _month_parts(civil, parts, unit)
        if steps is not None:
            return steps
    # Products of satellites either count 29 February as a day or leave it out.
    for length, parts in _YEAR_PARTS.items():
        for leap_day in (True, False):
            steps = _year_parts(civil, length, parts, leap_day)
            if steps is not None:
                return steps
    return None


def times_after(times: np.ndarray, count: int) -> np.ndarray:
    """Return the next times (count,): steps of the calendar, or repetitions of the median step.

    The day of the month is that of the last time, or the last day where the month is shorter or
    all times are last days of months.

    Args:
        times: (T,) increasing dates of any calendar, or numbers.

    Example:
        >>> times_after(np.array(["2001-11-30", "2001-12-31"], "M8[D]"), 2).astype(str).tolist()
        ['2002-01-31', '2002-02-28']
    """
    if times.dtype == "M8[ns]" and len(times) > 1:
        # Beyond 2262 in a coarser unit; a month or year that is begun is needed whole.
        longest = np.diff(seconds_since(times, times[0])).max() * (count + 2) + _YEAR
        end = times[-1].astype("M8[s]") + np.timedelta64(int(longest), "s")
        if in_finest_unit(end[None]).dtype != times.dtype:
            return in_finest_unit(times_after(times.astype("M8[us]"), count))
    dated = times.dtype.kind == "M" or hasattr(times.flat[0], "calendar")
    steps = calendar_steps(times) if dated else None
    if steps is not None:
        last, step = int(steps.counts[-1]), steps.step
        ahead = [steps.date_of(last + k * step) for k in range(1, count + 1)]
        return np.array(ahead, times.dtype)
    if times.dtype.kind == "M":
        unit = np.datetime_data(times.dtype)[0]
        delta = np.array(np.median(np.diff(times).astype(np.int64)), f"timedelta64[{unit}]")
        return times[-1] + np.arange(1, count + 1) * delta
    # cftime dates and numbers: a sorted middle, as differences of dates have no median.
    between = np.sort(np.diff(times))
    median, delta = between[len(between) // 2], times[-1] - times[-2]
    if abs(delta - median) > 0.01 * abs(median):  # the last step is a gap
        delta = median
    return np.array([times[-1] + k * delta for k in range(1, count + 1)])


def _civil(times: np.ndarray) -> _Civil | None:
    if times.dtype.kind == "M":
        dates = times.astype("M8[D]")
        months, years = dates.astype("M8[M]"), dates.astype("M8[Y]")
        time_of_day = times[-1] - dates[-1]

        def make(year: int, month: int, day: int) -> np.datetime64:
            first = np.datetime64(12 * (year - 1970) + month, "M").astype("M8[D]")
            return (first + np.timedelta64(day, "D")).astype(times.dtype) + time_of_day

        return _Civil(
            years.astype(int) + 1970,
            months.astype(int) % 12,
            (dates - months).astype(int),
            ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(int),
            (dates - years).astype(int),
            ((years + 1).astype("M8[D]") - years.astype("M8[D]")).astype(int),
            seconds_since(times, times[0]),
            make,
        )
    if times.dtype.kind != "O" or not hasattr(times.flat[0], "calendar"):
        return None
    last = times[-1]

    def make_cftime(year: int, month: int, day: int) -> Any:
        return with_year_number(last, year, month=month + 1, day=day + 1)

    return _Civil(
        np.array([year_number(t) for t in times]),
        np.array([t.month - 1 for t in times]),
        np.array([t.day - 1 for t in times]),
        np.array([t.daysinmonth for t in times]),
        np.array([t.dayofyr - 1 for t in times]),
        np.array([(t.replace(month=12, day=1).dayofyr - 1) for t in times])
        + np.array([t.replace(month=12, day=1).daysinmonth for t in times]),
        seconds_since(times, times[0]),
        make_cftime,
    )


def _months(civil: _Civil) -> CalendarSteps | None:
    # counts = 12 year + month, so that a step is a difference of counts in any calendar.
    counts = 12 * civil.years + civil.months
    between = np.diff(counts)
    step = int(np.median(between))
    # Dates may drift by days (31, 28, 31), as ends of months do; several months apart must be a
    # multiple of the step, or a month is missing.
    steady = bool(np.ptp(civil.days) <= _DRIFT and step > 0 and not (between % step).any())
    if not (between > 0).all() or not (steady or (between == 1).all()):
        return None
    at_end = bool((civil.days == civil.month_days - 1).all())

    def date_of(count: int) -> Any:
        year, month = divmod(count, 12)
        last = civil.month_length(year, month) - 1
        return civil.make(year, month, last if at_end else min(int(civil.days[-1]), last))

    return CalendarSteps("month", counts, date_of)


def _weekdays(times: np.ndarray) -> CalendarSteps | None:
    """Return days counted from Monday to Friday; None if others are among them or no weekend."""
    if times.dtype.kind != "M":
        return None
    dates = times.astype("M8[D]")
    # Weekdays since a Thursday: the weekend between has no number.
    counts, time_of_day = np.busday_count(_THURSDAY, dates), times - dates
    # Without a step from Friday to Monday, the days may as well be all days of a week.
    over_weekend = (np.diff(counts) == 1) & (np.diff(dates) == 3 * _DAY)
    if not np.is_busday(dates).all() or not over_weekend.any() or np.ptp(time_of_day):
        return None

    def date_of(count: int) -> Any:
        date = np.busday_offset(_THURSDAY, count, roll="forward")
        return date.astype(times.dtype) + time_of_day[-1]

    return CalendarSteps(WEEKDAY, counts, date_of)


def _month_parts(civil: _Civil, parts: int, unit: str) -> CalendarSteps | None:
    # The last part may be dated by the last day of its month, which has no fixed number. A last day
    # that is also a start, as the 30th of June, is no sign of that.
    at_end = civil.days == civil.month_days - 1
    starts = np.unique(civil.days[~at_end])
    at_end &= ~np.isin(civil.days, starts)
    if len(starts) + at_end.any() != parts:
        return None
    edges = np.append(starts, 29) if at_end.any() else starts
    # Parts of a month of 30 days that wrap into the next: about equal, or these are other dates.
    widths = np.diff([*edges, edges[0] + 30])
    if np.ptp(widths) > _DRIFT:
        return None
    # counts = parts (12 year + month) + slot, with slot 0 ... parts - 1 within the month.
    slots = np.where(at_end, parts - 1, np.searchsorted(starts, civil.days))
    counts = (12 * civil.years + civil.months) * parts + slots
    between = np.diff(counts)
    if not (between > 0).all() or np.median(between) != 1:
        return None

    def date_of(count: int) -> Any:
        months, slot = divmod(count, parts)
        year, month = divmod(months, 12)
        last = civil.month_length(year, month) - 1
        return civil.make(year, month, min(int(starts[slot]), last) if slot < len(starts) else last)

    return CalendarSteps(unit, counts, date_of)


def _year_parts(civil: _Civil, length: int, parts: int, leap_day: bool) -> CalendarSteps | None:
    """Return parts that begin again each year; without `leap_day` 29 February has no number."""
    # counts = parts year + floor(day / length): the last part of a year may be shorter.
    leap = civil.lengths == 366
    days = civil.year_days - (leap & (civil.year_days > _LEAP_DAY) & (not leap_day))
    counts = civil.years * parts + days // length
    # All dates must be at the same day of their part, the phase.
    between, phase = np.diff(counts), int(days[-1] % length)
    if np.ptp(days % length) or not (between > 0).all() or np.median(between) != 1:
        return None

    def date_of(count: int) -> Any:
        year, slot = divmod(count, parts)
        day, month = slot * length + phase, 0
        is_leap = civil.month_length(year, 1) == 29
        day += int(is_leap and not leap_day and day >= _LEAP_DAY)
        while month < 11 and day >= (size := civil.month_length(year, month)):
            day, month = day - size, month + 1
        return civil.make(year, month, day)

    return CalendarSteps(f"1/{parts} of a year", counts, date_of)
