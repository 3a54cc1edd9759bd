"""Times of tables that stand in several columns, or that count weeks or months of a year."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

LAST_YEAR = 1e11
"""Larger numbers are no years: seconds of datetime64 end at 292 billion."""
_PARTS = ("year", "month", "week", "doy", "day", "hour", "minute")
_SYNONYMS = {"isoweek": "week", "yday": "doy", "jday": "doy", "day_of_year": "doy", "min": "minute"}
_ALLOWED = {
    "month": (1, 12),
    "week": (1, 53),
    "doy": (1, 366),
    "day": (1, 31),
    "hour": (0, 24),
    "minute": (0, 59),
}
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([AaPp]\.?[Mm]\.?)?")
_WEEK = re.compile(r"\s*(\d{4})[- ]?[Ww](\d{1,2})(?:-?([1-7]))?\s*")
_LATE = re.compile(r"([T ])24(:00(?::00(?:\.0*)?)?)\b")
_MONDAY, _SUNDAY = 4, 3
"""Days from 1970-01-01 to the first day of a week: of ISO 8601, of epidemiology (MMWR)."""


def joined_times(table: pd.DataFrame, where: str = "times") -> pd.DataFrame:
    """Return a table with one column of times instead of several columns with parts of them.

    The parts are whole numbers year and month (day, hour, minute), year and day of the year, year
    and week, or a column of dates and one of hours or of times of day. The 24th hour is the first
    of the next day.

    Raises:
        DataError: a date that does not exist, such as the 30th of February.

    Example:
        >>> import pandas as pd
        >>> joined_times(pd.DataFrame({"year": [1999], "doy": [32], "u": [1.5]})).values.tolist()
        [[Timestamp('1999-02-01 00:00:00'), 1.5]]
    """
    columns = {_SYNONYMS.get(n, n): c for c in table.columns if (n := str(c).strip().lower())}
    whole = {n: c for n, c in columns.items() if table[c].dtype.kind in "iu"}
    if "date" in columns and table[columns["date"]].dtype.kind not in "biuf":
        return _with_time_of_day(table, columns, whole)
    if "year" not in whole or {"time", "date"} & columns.keys():
        return table
    parts = {n: table[whole[n]].to_numpy(np.int64) for n in _PARTS if n in whole}
    in_range = np.all(
        [(lo <= parts[n]) & (parts[n] <= hi) for n, (lo, hi) in _ranges(parts)] or [True], 0
    )
    if not in_range.all():
        # A column of other numbers beside years that differ is one of the values.
        if len(np.unique(parts["year"])) == len(table):
            return table
        require_days(~in_range, list(parts.values()), where)
    days = _days(parts, where)
    if days is None:
        return table
    minutes = 60 * parts.get("hour", np.int64(0)) + parts.get("minute", np.int64(0))
    rest = table.drop(columns=[whole[n] for n in parts])
    rest.insert(0, "time", days.astype("M8[s]") + np.asarray(minutes).astype("m8[m]"))
    return rest


def _ranges(parts: dict[str, np.ndarray]) -> list[tuple[str, tuple[int, int]]]:
    return [(n, _ALLOWED[n]) for n in parts if n != "year"]


def require_days(wrong: np.ndarray, parts: Sequence[np.ndarray], where: str) -> None:
    """Raise if some dates do not exist, which would count as days of the next month.

    Args:
        wrong: (rows,) whether a row has such a date.
        parts: columns of its numbers.
        where: file, and column.

    Raises:
        DataError: with the first of them.
    """
    if wrong.any():
        date = "-".join(str(part[np.argmax(wrong)]) for part in parts)
        raise DataError(
            f"{int(wrong.sum())} dates do not exist, the first is {date}",
            where=where,
            allowed="days of the standard calendar",
            fix="correct them; times of a model's calendar (360_day, noleap) need a NetCDF file "
            "with the attribute calendar",
        )


def _days(parts: dict[str, np.ndarray], where: str) -> np.ndarray | None:
    """Return dates (row) of years with months, weeks or days of the year; None if there is none."""
    year = parts["year"]
    if np.abs(year).max(initial=0) >= LAST_YEAR:
        return None
    if "month" in parts:
        # pandas joins the digits of the parts, which fails for years of other than four.
        months = (12 * (year - 1970) + parts["month"] - 1).astype("M8[M]")
        days = months.astype("M8[D]") + (parts.get("day", np.int64(1)) - 1)
        require_days(days.astype("M8[M]") != months, list(parts.values()), where)
        return days
    if "doy" in parts:
        years = (year - 1970).astype("M8[Y]")
        days = years.astype("M8[D]") + (parts["doy"] - 1)
        require_days(days.astype("M8[Y]") != years, list(parts.values()), where)
        return days
    if "week" in parts and np.abs(year).max(initial=0) < 10000:
        return dates_of_weeks(year, parts["week"])
    return None


def _with_time_of_day(
    table: pd.DataFrame, columns: dict[str, str], whole: dict[str, str]
) -> pd.DataFrame:
    """Return a table whose column of dates has the hour or the time of day of another column."""
    date = table[columns["date"]].astype(str).str.strip()
    if date.str.contains(":").any():
        return table
    clock, hour = columns.get("time"), whole.get("hour")
    if clock is not None and table[clock].dropna().astype(str).map(is_clock).all():
        times = date + " " + table[clock].astype(str).str.strip()
        rest = table.drop(columns=[columns["date"], clock])
    elif hour is not None and table[hour].between(*_ALLOWED["hour"]).all():
        minute = whole.get("minute")
        minutes = 0 * table[hour] if minute is None else table[minute]
        clocks = [f" {h:02d}:{m:02d}" for h, m in zip(table[hour], minutes, strict=True)]
        times = date + clocks
        rest = table.drop(columns=[columns["date"], hour, *([minute] if minute else [])])
    else:
        return table
    rest.insert(0, "time", times)
    return rest


def is_clock(text: str) -> bool:
    """Return whether a text is a time of day without a date."""
    return _CLOCK.fullmatch(text.strip()) is not None


def without_24th_hour(text: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """Return dates with 24:00 as 00:00, and the days (row) to add."""
    midnight = text.str.replace(_LATE, r"\g<1>00\g<2>", regex=True)
    return midnight, (midnight != text).to_numpy().astype("m8[D]")


def weeks_or_quarters(text: pd.Series) -> np.ndarray | None:
    """Return the first days (row) of 2015-W01, 2015-W01-1 or 2015Q1; None if a text is neither."""
    quarters = text.astype(str).str.extract(r"^\s*(\d{4})[- ]?[Qq]([1-4])\s*$")
    if quarters.notna().all(axis=None):
        year, quarter = quarters.to_numpy(np.int64).T
        return (12 * (year - 1970) + 3 * quarter - 3).astype("M8[M]").astype("M8[D]")
    parts = [_WEEK.fullmatch(t) for t in text.astype(str)]
    if not parts or not all(parts):
        return None
    year, week, day = np.array([[int(g or 1) for g in p.groups()] for p in parts if p]).T
    dates = dates_of_weeks(year, week)
    return None if dates is None else dates + (day - 1)


def dates_of_weeks(year: np.ndarray, week: np.ndarray) -> np.ndarray | None:
    """Return the first days (row) of weeks of ISO 8601, or of MMWR if only there all weeks exist.

    Week 1 has the 4th of January in both; some years have 53 weeks. None if a week exists in
    neither.

    Example:
        >>> dates_of_weeks(np.array([2015, 2016]), np.array([53, 1])).astype(str).tolist()
        ['2015-12-28', '2016-01-04']
    """
    for first_weekday in (_MONDAY, _SUNDAY):
        begins = _first_weeks(year, first_weekday)
        dates = begins + 7 * (week - 1)
        if (dates < _first_weeks(year + 1, first_weekday)).all() and (week >= 1).all():
            return dates
    return None


def _first_weeks(year: np.ndarray, first_weekday: int) -> np.ndarray:
    fourth = (year - 1970).astype("M8[Y]").astype("M8[D]") + 3
    return fourth - (fourth.astype(np.int64) - first_weekday) % 7


def packed_weeks(numbers: np.ndarray) -> np.ndarray | None:
    """Return the dates of weekly numbers YYYYWW; None for others.

    Example:
        >>> packed_weeks(np.arange(201440.0, 201453.0))[0].astype(str).item()
        '2014-09-29'
    """
    if not (numbers == numbers.round()).all():
        return None
    year, week = np.divmod(numbers.astype(np.int64), 100)
    if not ((1900 <= year) & (year < 2200) & (1 <= week) & (week <= 53)).all():
        return None
    dates = dates_of_weeks(year, week)
    if dates is None or np.median(np.diff(np.unique(dates)).astype(np.int64)) != 7:
        return None
    return dates


def year_dot_month(numbers: np.ndarray) -> np.ndarray | None:
    """Return the months of numbers YYYY.MM, as 2000.10 for October; None for decimal years.

    Example:
        >>> year_dot_month(np.array([1999.11, 1999.12, 2000.01])).astype(str).tolist()
        ['1999-11', '1999-12', '2000-01']
    """
    hundredths = numbers * 100
    if not (np.abs(hundredths) < 1e6).all():
        return None
    whole = hundredths.round().astype(np.int64)
    year, month = np.divmod(whole, 100)
    if np.abs(hundredths - whole).max() > 1e-6 or not ((1 <= month) & (month <= 12)).all():
        return None
    months = (12 * (year - 1970) + month - 1).astype("M8[M]")
    # Hundredths of a year would be steps of days at the beginning of each year.
    if len(months) < 3 or np.median(np.diff(np.unique(months)).astype(np.int64)) != 1:
        return None
    return months


def with_centuries(dates: np.ndarray, text: pd.Series, where: str) -> np.ndarray:
    """Return dates (row); years of two digits go on from row to row, and none is in the future.

    pandas takes 68 as 2068 and 69 as 1969, which would cut a record of the sixties in two.

    Args:
        dates: as pandas reads them, datetime64.
        text: of the file.
        where: file and column, for messages.

    Raises:
        DataError: the order of the rows does not tell the century of each.
    """
    if text.str.contains(r"\d{4}", regex=True).any():
        return dates
    months = dates.astype("M8[M]")
    read = months.astype("M8[Y]").astype(int) + 1970
    turns = np.diff(read % 100)
    # From 99 to 00 the next century begins; in a record that goes back, the one before.
    turns = np.where(turns < -50, 100, np.where(turns > 50, -100, 0))
    years = read % 100 + np.cumsum([0, *turns])
    if np.ptp(years) >= 100 or len(set(turns) - {0}) > 1:
        raise DataError(
            f"years of two digits, such as {text.iloc[0]}, in no order that tells the century",
            where=where,
            fix="write dates as 2001-12-31",
        )
    this_year = np.datetime64("now").astype("M8[Y]").astype(int) + 1970
    years = years + (this_year - years.max()) // 100 * 100
    return (months + 12 * (years - read)).astype(dates.dtype) + (dates - months.astype(dates.dtype))


def refuse_short_dates(numbers: np.ndarray, where: str) -> None:
    """Refuse numbers that are even as dates YYMMDD, whose century is unknown, and not as numbers.

    Within one month they are as even as any count, and are not told from it.

    Raises:
        DataError: they are such dates.
    """
    ordered = np.unique(numbers)
    if not (ordered[0] >= 101 and 10101 <= ordered[-1] <= 991231 and (ordered % 1 == 0).all()):
        return
    whole = ordered.astype(np.int64)
    months = (30 * 12 + whole // 10000 * 12 + whole // 100 % 100 - 1).astype("M8[M]")  # from 2000
    dates = months.astype("M8[D]") + (whole % 100 - 1)
    # A month of 13 or 0 would be one of another year.
    own = months.astype("M8[Y]").astype(np.int64) == 30 + whole // 10000
    valid = own & (dates.astype("M8[M]") == months)
    as_dates, as_numbers = np.diff(dates).astype(np.int64), np.diff(whole)
    uneven = [(abs(s - np.median(s)) > 0.2 * np.median(s)).mean() for s in (as_dates, as_numbers)]
    if valid.all() and uneven[0] < 0.1 and uneven[0] < uneven[1]:
        raise DataError(
            f"numbers {ordered[0]:.10g} to {ordered[-1]:.10g}, which look like YYMMDD",
            where=where,
            fix="write dates as 2001-12-31",
        )
