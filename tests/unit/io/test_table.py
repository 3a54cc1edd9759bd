"""Tables of series: the times and values that they say, in any form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import open_fields
from scitoolkit.io.table import dates_of_numbers, is_table, open_table

MONTHS = pd.date_range("1980-01-01", periods=30, freq="MS")
FORMS = {
    "iso": MONTHS.strftime("%Y-%m-%d"),
    "with hours": MONTHS.strftime("%Y-%m-%d %H:%M:%S"),
    "zulu": MONTHS.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "slashes": MONTHS.strftime("%Y/%m/%d"),
    "names": MONTHS.strftime("%d %B %Y"),
    "YYYYMM": MONTHS.year * 100 + MONTHS.month,
    "YYYYMMDD": MONTHS.year * 10000 + MONTHS.month * 100 + 1,
    "decimal years": MONTHS.year + (MONTHS.month - 1) / 12,
    "decimal years of two digits": (MONTHS.year + (MONTHS.month - 1) / 12).values.round(2),
}


def written(path, times, name="time", separator=",", **columns):
    pd.DataFrame({name: times, **columns}).to_csv(path, index=False, sep=separator)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["time", "Date", "ds", "month"])
def test_all_forms_of_a_month_are_the_same_dates(tmp_path, form, name):
    path = written(tmp_path / "a.csv", FORMS[form], name, u=np.arange(30.0))
    table = open_table(path)
    assert (table["time"].values == MONTHS.values).all()
    np.testing.assert_array_equal(table["u"].values, np.arange(30.0))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_units_order_and_empty_cells(tmp_path, separator):
    path = tmp_path / "a.csv"
    columns = {"flow [m3/s]": [1.5, np.nan, 3.5], "level (m)": [1, 2, 3], " note": ["a", "b", "c"]}
    written(path, ["2001-01-03", "2001-01-02", "2001-01-01"], "day", separator, **columns)
    table = open_table(path)
    assert set(table.data_vars) == {"flow", "level"}
    assert (table["flow"].units, table["level"].units) == ("m3/s", "m")
    np.testing.assert_array_equal(table["flow"].values, [3.5, np.nan, 1.5])


def test_decimal_commas_comments_and_a_mark_at_the_start(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("﻿# made by hand\ntime;u\n2001-01-01;1,5\n2001-01-02;2,5\n".encode())
    assert open_table(path)["u"].values.tolist() == [1.5, 2.5]


def test_a_hash_inside_a_line_begins_no_comment(tmp_path):
    path = tmp_path / "a.csv"
    rows = "2001-01-01,well #3,1.5\n  # moved\n2001-01-02,well 3,2.5\n2001-01-03,well 4,3.5\n"
    path.write_text("# wells\n#\ntime,site,flow\n" + rows)
    assert open_table(path)["flow"].values.tolist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize("step", [1 / 365, 1 / 4, 7 / 365.25])
def test_decimal_years_of_other_steps_are_days_within_one(step):
    numbers = 1990 + np.arange(40) * step
    dates = dates_of_numbers(numbers)
    days = (dates - np.datetime64("1990-01-01")) / np.timedelta64(1, "D")
    assert np.abs(days - (numbers - 1990) * 365.25).max() < 32 if step == 1 / 4 else 2


def test_years_in_a_column_of_that_name_and_plain_numbers(tmp_path):
    years = open_table(written(tmp_path / "a.csv", np.arange(1900, 1950), "year", u=range(50)))
    assert years["time"].values[1] == np.datetime64("1901-01-01")
    plain = open_table(written(tmp_path / "b.csv", np.arange(50) * 0.5, "t", u=range(50)))
    assert plain["time"].values[1] == 0.5
    none = open_table(written(tmp_path / "c.csv", np.linspace(0, 1, 5) ** 2, "v", u=range(5)))
    assert set(none.data_vars) == {"u", "v"}


def test_a_panel_is_a_field_of_series(tmp_path):
    path = tmp_path / "p.csv"
    rows = [(n, d, k * 10.0 + i) for k, n in enumerate("ab") for i, d in enumerate(MONTHS[:4])]
    pd.DataFrame(rows[:-1], columns=["unique_id", "ds", "y"]).to_csv(path, index=False)
    table = open_table(path)
    assert table["y"].dims == ("time", "series")
    assert table["label"].values.tolist() == ["a", "b"]
    np.testing.assert_array_equal(table["y"].values[:, 1], [10.0, 11.0, 12.0, np.nan])


def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    path = tmp_path / "a.csv"
    for text, match in {
        "time,u\n2001-01-01,1\n2001-01-01,2\n": "repeat",
        "time,u\nnever,1\nlater,2\n": "unreadable dates",
        "time,u\n2001-01-01,1\n,2\n": "missing",
        "time,u\n2001-01-01,a\n2001-01-02,b\n": "no column of numbers",
        "": "not a table",
    }.items():
        path.write_text(text)
        with pytest.raises(DataError, match=match) as error:
            open_table(path)
        assert "a.csv" in str(error.value)
    with pytest.raises(DataError, match=r"no such|not exist|found"):
        open_fields(tmp_path / "none.csv")


def test_open_fields_reads_tables_and_checks_units(tmp_path):
    path = written(tmp_path / "a.TSV", MONTHS, separator="\t", **{"u [K]": np.arange(30.0)})
    assert is_table(path)
    with open_fields(path, "u", units={"u": "K"}) as fields:
        assert fields["u"].sizes == {"time": 30}
    with pytest.raises(DataError, match="unit"):
        open_fields(path, "u", units={"u": "m"})


@pytest.mark.parametrize("separator", ["/", ".", "-"])
@pytest.mark.parametrize("step", ["D", "MS", "QS", "h", "15D"])
@pytest.mark.parametrize("order", ["%d{0}%m{0}%Y %H:%M", "%m{0}%d{0}%Y %H:%M"])
def test_dates_with_the_day_or_the_month_first(tmp_path, separator, step, order):
    """Every date alone would be read with the month first where its day is below 13."""
    times = pd.date_range("2001-01-01", periods=40, freq=step)
    text = times.strftime(order.format(separator))
    pd.DataFrame({"time": text, "u": np.arange(40.0)}).to_csv(tmp_path / "a.csv", index=False)
    with open_fields(tmp_path / "a.csv") as dataset:
        assert (dataset["time"].values == times.values).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ([f"01/06/{year}" for year in range(1990, 2010)], "may have the day or the month first"),
        ([f"01/{month:02}/2001" for month in range(1, 13)], "may have the day or the month first"),
        (["31/12/2001", "01/31/2002", "02/28/2002"], "others the month"),
    ],
)
def test_dates_of_either_order_are_refused(tmp_path, text, said):
    pd.DataFrame({"time": text, "u": np.arange(len(text)) * 1.0}).to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(DataError, match=rf"{said}.*2001-12-31"):
        open_fields(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,y,y\n1,2,3\n2,3,4\n", "column 'y' twice"),
        ("time,y\n2001-01-01,1,\n2001-01-02,2,\n", "more fields than the 2 names"),
        ("time,y\n1,2\n2,-\n3,4\n4,5\n", "y: 1 of 4 values are no numbers, the first is '-'"),
        ("time,y\n1,2%\n2,3%\n", "y: 2 of 2 values are no numbers, the first is '2%'"),
    ],
)
def test_columns_that_cannot_be_read_as_meant_are_refused(tmp_path, text, said):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        open_table(path)


DAYS = pd.date_range("2003-11-20", periods=90)
SECONDS = (DAYS - pd.Timestamp("1970-01-01")) // pd.Timedelta("1s")


@pytest.mark.parametrize(
    ("columns", "dates"),
    [
        ({"time": DAYS.strftime("%Y%j").astype(int)}, DAYS),
        ({"timestamp": SECONDS}, DAYS),
        ({"timestamp": SECONDS * 1000}, DAYS),
        ({"Year": DAYS.year, "Month": DAYS.month, "Day": DAYS.day}, DAYS),
        (
            {"year": 1990 + np.arange(90) // 12, "month": np.arange(90) % 12 + 1},
            pd.date_range("1990-01-01", periods=90, freq="MS"),
        ),
        (
            {"time": pd.date_range("1995-01-01", periods=90, freq="MS").strftime("%b-%y")},
            pd.date_range("1995-01-01", periods=90, freq="MS"),
        ),
    ],
)
def test_dates_of_other_programs(tmp_path, columns, dates):
    path = tmp_path / "table.csv"
    pd.DataFrame({**columns, "y": np.arange(90.0)}).to_csv(path, index=False)
    data = open_table(path)
    np.testing.assert_array_equal(data["time"].values, dates.values)
    assert list(data.data_vars) == ["y"]


def test_seconds_of_a_simulation_stay_numbers(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"time": SECONDS, "y": 1.0}).to_csv(path, index=False)
    assert open_table(path)["time"].dtype.kind == "f"


def test_columns_of_true_and_false_stay_such(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"time": DAYS, "y": np.arange(90) > 3}).to_csv(path, index=False)
    assert open_table(path)["y"].dtype == bool


def test_a_wanted_column_with_words_is_refused_and_a_note_is_not(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("time,y,flag\n1,2,0\n2,-,E\n3,4,0\n4,5,0\n")
    with pytest.raises(DataError, match="1 of 4 values are no numbers, the first is '-'"):
        open_fields(path, ["y"])
    path.write_text("time,y,flag\n1,2,0\n2,3,E\n3,4,0\n4,5,0\n")
    with open_fields(path, ["y"]) as data:
        assert data["y"].values.tolist() == [2.0, 3.0, 4.0, 5.0]


WEEKS = pd.date_range("2014-12-29", periods=120, freq="7D")
ISO = WEEKS.isocalendar()
HOURS = pd.date_range("2021-03-27", periods=72, freq="h")
PARTS = {
    "weeks as text": (WEEKS, {"time": [f"{t:%G-W%V}" for t in WEEKS]}),
    "YYYYWW": (WEEKS, {"time": ISO.year * 100 + ISO.week}),
    "year and week": (WEEKS, {"year": ISO.year, "week": ISO.week}),
    "weeks of MMWR": (
        pd.date_range("2014-12-28", periods=60, freq="7D"),
        {"time": [201453, *range(201501, 201553), *range(201601, 201608)]},
    ),
    "year and day": (HOURS[::24], {"year": [2021] * 3, "doy": [86, 87, 88]}),
    "quarters": (MONTHS[::3], {"time": [f"{t.year}-Q{t.quarter}" for t in MONTHS[::3]]}),
    "YYYY.MM": (MONTHS, {"time": [f"{t.year}.{t.month:02d}" for t in MONTHS]}),
    "date and time": (HOURS, {"date": HOURS.date, "time": HOURS.strftime("%H:%M")}),
    "date and hour": (HOURS, {"date": HOURS.date, "hour": HOURS.hour}),
    "hours that end at 24": (
        HOURS + pd.Timedelta(hours=1),
        {"date": HOURS.date, "hour": HOURS.hour + 1},
    ),
    "24:00": (
        HOURS + pd.Timedelta(hours=1),
        {"time": [f"{t.date()} {t.hour + 1:02d}:00" for t in HOURS]},
    ),
    "minutes in a column": (
        HOURS + pd.Timedelta(minutes=30),
        {n: getattr(HOURS, n) for n in ("year", "month", "day", "hour")} | {"minute": [30] * 72},
    ),
}


@pytest.mark.parametrize("form", PARTS)
def test_times_in_parts_are_their_dates(tmp_path, form):
    dates, columns = PARTS[form]
    path = tmp_path / "a.csv"
    pd.DataFrame({**{n: list(c) for n, c in columns.items()}, "u": np.arange(len(dates))}).to_csv(
        path, index=False
    )
    table = open_table(path)
    assert list(table.sizes) == ["time"], "no panel of the times of a day"
    np.testing.assert_array_equal(table["time"].values, dates.values)
    np.testing.assert_array_equal(table["u"].values, np.arange(len(dates)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,u\n00:00,1\n01:00,2\n", "times of day without a date"),
        ("time,u\nJan,1\nFeb,2\n", "dates without a year"),
        ("time,u\n,m\n2001-01-01,2\n", "a time is missing"),
        ("2001-01-01,1.5\n2001-01-02,2.5\n", "no header line"),
        ("date,u\n44197,1.5\n44198,2.5\n", "a spreadsheet counts"),
        ("time,u\n" + "".join(f"{d:%y%m%d},1\n" for d in MONTHS), "look like YYMMDD"),
        ("time,u\n5/5/65,1\n5/5/35,2\n5/5/99,3\n5/5/20,4\n", "no order that tells the century"),
        ("time;u\n2001-01-01;12.573\n2001-01-02;573\n", "may be thousands or decimals"),
    ],
)
def test_text_of_two_meanings_is_refused(tmp_path, text, said):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        open_table(path)


@pytest.mark.parametrize("form", ["%b-%y", "%d/%m/%y", "%d-%b-%y"])
@pytest.mark.parametrize("first", ["1931-01", "1965-01", "1998-06", "2005-01"])
@pytest.mark.parametrize("back", [False, True])
def test_years_of_two_digits_go_on_from_row_to_row(tmp_path, form, first, back):
    months = pd.date_range(f"{first}-01", periods=90, freq="MS")
    rows = [f"{m:{form}},{n}" for n, m in enumerate(months)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["time,u", *(reversed(rows) if back else rows)]))
    table = open_table(path)
    np.testing.assert_array_equal(table.time.values, months.values)
    assert table["u"].values.tolist() == list(range(90))


def test_whole_numbers_that_are_no_dates_stay_numbers(tmp_path):
    times = [10101, 10102, 10104, 10109, 10113, 10120, 10121]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["time,u", *(f"{t},1" for t in times)]))
    assert open_table(path).time.values.tolist() == times


@pytest.mark.parametrize("values", [("12.573", "0.5"), ("1.25", "573"), ("0.573", "1.500")])
def test_points_that_can_only_be_decimal(tmp_path, values):
    path = tmp_path / "a.csv"
    path.write_text("time;u\n2001-01-01;{}\n2001-01-02;{}\n".format(*values))
    assert open_table(path)["u"].values.tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    ("separator", "values", "expected"),
    [
        (",", ('"13,000.50"', "7.25"), (13000.5, 7.25)),
        (",", ('"1,013,000"', ""), (1013000, np.nan)),
        (",", ('"-13,5"', '"7,123"'), (-13.5, 7.123)),
        (",", ("13 000.5", "7"), (13000.5, 7)),
        (",", ("13'000", "7'000.25"), (13000, 7000.25)),
        (";", ("13.000,50", "7,123"), (13000.5, 7.123)),
        (";", ("13\u202f000,5", "7"), (13000.5, 7)),
        ("\t", ("13,0000", "7,2"), (13, 7.2)),
    ],
)
def test_numbers_as_spreadsheets_write_them(tmp_path, separator, values, expected):
    path = tmp_path / "a.csv"
    lines = ["time,u", *(f"2001-01-0{d},{v}" for d, v in enumerate(values, 1))]
    path.write_text("\n".join(s.replace(",", separator, 1) for s in lines), encoding="utf-8")
    np.testing.assert_array_equal(open_table(path)["u"].values, expected)


@pytest.mark.parametrize("values", [('"13,000"', '"7,123"'), ("13 00", "7"), ('"1,2,3"', "4")])
def test_numbers_that_may_be_others_are_refused(tmp_path, values):
    path = tmp_path / "a.csv"
    path.write_text("time,u\n2001-01-01,{}\n2001-01-02,{}\n".format(*values))
    with pytest.raises(DataError, match="no numbers"):
        open_table(path)


def test_encodings_and_ends_of_lines(tmp_path):
    path = tmp_path / "a.csv"
    for end, encoding in (("\r", "utf-8"), ("\r\n", "utf-8-sig"), ("\n", "utf-16")):
        path.write_bytes(
            f"# made{end}time,u{end}2001-01-01,1{end}2001-01-02,2{end}".encode(encoding)
        )
        assert open_table(path)["u"].values.tolist() == [1, 2]


def test_a_series_may_be_called_na(tmp_path):
    rows = "".join(
        f"{s},2001-01-0{d},{i + d}\n" for i, s in enumerate(("NA", "ZA")) for d in (2, 1)
    )
    path = tmp_path / "a.csv"
    path.write_text("country,time,u\n" + rows)
    table = open_table(path)
    assert table["label"].values.tolist() == ["NA", "ZA"]
    assert table["u"].values.tolist() == [[1, 2], [2, 3]]
    path.write_text("country,time,u\n" + rows.replace("NA", ""))
    with pytest.raises(DataError, match="without the name of its series"):
        open_table(path)


def test_series_named_by_numbers_are_a_panel(tmp_path):
    rows = "".join(f"{s},2001-01-0{d},{s + d}\n" for s in (1, 2) for d in (1, 2))
    path = tmp_path / "a.csv"
    path.write_text("unique_id,ds,y\n" + rows)
    assert open_table(path)["y"].values.tolist() == [[2, 3], [3, 4]]
