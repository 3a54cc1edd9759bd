from __future__ import annotations

from datetime import timedelta

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.calendar_steps import calendar_steps, months_as_days, times_after
from scitoolkit.io.facts import step_of
from scitoolkit.io.fields import open_fields
from scitoolkit.io.time_axis import read_time_axis


def month_parts(days, years=(1999, 2005), calendar=None):
    """Return dates at days of every month; 0 is the last day."""
    out = []
    for month in np.arange(f"{years[0]}-01", f"{years[1]}-01", dtype="M8[M]"):
        last = int(((month + 1).astype("M8[D]") - month.astype("M8[D]")).astype(int))
        out += [month.astype("M8[D]") + np.timedelta64((d or last) - 1, "D") for d in days]
    dates = np.array(out, "M8[ns]")
    if calendar is None:
        return dates
    made = [
        cftime.datetime(d.year, d.month, d.day, calendar=calendar)
        for d in dates.astype("M8[s]").tolist()
        if not (calendar == "noleap" and (d.month, d.day) == (2, 29))
    ]
    return np.array(made)


def periods(length, years=(1999, 2005), leap_day=True):
    out = []
    for year in range(*years):
        first = np.datetime64(f"{year}-01-01", "D")
        leap = year % 4 == 0
        for day in range(0, 365, length):
            late = leap and not leap_day and day >= 59
            out.append(first + np.timedelta64(day + int(late), "D"))
    return np.array(out, "M8[ns]")


EVEN = {
    "dekads": (month_parts([1, 11, 21]), "third of a month"),
    "dekads at their ends": (month_parts([10, 20, 0]), "third of a month"),
    "middles of dekads": (month_parts([5, 15, 25]), "third of a month"),
    "pentads": (month_parts([1, 6, 11, 16, 21, 26]), "sixth of a month"),
    "ends of pentads": (month_parts([5, 10, 15, 20, 25, 0]), "sixth of a month"),
    "half months": (month_parts([1, 16]), "half of a month"),
    "dekads of noleap": (month_parts([1, 11, 21], calendar="noleap"), "third of a month"),
    "5 days of a year": (periods(5, leap_day=False), "1/73 of a year"),
    "8 days of a year": (periods(8), "1/46 of a year"),
    "16 days of a year": (periods(16), "1/23 of a year"),
    "months": (month_parts([1]), "month"),
    "ends of months": (month_parts([0]), "month"),
}


@pytest.mark.parametrize("name", EVEN)
def test_steps_of_the_calendar_are_even_and_continue(name):
    times, unit = EVEN[name]
    steps = calendar_steps(times)
    assert steps.unit == unit == step_of(times).unit
    assert set(np.diff(steps.counts)) == {1}
    assert step_of(times).is_even
    field = xr.DataArray(np.zeros(len(times)), dims="time", coords={"time": times})
    assert read_time_axis(field).breakpoints == ()
    for end in (len(times) - 60, len(times) - 37, len(times) - 24):
        ahead = times_after(times[:end], 20)
        np.testing.assert_array_equal(ahead, times[end : end + 20])


@pytest.mark.parametrize("name", EVEN)
def test_a_missing_step_is_a_breakpoint_and_does_not_change_the_step(name):
    times, unit = EVEN[name]
    gap = np.delete(times, 7)
    assert (step_of(gap).number, step_of(gap).unit, step_of(gap).high) == (1.0, unit, 2.0)
    field = xr.DataArray(np.zeros(len(gap)), dims="time", coords={"time": gap})
    assert read_time_axis(field).breakpoint_indices == (7,)
    np.testing.assert_array_equal(times_after(gap[:-9], 9), times[-9:])


@pytest.mark.parametrize("days", [1, 5, 7, 8, 10, 15, 16, 30])
@pytest.mark.parametrize("dated", [True, False])
def test_equal_steps_in_days_stay_days(days, dated):
    if dated:
        times = np.datetime64("2001-01-01", "ns") + np.arange(200) * np.timedelta64(days, "D")
    else:
        first = cftime.datetime(2001, 1, 1, calendar="noleap")
        times = np.array([first + timedelta(days * k) for k in range(200)])
    assert step_of(times[:100]).unit == "s"
    assert step_of(times[:100]).number == days * 86400
    np.testing.assert_array_equal(times_after(times[:100], 50), times[100:150])


def test_numbers_continue_over_a_gap_with_their_step():
    assert times_after(np.array([0.0, 0.5, 1.0, 1.5, 4.0]), 2).tolist() == [4.5, 5.0]
    assert times_after(np.array([1, 2, 3]), 2).tolist() == [4, 5]


@pytest.mark.parametrize(
    ("calendar", "unit"), [("360", "months"), ("360", "days"), ("365", "days")]
)
def test_calendars_of_other_names_are_read(tmp_path, calendar, unit):
    attributes = {"units": f"{unit} since 1960-01-01", "calendar": calendar}
    step = 1.0 if unit == "months" else 30.0
    values = np.arange(24) * step + step / 2
    dataset = xr.Dataset(
        {"u": ("T", np.arange(24.0), {"_FillValue": 3.0})}, {"T": ("T", values, attributes)}
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with open_fields(tmp_path / "a.nc", "u") as opened:
        assert opened["T"].values[0].calendar == {"360": "360_day", "365": "noleap"}[calendar]
        assert opened["T"].values[0].day == 16
        assert np.isnan(opened["u"].values[3])


def monthly(path, times, units="months since 1960-01-01", calendar="standard", bounds=False):
    attributes = {"units": units, **({"calendar": calendar} if calendar else {})}
    values = np.random.default_rng(0).random((len(times), 4, 5), "f4")
    variables = {"t": (("time", "lat", "lon"), values, {"units": "K"})}
    if bounds:
        attributes["bounds"] = "time_bnds"
        floor = np.floor(times)
        variables["time_bnds"] = (("time", "edge"), np.stack([floor, floor + 1], 1))
    coords = {
        "time": ("time", times, attributes),
        "lat": ("lat", np.linspace(-10, 10, 4), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(5.0), {"units": "degrees_east"}),
    }
    xr.Dataset(variables, coords).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("calendar", ["standard", "", "gregorian", "noleap", "365", "julian"])
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_months_since_are_months_of_the_calendar(tmp_path, calendar, part):
    from scitoolkit import open_campaign

    times = np.arange(26.0) + part
    path = monthly(tmp_path / "a.nc", times, calendar=calendar, bounds=True)
    dates = open_fields(path)["time"].values
    assert calendar_steps(dates).unit == "month"
    assert calendar_steps(dates).step == 1
    first, last = (str(dates[i])[:10] for i in (0, -1))
    assert (first, last) == (
        ("1960-01-01", "1962-02-01") if part == 0 else ("1960-01-16", "1962-02-15")
    )
    bounds = open_fields(path)["time_bnds"].values
    assert str(bounds[1, 0])[:10] == "1960-02-01"
    assert str(bounds[1, 1])[:10] == "1960-03-01"
    series = open_campaign(path, ["t"]).dataset(0)["time"].values
    assert (series == dates).all()


@pytest.mark.parametrize(
    ("values", "units", "days"),
    [
        ([0, 1, 2], "months since 2001-01-01", [0, 31, 59]),
        ([-1, 0], "month since 2001-01-15 06:00", [-31, 0]),
        ([0, 1, 2], "Years since 2000-01-01", [0, 366, 731]),
        ([0, np.nan, 2], "months since 2001-01-01", [0, np.nan, 59]),
        ([0, 0.5], "years since 2001-01-01", [0, 181]),
        ([0.0, 1 + 1e-9, 2 - 1e-9], "months since 2001-01-01", [0, 31, 59]),
    ],
)
def test_months_and_years_as_days(values, units, days):
    out, attributes = months_as_days(np.array(values, float), {"units": units})
    np.testing.assert_allclose(out, days, atol=1e-6)
    assert attributes["units"] == "days since" + units.partition("since")[2]


@pytest.mark.parametrize(
    ("values", "units"),
    [
        ([0, 1.3, 2.6], "months since 2001-01-01"),
        ([0, 1, 2.5], "months since 2001-01-01"),
        ([0, 1], "months since 2001-01-31"),
        ([0, 1], "months since yesterday"),
    ],
)
def test_months_that_are_no_dates_are_refused(values, units):
    with pytest.raises(DataError, match=r"in\.nc"):
        months_as_days(np.array(values, float), {"units": units}, "in.nc")


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": "days since 2001-01-01"},
        {"units": "months"},
        {"units": "months since 2001-01-01", "calendar": "360_day"},
        {},
    ],
)
def test_other_units_are_left_as_they_are(attributes):
    values = np.array([0.0, 1.3])
    out, same = months_as_days(values, attributes)
    assert out is values
    assert same == attributes


def test_an_uneven_file_is_refused_by_name(tmp_path):

    path = monthly(tmp_path / "a.nc", np.arange(24) * 1.3)
    with pytest.raises(DataError, match=r"a\.nc: time.*same day of each month.*Fix: write"):
        open_fields(path)


@pytest.mark.parametrize("unit", ["ns", "s"])
@pytest.mark.parametrize("months", [1, 3, 12])
def test_records_longer_than_292_years_keep_their_calendar(unit, months):
    dates = (np.datetime64("1690-01") + np.arange(0, 4200, months)).astype(f"M8[{unit}]")
    known, ahead = dates[:-4], dates[-4:]
    assert (times_after(known, 4) == ahead).all()
    axis = read_time_axis(xr.DataArray(np.zeros(len(known)), dims="time", coords={"time": known}))
    assert axis.breakpoints == ()
    days = known.astype("M8[D]").astype(int)
    np.testing.assert_array_equal(axis.days, days - days[0])


@pytest.mark.parametrize("rule", ["B", "SMS", "SME"])
def test_weekdays_and_half_months_of_pandas_are_even(rule):
    times = pd.date_range("1999-11-01", periods=123, freq=rule).values
    counted = calendar_steps(times[:-3])
    assert counted is not None
    assert set(np.diff(counted.counts)) == {1}
    np.testing.assert_array_equal(times_after(times[:-3], 3), times[-3:])
