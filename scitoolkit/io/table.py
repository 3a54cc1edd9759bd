"""Tables of series: CSV files with a column of times and columns of values.

A wide table has one column a series. A long one (a panel) names the series in a column of text;
its values become (time, series). Times are dates in any form that pandas reads, columns year and
month (day, hour, minute), week or doy, columns date and hour or time, weeks as 2015-W01, or numbers
that stand for dates: YYYYMM, YYYYMMDD, YYYYDDD, YYYYWW, YYYY.MM, years, decimal years,
and in a column `timestamp` or `date` seconds since 1970.
"""

from __future__ import annotations

import codecs
import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.data_differences import packed_dates
from scitoolkit.core.errors import DataError
from scitoolkit.io.dates import in_finest_unit
from scitoolkit.io.table_times import (
    LAST_YEAR,
    is_clock,
    joined_times,
    packed_weeks,
    refuse_short_dates,
    require_days,
    weeks_or_quarters,
    with_centuries,
    without_24th_hour,
    year_dot_month,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

SUFFIXES = (".csv", ".tsv")
SERIES_DIM = "series"
WORDS = "words"
"""Key of a dataset's encoding: columns left out of it and which of their values are no numbers."""
ROW = "number of the row"
"""The long name of times of a table that has none."""
_TIME_COLUMNS = ("time", "date", "ds", "datetime", "timestamp", "month", "year", "t", "step")
_SERIES_COLUMNS = ("unique_id", "series_id", "item_id", "id", "station", "site")
"""Columns whose numbers name series where times repeat."""
_UNIT = re.compile(r"^(?P<name>.*\S)\s*[\[(](?P<unit>[^\])]*)[\])]$")
_PHASE = 0.1
"""Distance in months of decimal years from equal parts of their months that counts as rounding."""


def is_table(path: Path) -> bool:
    """Return whether a path has the suffix of a table."""
    return Path(path).suffix.lower() in SUFFIXES


def open_table(path: Path) -> xr.Dataset:
    """Return a table as variables (time), or (time, series) of a long one.

    Rows are sorted by time; empty cells are NaN. `flow [m3/s]` is the variable flow in m3/s. Lines
    that begin with # are comments. Without a column of times, steps are numbered from 0.

    Raises:
        DataError: no column of numbers, unreadable or missing times, or times that repeat.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flow.csv"
        >>> _ = path.write_text("month,flow [m3/s]\\n198001,2.5\\n198002,\\n198003,2.0\\n")
        >>> flow = open_table(path)["flow"]
        >>> flow.values.tolist(), flow.units, str(flow.time.values[-1])[:10]
        ([2.5, nan, 2.0], 'm3/s', '1980-03-01')
    """
    import xarray as xr

    where = str(path)
    table = joined_times(_read(path), where)
    column = _time_column(table)
    texts = [c for c in table.columns if c != column and table[c].dtype.kind not in "biuf"]
    if column is not None:
        table = table.assign(**{column: _dates(table[column], where)})
        table = table.sort_values(column, kind="stable")
        if not texts and table[column].duplicated().any():
            texts = [c for c in table.columns if str(c).strip().lower() in _SERIES_COLUMNS]
        if texts and table[column].duplicated().any():
            # NA may be the name of a series, such as Namibia's.
            stated = _read(path, as_text=True)[texts].reindex(table.index)
            return _panel(table.assign(**{t: stated[t] for t in texts}), column, texts, where)
        _refuse_repeated(table[column], where)
    numbers = [c for c in table.columns if c != column and c not in texts]
    words = {str(c).strip(): _words_in(table[c]) for c in texts if table[c].notna().any()}
    if not numbers:
        raise DataError(
            "no column of numbers" + "".join(f"; {name}: {text}" for name, text in words.items()),
            where=where,
            allowed=", ".join(map(str, table.columns)),
            fix="a header line, a column of times and columns of numbers",
        )
    times = np.arange(len(table), dtype=np.float64) if column is None else table[column].values
    # Columns of true and false stay such: whoever needs numbers refuses them by name.
    values = {
        c: ("time", table[c].to_numpy(bool if table[c].dtype == bool else float)) for c in numbers
    }
    about = {"long_name": ROW} if column is None else {}
    dataset = _named(xr.Dataset(values, {"time": ("time", times, about)}))
    dataset.encoding[WORDS] = words
    return dataset


def _read(path: Path, as_text: bool = False) -> pd.DataFrame:
    """Return the table, or all its cells as text, also NA."""
    import pandas as pd

    try:
        with path.open("rb") as raw:
            wide = raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if wide else "utf-8-sig"
        with path.open(encoding=encoding, newline="") as file:
            lines = list(file)
        comments = {n for n, line in enumerate(lines) if line.lstrip().startswith("#")}
        first = next((s for n, s in enumerate(lines) if s.strip() and n not in comments), "")
        separator = csv.Sniffer().sniff(first, ",;\t|").delimiter if first else ","
    except csv.Error:
        separator = ","  # one column
    except UnicodeError as error:
        fix = "save the file as UTF-8"
        raise DataError(f"cannot be read ({error})", where=str(path), fix=fix) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error})", where=str(path)) from None
    # pandas' `comment` would cut a line at any "#", as in "well #3".
    options: dict[str, Any] = {"sep": separator, "skiprows": comments, "skipinitialspace": True}
    options |= {"dtype": str, "keep_default_na": False} if as_text else {}
    try:
        # With semicolons between columns, a comma is the decimal point.
        decimal = "," if separator == ";" else "."
        table = pd.read_csv(path, decimal=decimal, encoding=encoding, **options)
    except (ValueError, OSError) as error:
        raise DataError(f"not a table ({error})", where=str(path)) from None
    if as_text:
        return table
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    twice = [name for i, name in enumerate(names) if name and name in names[:i]]
    if twice:
        raise DataError(f"column {twice[0]!r} twice", where=str(path), fix="names that differ")
    if not isinstance(table.index, pd.RangeIndex):
        raise DataError(
            f"rows of more fields than the {len(names)} names of the header",
            where=str(path),
            fix="a name for each column, and no separator at the end of rows",
        )
    if names and all(_is_value(name) for name in names):
        raise DataError(
            f"no header line: the first line is {first.strip()!r}",
            where=str(path),
            fix=f"a first line with names, such as time{separator}u",
        )
    for name in table.columns if len(table) else ():
        plain = _without_groups(table[name])
        if plain is not None:
            table[name] = plain
    if decimal == ",":  # or a point all the same
        for name in table.columns:
            numbers = pd.to_numeric(table[name], errors="coerce")
            if _may_group_thousands(table[name]):
                raise DataError(
                    f"{table[name].dropna().astype(str).max()} may be thousands or decimals",
                    where=f"{path}: {name}",
                    fix="numbers without points between thousands, or a comma between columns",
                )
            if numbers.notna().sum() == table[name].notna().sum():
                table[name] = numbers
    return table


def _is_value(name: str) -> bool:
    """Return whether a field of the first line is a number or a date, hence no name."""
    try:
        float(name)
    except ValueError:
        return re.match(r"\d{4}-\d\d|\d{1,2}[/.]\d{1,2}[/.]\d{2}", name) is not None
    return name.lower() not in ("nan", "inf", "infinity")


_GROUPS = ((".", "[ '’\u00a0\u202f]"), (",", "[ '’\u00a0\u202f]"), (".", ","), (",", r"\."))
"""Signs of the decimals and between groups of thousands, as spreadsheets write them."""


def _without_groups(column: pd.Series) -> pd.Series | None:
    """Return numbers such as 13,000.50 or 13 000,50 of a column of text; None for other text.

    A single point or comma with three digits behind may be either: it counts only beside values
    that tell.
    """
    import pandas as pd

    text = column.dropna()
    if (
        column.dtype.kind in "biufM"
        or text.empty
        or not text.map(lambda v: isinstance(v, str)).all()
    ):
        return None
    text = text.str.strip()
    for point, group in _GROUPS:
        dot = re.escape(point)
        number = rf"[+-]?(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{dot}\d+)?"
        if not text.str.fullmatch(number).all():
            continue
        told = [
            rf".*\d{group}\d{{3}}{dot}.*",
            rf".*{group}\d{{3}}{group}.*",
            rf".*{dot}(?!\d{{3}}$)\d+",
        ]
        if group[0] == "[":
            told.append(f".*{group}.*")
        if any(text.str.fullmatch(sign).any() for sign in told):
            plain = text.str.replace(group, "", regex=True).str.replace(point, ".", regex=False)
            return pd.to_numeric(plain).reindex(column.index)
    return None


def _may_group_thousands(column: pd.Series) -> bool:
    """Return whether 12.573 may be 12573: all points have three digits behind them."""
    if column.dtype.kind in "biuf":
        return False
    text = column.dropna().astype(str).str.strip()
    pointed = text.str.contains(".", regex=False)
    grouped = text.str.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}|[+-]?\d{1,3}")
    return bool(pointed.any() and grouped.all())


def _words_in(column: pd.Series) -> str:
    """Return which values of a column are no numbers, as `-` for a missing one."""
    import pandas as pd

    stated = column.dropna().astype(str)
    words = stated[pd.to_numeric(stated, errors="coerce").isna()]
    return f"{len(words)} of {len(stated)} values are no numbers, the first is {words.iloc[0]!r}"


_MONTHS, _LAST_DAY = 12, 31
_UNEVEN = 0.2
"""Share of the median step by which months and quarters differ at most."""


def _time_column(table: pd.DataFrame) -> str | None:
    """Return the column of times: by its name, or the first one if its text is dates."""
    import pandas as pd

    for name in table.columns:
        if str(name).strip().lower() in _TIME_COLUMNS:
            return str(name)
    first = table.columns[0]
    if str(first).startswith("Unnamed"):  # the index that pandas writes
        return str(first)
    if table[first].dtype.kind not in "biuf" and len(table.columns) > 1:
        parsed = pd.to_datetime(table[first], errors="coerce", format="mixed")
        return str(first) if parsed.notna().all() else None
    return None


def _dates(column: pd.Series, where: str) -> np.ndarray:
    """Return times (row) as datetime64, or as numbers that are no dates."""
    import pandas as pd

    if column.dtype.kind == "M":  # of columns year and month
        return in_finest_unit(column.to_numpy())
    if column.dtype.kind not in "biuf":
        if column.isna().any():
            raise DataError("a time is missing", where=f"{where}: {column.name}")
        parts = weeks_or_quarters(column)
        if parts is not None:
            return in_finest_unit(parts)
        if column.astype(str).map(is_clock).any():
            raise DataError(
                f"times of day without a date, such as {column.iloc[0]}",
                where=f"{where}: {column.name}",
                fix="a column `date`, or dates with times in one column",
            )
        column, late = without_24th_hour(column.astype(str))
        text = column
        day_first = _day_first(column, where)
        if column.astype(str).str.fullmatch(r"[A-Za-z]{3}[- ]\d\d").all():  # Jan-98, of Excel
            column = pd.to_datetime(column.str.replace(" ", "-"), format="%b-%y", errors="coerce")
        try:
            dates = pd.to_datetime(column, format="mixed", dayfirst=day_first, utc=True)
        except (ValueError, TypeError) as error:
            text = str(error).splitlines()[0]
            raise DataError(f"unreadable dates ({text})", where=f"{where}: {column.name}") from None
        if dates.isna().any():
            raise DataError("a time is missing", where=f"{where}: {column.name}")
        if (dates.dt.year == 1).any() and not column.str.contains("0001", regex=False).any():
            raise DataError(
                f"dates without a year, such as {column.iloc[0]}",
                where=f"{where}: {column.name}",
                fix="write dates as 2001-12-31",
            )
        stamps = dates.dt.tz_localize(None).to_numpy()
        stamps = with_centuries(stamps, text, f"{where}: {column.name}")
        return in_finest_unit(stamps + late)
    numbers = column.to_numpy(np.float64)
    if not np.isfinite(numbers).all():
        raise DataError("a time is missing", where=f"{where}: {column.name}")
    name = str(column.name).strip().lower()
    if name in _STAMPS and (seconds := _seconds_since_1970(numbers)) is not None:
        return seconds
    dates = dates_of_numbers(numbers, years=name == "year", where=f"{where}: {column.name}")
    low, high = float(numbers.min()), float(numbers.max())
    if name in ("date", "datetime") and dates.dtype.kind != "M" and _is_day_count(low, high):
        raise DataError(
            f"numbers {low:.10g} to {high:.10g}, which look like days that a spreadsheet counts "
            "since 1899-12-30, or modified Julian days",
            where=f"{where}: {column.name}",
            fix="write them as dates: pd.to_datetime(column, unit='D', origin='1899-12-30')",
        )
    return dates


_STAMPS = ("timestamp", "datetime", "date", "ds")
"""Columns whose numbers are dates; those of `time` and `step` may count anything."""


def _is_day_count(low: float, high: float) -> bool:
    """Return whether numbers are days of 1950 to 2100 since 1899-12-30."""
    return low >= 18264 and high < 73416


def _seconds_since_1970(numbers: np.ndarray) -> np.ndarray | None:
    """Return whole seconds, or parts of seconds, of 1980 to 2100 as dates; None for others."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        years = numbers / scale / 31556952.0
        if (numbers == numbers.round()).all() and 10 <= years.min() and years.max() < 130:
            return numbers.astype(np.int64).astype(f"M8[{unit}]").astype("M8[ns]")
    return None


def _day_first(column: pd.Series, where: str) -> bool:
    """Return whether dates as 31/12/2001 have the day first, which all of them tell together.

    A number above 12 is a day; without one, that order is right whose steps are even.

    Raises:
        DataError: both orders are possible, or none.
    """
    import pandas as pd

    text = column.astype(str).str.strip()
    parts = text.str.extract(r"^(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}\b").dropna().astype(int)
    if parts.empty or parts[0].max() > _LAST_DAY:
        return False
    possible = [
        order for order, months in ((False, parts[0]), (True, parts[1])) if months.max() <= _MONTHS
    ]
    if len(possible) == 2 and (parts[0] != parts[1]).any():
        uneven = []
        for order in possible:
            dates = pd.to_datetime(text, format="mixed", dayfirst=order, utc=True, errors="coerce")
            steps = np.diff(np.unique(dates.dropna().astype("int64")).astype(np.float64))
            middle = np.median(steps) if len(steps) else 0.0
            uneven.append(int((np.abs(steps - middle) > _UNEVEN * middle).sum()))
        possible = [o for o, u in zip(possible, uneven, strict=True) if u == min(uneven)]
    elif len(possible) == 2:
        return False
    if len(possible) != 1:
        raise DataError(
            f"dates such as {text.iloc[0]} may have the day or the month first"
            if possible
            else "some dates have the day first and others the month",
            where=f"{where}: {column.name}",
            fix="write dates as 2001-12-31",
        )
    return possible[0]


def dates_of_numbers(
    numbers: np.ndarray, *, years: bool = False, where: str = "times"
) -> np.ndarray:
    """Return the dates that numbers stand for; numbers that stand for none are returned.

    Args:
        numbers: (T,) YYYYMM, YYYYMMDD, YYYYDDD (day of the year) or decimal years.
        years: whether whole numbers are years.
        where: file and column, for messages.

    Returns:
        (T,) datetime64[ns], or [us] before 1678 and after 2261; decimal years that are months begin
        at the first, or, if they state the middle, at the 15th of their months.

    Raises:
        DataError: a date that does not exist, such as 20010230.

    Example:
        >>> dates_of_numbers(np.array([1980.04, 1980.12, 1980.21])).astype("M8[D]").tolist()
        [datetime.date(1980, 1, 15), datetime.date(1980, 2, 15), datetime.date(1980, 3, 15)]
    """
    from scitoolkit.core.data_facts import Dim, Step

    ordered = np.unique(numbers)
    if len(ordered) < 2:
        return numbers
    refuse_short_dates(numbers, where)
    step = float(np.median(np.diff(ordered)))
    ends = float(ordered[0]), float(ordered[-1])
    dim = Dim("time", "time", len(ordered), "numbers", "", "", 1, Step(step, "", step, step), *ends)
    weeks, months_of_years = packed_weeks(ordered), year_dot_month(ordered)
    if weeks is not None and (numbers % 100).max() > _MONTHS:
        return in_finest_unit(weeks[np.searchsorted(ordered, numbers)])
    if months_of_years is not None:
        return in_finest_unit(months_of_years[np.searchsorted(ordered, numbers)].astype("M8[D]"))
    kind = packed_dates(dim)
    if kind == "YYYYDDD":
        whole = numbers.astype(np.int64)
        year = (whole // 1000 - 1970).astype("M8[Y]")
        dates = year.astype("M8[D]") + (whole % 1000 - 1)
        require_days(dates.astype("M8[Y]") != year, [whole], where)
        return in_finest_unit(dates)
    if kind in ("YYYYMM", "YYYYMMDD"):
        whole = numbers.astype(np.int64)
        days = whole % 100 - 1 if kind == "YYYYMMDD" else np.zeros_like(whole)
        months = whole // 100 if kind == "YYYYMMDD" else whole
        first = ((months // 100 - 1970) * 12 + months % 100 - 1).astype("M8[M]")
        dates = first.astype("M8[D]") + days
        is_date = (1 <= months % 100) & (months % 100 <= _MONTHS) & (dates.astype("M8[M]") == first)
        require_days(~is_date, [whole], where)
        return in_finest_unit(dates)
    if years and (numbers == numbers.round()).all() and np.abs(numbers).max() < LAST_YEAR:
        return in_finest_unit((numbers.astype(np.int64) - 1970).astype("M8[Y]"))
    return _of_decimal_years(numbers, step) if kind == "decimal years" else numbers


def _of_decimal_years(numbers: np.ndarray, step: float) -> np.ndarray:
    months = (numbers - 1970.0) * 12.0
    away = months - months.min()
    if step > 0.07 and (np.abs(away - away.round()) < _PHASE).all():
        begin = np.floor(months.min() + _PHASE)
        middle = months.min() - begin > 0.25
        dates = (begin + away.round()).astype(np.int64).astype("M8[M]").astype("M8[D]")
        return in_finest_unit(dates + 14 * middle)
    year = np.floor(numbers).astype(np.int64)
    begin_of_year = (year - 1970).astype("M8[Y]").astype("M8[s]")
    length = (year - 1969).astype("M8[Y]").astype("M8[s]") - begin_of_year
    seconds = (numbers - year) * length.astype(np.float64)
    unit = 86400.0 if step > 0.9 / 366 else 3600.0
    whole = (np.round(seconds / unit) * unit).astype("m8[s]")
    return in_finest_unit(begin_of_year + whole)


def _panel(table: pd.DataFrame, column: str, texts: list[str], where: str) -> xr.Dataset:
    """Return the variables (time, series) of a table that names the series of each row."""
    import xarray as xr

    names = table[texts].astype(str).agg(" ".join, axis=1).str.strip()
    if (names == "").any():
        raise DataError("a row without the name of its series", where=where)
    numbers = [c for c in table.columns if c != column and c not in texts]
    for series in names.unique():
        _refuse_repeated(table[column][names == series], f"{where}: {series}")
    wide = table.assign(**{SERIES_DIM: names}).pivot(index=column, columns=SERIES_DIM)[numbers]
    labels = list(wide.columns.get_level_values(1).unique())
    values = {c: (("time", SERIES_DIM), wide[c][labels].to_numpy(np.float64)) for c in numbers}
    coordinates = {"time": ("time", wide.index.values), "label": (SERIES_DIM, labels)}
    return _named(xr.Dataset(values, coordinates))


def _refuse_repeated(times: pd.Series, where: str) -> None:
    repeated = times[times.duplicated()]
    if len(repeated):
        raise DataError(
            f"{len(repeated)} times repeat, the first is {repeated.iloc[0]}",
            where=where,
            fix="one row for each time, or a column of text that names the series of a row",
        )


def _named(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with the units of its column names as attributes."""
    for name in list(dataset.data_vars):
        parts = _UNIT.match(str(name).strip())
        if parts:
            dataset[name].attrs["units"] = parts["unit"].strip()
            dataset = dataset.rename({name: parts["name"]})
        elif str(name) != str(name).strip():
            dataset = dataset.rename({name: str(name).strip()})
    return dataset
