"""Facts of files, by CF metadata first, and conversions that `compare` found."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.data_differences import Accepts, compare, problems
from scitoolkit.io.facts import convert, of_dataset


def fields(**changes) -> xr.Dataset:
    lat, lon = np.arange(-40.0, 41, 10), np.arange(0.0, 360, 10)
    time = np.datetime64("2000-01-01") + np.arange(24) * np.timedelta64(6, "h")
    values = 280 + np.random.default_rng(0).random((24, 9, 36), np.float32)
    return xr.Dataset(
        {"t": (("time", "lat", "lon"), values, {"units": "K"})},
        {
            "time": time.astype("datetime64[ns]"),
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
        },
    )


TRAINED = of_dataset(fields(), ["t"])


def test_roles_and_steps():
    assert [d.role for d in TRAINED.dims] == ["time", "latitude", "longitude"]
    assert str(TRAINED.dim("time").step) == "6 hours"
    assert TRAINED.dim("longitude").period == 360.0
    assert TRAINED.dim("latitude").period is None


@pytest.mark.parametrize("name", ["valid_time", "time_counter", "ocean_time", "XTIME", "n", "x"])
def test_dates_are_the_time_whatever_their_name(name):
    renamed = of_dataset(fields().rename(time=name), ["t"])
    assert renamed.dim("time").name == name
    assert compare(TRAINED, renamed) == []


ALTERATIONS = {
    "celsius": lambda ds: ds.assign(t=(ds.t - 273.15).assign_attrs(units="degC")),
    "latitudes from the north": lambda ds: ds.isel(lat=slice(None, None, -1)),
    "longitudes from -180": lambda ds: ds.assign_coords(
        lon=("lon", (ds.lon.values + 180) % 360 - 180, ds.lon.attrs)
    ).sortby("lon"),
    "order of dims": lambda ds: ds.transpose("lon", "time", "lat"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conversion_gives_the_values_of_the_training(name, dtype):
    data = fields().astype(dtype)
    altered = ALTERATIONS[name](data)
    differences = compare(TRAINED, of_dataset(altered, ["t"]))
    assert [d.level for d in differences] == ["convert"], [str(d) for d in differences]
    restored = convert(altered, differences)
    np.testing.assert_allclose(restored.t.values, data.t.values, rtol=1e-6)
    assert restored.t.attrs["units"] == "K"


def test_both_ends_of_a_period_are_a_problem():
    data = fields()
    closed = xr.concat([data, data.isel(lon=[0]).assign_coords(lon=[360.0])], "lon")
    closed["lon"].attrs.update(units="degrees_east")
    assert [d.key for d in problems(of_dataset(closed, ["t"]))] == ["dim lon"]


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard", "julian"])
def test_steps_of_every_calendar(calendar):
    times = xr.date_range("2000-01-01", periods=24, freq="6h", calendar=calendar, use_cftime=True)
    data = fields().assign_coords(time=times)
    step = of_dataset(data, ["t"]).dim("time").step
    assert (step.number, step.unit) == (21600.0, "s")


def test_dekads_are_even():
    days = [f"2000-{m:02d}-{d:02d}" for m in range(1, 9) for d in (1, 11, 21)]
    data = fields().assign_coords(time=np.array(days, "datetime64[ns]"))
    assert str(of_dataset(data, ["t"]).dim("time").step) == "1 third of a month"


def test_uneven_coordinates_are_the_same_in_other_precision():
    levels = np.array([1000.0, 850, 700, 500, 300, 200, 100, 50, 10])
    data = [fields().assign_coords(lat=levels.astype(kind)) for kind in ("float64", "float32")]
    first, second = (of_dataset(d.drop_attrs(), ["t"]) for d in data)
    assert compare(first, second) == []
    levels[2] += 40
    moved = of_dataset(data[0].assign_coords(lat=levels).drop_attrs(), ["t"])
    assert [d.level for d in compare(first, moved)] == ["error"]


def test_elapsed_times_are_numbers_in_seconds():
    hours, minutes = (np.arange(24) * np.timedelta64(n, "m").astype("m8[ns]") for n in (360, 60))
    elapsed = of_dataset(fields().assign_coords(time=hours), ["t"])
    assert str(elapsed.dim("time").step) == "6 hours"
    differences = compare(elapsed, of_dataset(fields().assign_coords(time=minutes), ["t"]))
    assert [d.level for d in differences] == ["error"]


@pytest.mark.parametrize("dim", ["time", "lat", "lon"])
@pytest.mark.parametrize("place", [0, 3, -1])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_coordinate_that_is_not_finite_is_a_problem(dim, place, value):
    data = fields()
    values = np.arange(float(data.sizes[dim]))
    values[place] = value
    facts = of_dataset(data.assign_coords({dim: (dim, values, data[dim].attrs)}), ["t"])
    assert [d.key.split()[-1] for d in problems(facts)] == [dim]


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_missing_date_is_a_problem(place):
    times = fields().time.values.copy()
    times[place] = np.datetime64("NaT")
    assert len(problems(of_dataset(fields().assign_coords(time=times), ["t"]))) == 1


@pytest.mark.parametrize(("trained", "found"), [("down", "up"), ("up", "down"), ("Down", "UP")])
def test_heights_are_no_depths(trained, found):
    def levels(positive):
        lev = (
            "lev",
            [1.0, 2.0, 4.0],
            {"units": "m", **({"positive": positive} if positive else {})},
        )
        return of_dataset(xr.Dataset({"t": (("lev",), np.zeros(3))}, {"lev": lev}), ["t"])

    errors = [d for d in compare(levels(trained), levels(found)) if d.level == "error"]
    assert [d.key for d in errors] == ["dim lev"]
    assert compare(levels(trained), levels(trained.upper())) == []
    assert {d.level for d in compare(levels(trained), levels(""))} == {"note"}
    stored = levels(trained)
    assert type(stored).from_json(stored.to_json()) == stored


@pytest.mark.parametrize("dim", ["lev", "plev", "depth"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_another_level_is_another_field(dim, dtype):
    def level(value, units="hPa"):
        position = (dim, np.array([value], dtype), {"units": units, "axis": "Z"})
        values = (("t", dim), np.zeros((3, 1)))
        return of_dataset(xr.Dataset({"u": values}, {dim: position, "t": [0, 1, 2]}), ["u"])

    for grid in ("same", "any"):
        accepts = Accepts(grid=grid)
        assert compare(level(500), level(500), accepts) == []
        assert compare(level(500), level(50000, "Pa"), accepts) == []
        for other in (level(850), level(500, "Pa"), level(0)):
            assert compare(level(500), other, accepts)[0].level == "error"
