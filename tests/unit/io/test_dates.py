"""Dates that datetime64[ns] cannot hold are right, wherever they are read."""

from __future__ import annotations

import warnings

import cftime
import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.calendar_steps import months_as_days, times_after
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.dates import in_finest_unit, of_one_kind, seconds_since
from scitoolkit.io.fields import open_fields, write_fields
from scitoolkit.io.table import open_table
from scitoolkit.io.text_times import with_text_times
from scitoolkit.io.time_axis import decimal_years, read_time_axis


def _months(year):
    return (np.datetime64(f"{year:04}-01") + np.arange(6)).astype("M8[s]")


@pytest.mark.parametrize("year", [1000, 1500, 1980, 2400])
@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("date,v", "{0:04}-{1:02}-01,{1}"),
        ("year,month,v", "{0},{1},{1}"),
        ("year,month,day,hour,v", "{0},{1},1,0,{1}"),
        ("month,v", "{0:04}{1:02},{1}"),
        ("date,v", "{0:04}{1:02}01,{1}"),
        ("time,v", "{2:.4f},{1}"),
    ],
)
def test_tables_of_any_year(tmp_path, header, row, year):
    rows = [row.format(year, m, year + (m - 1) / 12) for m in range(1, 7)]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]) + "\n")
    table = open_table(tmp_path / "a.csv")
    # A comparison of two units casts to the finer one, which wraps around as well.
    assert (table.time.values.astype("M8[s]") == _months(year)).all()
    assert read_time_axis(table.v).breakpoints == ()


@pytest.mark.parametrize("first", [-30000, -2, 1, 850, 1674, 1980, 2260, 400000])
def test_a_column_of_years(tmp_path, first):
    years = np.arange(first, first + 6)
    (tmp_path / "a.csv").write_text("year,v\n" + "".join(f"{y},{y % 7}\n" for y in years))
    times = open_table(tmp_path / "a.csv").time.values
    assert (times.astype("M8[Y]").astype(int) + 1970).tolist() == years.tolist()
    assert decimal_years(times).tolist() == years.tolist()


@pytest.mark.parametrize("year", [1, 850, 1990, 2300])
def test_parts_of_dates_with_years_of_fewer_digits(tmp_path, year):
    rows = [f"{year},{m},28,6,{m}" for m in range(1, 7)]
    (tmp_path / "a.csv").write_text("\n".join(["year,month,day,hour,v", *rows]) + "\n")
    times = open_table(tmp_path / "a.csv").time.values
    assert (times.astype("M8[s]") == _months(year) + np.timedelta64(27 * 24 + 6, "h")).all()


@pytest.mark.parametrize("year", ["0850", "1990", "2300"])
def test_times_of_wrf(year):
    texts = np.array([f"{year}-01-0{d}_06:00:00".encode() for d in (1, 2)])
    dataset = xr.Dataset({"Times": ("Time", texts), "u": (("Time", "x"), np.zeros((2, 3)))})
    times = with_text_times(dataset).Time.values
    assert times.astype("M8[h]").astype(str).tolist() == [f"{year}-01-0{d}T06" for d in (1, 2)]


def _yearly(folder, years, calendar="standard"):
    for year in years:
        end = cftime.datetime(year + 1, 1, 1, calendar=calendar)
        unit = f"days since {year:04}-01-01"
        days = np.arange(float(cftime.date2num(end, unit, calendar)))
        values = np.random.default_rng(year).random((len(days), 2))
        times = ("time", days, {"units": unit, "calendar": calendar})
        xr.Dataset({"u": (("time", "x"), values)}, {"time": times}).to_netcdf(
            folder / f"part{year:04}.nc", engine="h5netcdf"
        )
    return folder


@pytest.mark.parametrize("years", [(1676, 1677, 1678, 1679), (2260, 2261, 2262, 2263)])
@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian", "noleap"])
def test_files_on_both_sides_of_the_range_are_one_simulation(tmp_path, years, calendar):
    campaign = open_campaign(_yearly(tmp_path, years, calendar), ["u"], CampaignOptions())
    assert campaign.index.num_simulations == 1
    with open_fields(str(tmp_path / "*.nc"), ["u"]) as joined:
        assert (joined.time.values == campaign.times.values).all()
    times = campaign.times.values
    assert (times[0].year, times[-1].year, times[-1].month) == (years[0], years[-1], 12)
    assert read_time_axis(xr.DataArray(times, dims="time", coords={"time": times})).step == 1.0


def test_files_of_more_than_292_years_are_one_simulation(tmp_path):
    for year in range(1690, 2001, 10):
        dates = np.arange(f"{year}-01", f"{year + 10}-01", dtype="M8[M]")[::12].astype("M8[D]")
        days = (dates - dates[0]).astype(float)
        times = ("time", days, {"units": f"days since {year}-01-01"})
        xr.Dataset(
            {"u": (("time", "x"), days[:, None] + np.arange(2.0))}, {"time": times}
        ).to_netcdf(tmp_path / f"part{year}.nc", engine="h5netcdf")
    assert open_campaign(tmp_path, ["u"], CampaignOptions()).index.num_simulations == 1


def test_one_time_of_two_kinds_is_one_instant():
    early = np.array([cftime.DatetimeGregorian(1677, 12, 1), cftime.DatetimeGregorian(1680, 1, 1)])
    late = np.array(["1680-01-01T00:00:00.25"], "M8[ns]")
    early, late = of_one_kind([early, late])
    assert seconds_since(late, early[1]).tolist() == [0.25]
    numbers = np.arange(3.0)
    assert of_one_kind([numbers, numbers])[1] is numbers
    noleap = np.array([cftime.DatetimeNoLeap(1600, 1, 1)])
    with pytest.raises(TypeError):  # of other days, which a caller refuses
        seconds_since(of_one_kind([np.array(["1700-01-01"], "M8[ns]"), noleap])[0], noleap[0])


def test_dates_are_as_fine_as_their_range_allows():
    for year, unit in (("1677-12-31", "ns"), ("1677-01-01", "us"), ("2263-01-01", "us")):
        dates = in_finest_unit(np.array([year, "NaT"], "M8[D]"))
        assert np.datetime_data(dates.dtype)[0] == unit
        assert dates.astype("M8[D]").astype(str).tolist() == [year, "NaT"]
    mixed = of_one_kind([np.array(["2000-01-01"], "M8[ns]"), np.array(["2300-01-01"], "M8[us]")])
    assert np.concatenate(mixed).astype("M8[Y]").astype(str).tolist() == ["2000", "2300"]


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("months", [1, 12])
def test_times_after_the_end_of_nanoseconds(unit, months):
    dates = (np.datetime64("2250-01") + np.arange(0, 240, months)).astype("M8[s]")
    inside = dates[dates < np.datetime64("2262-01-02")].astype(f"M8[{unit}]")
    ahead = times_after(inside, 6).astype("M8[s]")
    assert (ahead == dates[len(inside) : len(inside) + 6]).all()
    assert decimal_years(inside)[-1] == 2262.0


@pytest.mark.parametrize("make", [cftime.DatetimeGregorian, cftime.DatetimeNoLeap])
def test_months_continue_from_before_christ(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cftime warns of years that CF does not define
        times = np.array([make(-2, m, 1) for m in range(1, 13)])
        ahead = times_after(times, 14)
        years = decimal_years(np.concatenate([times, ahead]))
    last = ahead[-1]
    # The Gregorian calendar has no year 0.
    assert (last.year, last.month, last.day) == (1 if last.has_year_zero is False else 0, 2, 1)
    assert (np.diff(years) > 0.07).all()
    assert (np.diff(years) < 0.09).all()


def test_months_since_a_year_before_christ():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days, attributes = months_as_days(np.arange(30.0), {"units": "months since -0002-01-01"})
        last = cftime.num2date(days[-1], attributes["units"], "standard")
    assert (last.year, last.month, last.day) == (1, 6, 1)


@pytest.mark.parametrize("first", [-2000, -3, 850, 1998, 9998])
def test_dates_of_any_year_are_written(tmp_path, first):
    years = np.arange(first, first + 6)
    (tmp_path / "a.csv").write_text("year,v\n" + "".join(f"{y},{y % 7}\n" for y in years))
    write_fields(open_table(tmp_path / "a.csv"), tmp_path / "a.nc")
    with open_fields(tmp_path / "a.nc", ["v"]) as written:
        assert decimal_years(written.time.values).tolist() == years.tolist()


@pytest.mark.parametrize(
    ("header", "rows", "first"),
    [
        ("year,month,day,v", ["2001,2,28,1", "2001,2,30,2", "2001,3,1,3"], "2001-2-30"),
        ("year,month,day,v", ["2001,2,30,2", "2002,3,1,3"], "2001-2-30"),
        ("year,month,day,v", ["2001,2,27,1", "2001,2,28,2", "2001,2,29,3"], "2001-2-29"),
        ("year,month,v", ["2001,12,1", "2001,13,2"], "2001-13"),
        ("date,v", ["20010228,1", "20010229,2", "20010301,3"], "20010229"),
        ("month,v", ["200112,1", "200113,2", "200201,3"], "200113"),
        ("date,v", ["2001364,1", "2001365,2", "2001366,3"], "2001366"),
    ],
)
def test_days_that_do_not_exist_are_named_in_tables(tmp_path, header, rows, first):
    """They would be days of the next month, and so repeat the times of other rows."""
    path = tmp_path / "a.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(DataError, match=f"1 dates do not exist, the first is {first}"):
        open_table(path)


def test_other_columns_beside_years_are_values(tmp_path):
    (tmp_path / "a.csv").write_text("year,month,day,v\n2001,2,45,1\n2002,3,60,2\n2003,1,9,1\n")
    assert open_table(tmp_path / "a.csv")["day"].values.tolist() == [45, 60, 9]


@pytest.mark.parametrize("text", ["2001-02-30_00:00:00", "2001-02-29T06:00:00"])
@pytest.mark.parametrize("kind", ["S19", "characters"])
def test_texts_of_days_that_do_not_exist_are_named(tmp_path, text, kind):
    """Rows would be numbered instead of dated."""
    texts = np.array(["2001-02-28_00:00:00", text], "S19")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["Times"] = texts if kind == "S19" else texts.view("S1").reshape(2, 19)
        file["u"] = np.zeros((2, 3))
    with pytest.raises(DataError, match="1 times are dates that do not exist, the first is 2001"):
        open_campaign(tmp_path / "a.h5", ["u"])
