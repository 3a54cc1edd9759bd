"""An emulator meets its input file altered: equal numbers, or the difference by name."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import yaml

import scitoolkit
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.fields import open_fields


def field(seed: int, hours: float = 6) -> xr.Dataset:
    """Return a wave in K on (time, lat, x), with 6-hourly dates."""
    time = np.datetime64("2001-01-01", "s") + np.timedelta64(30 * seed, "D")
    time = time + (np.arange(16) * 3600 * hours).astype("timedelta64[s]")
    x, lat = np.arange(12) * 0.5, np.linspace(-35, 35, 8)
    phase = x + 0.3 * np.arange(16)[:, None, None] + seed
    values = 290 + np.sin(phase) * np.cos(np.deg2rad(lat))[:, None]
    return xr.Dataset(
        {"t": (("time", "lat", "x"), values.astype("f4"), {"units": "K"})},
        {
            "time": time.astype("datetime64[ns]"),
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "x": ("x", x, {"units": "m"}),
        },
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alterations")
    (folder / "runs").mkdir()
    for seed in range(5):
        field(seed).to_netcdf(folder / "runs" / f"run{seed}.nc", engine="h5netcdf")
    document = {
        "domain": "emulation",
        "data": {"path": str(folder / "runs"), "inputs": ["t"], "outputs": ["t"]},
        "model": {"name": "resnet", "width": 8, "blocks": 1},
        "training": {"steps": 6, "batch_size": 8},
        "rollout": {"long": 0},
        "run": {"root": str(folder / "out")},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return scitoolkit.run(str(folder / "job.yaml")).path


def job_on(folder, run, make, **changes) -> str:
    """Write a job like that of a run, on the files of a function of the seed."""
    (folder / "runs").mkdir()
    for seed in range(5):
        make(seed).to_netcdf(folder / "runs" / f"run{seed}.nc", engine="h5netcdf")
    document = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    document["data"]["path"] = str(folder / "runs")
    document["run"] = {"root": str(folder / "out")}
    (folder / "job.yaml").write_text(yaml.safe_dump({**document, **changes}), encoding="utf-8")
    return str(folder / "job.yaml")


def predicted(run, data: xr.Dataset, folder) -> xr.Dataset:
    data.to_netcdf(folder / "input.nc", engine="h5netcdf")
    scitoolkit.predict(run, folder / "input.nc", folder / "output.nc", steps=2)
    return open_fields(folder / "output.nc").load()


def with_time(data: xr.Dataset, values, **attrs) -> xr.Dataset:
    return data.assign_coords(time=("time", values, attrs))


def with_x(data: xr.Dataset, values, **attrs) -> xr.Dataset:
    return data.assign_coords(x=("x", values, attrs))


def in_unit(data: xr.Dataset, unit: str, factor: float, offset: float) -> xr.Dataset:
    return data.assign(t=(data.t * factor + offset).assign_attrs(units=unit))


def other_at(data: xr.Dataset, row: int) -> xr.Dataset:
    """Return the data with other values in one row."""
    values = data.t.values.copy()
    values[row] += 1.0
    return data.assign(t=(data.t.dims, values, data.t.attrs))


EQUAL = {
    "celsius": lambda d: in_unit(d, "degC", 1.0, -273.15),
    "kelvin in the attribute Units": lambda d: d.assign(t=d.t.drop_attrs().assign_attrs(Units="K")),
    "celsius in words": lambda d: in_unit(d, "degrees Celsius", 1.0, -273.15),
    "fahrenheit": lambda d: in_unit(d, "degF", 1.8, -459.67),
    "kelvin in words": lambda d: in_unit(d, "kelvin", 1.0, 0.0),
    "no unit": lambda d: in_unit(d, "", 1.0, 0.0),
    "float64": lambda d: d.astype("float64"),
    "dims in another order": lambda d: d.transpose("time", "x", "lat"),
    "latitudes from the north": lambda d: d.isel(lat=slice(None, None, -1)),
    "valid_time": lambda d: d.rename(time="valid_time"),
    "x in kilometres": lambda d: with_x(d, d.x.values / 1000, units="km"),
    "x without a unit": lambda d: with_x(d, d.x.values),
    "one more variable": lambda d: d.assign(other=d.t * 2),
    "one more scalar": lambda d: d.assign_coords(step=0),
    "a row twice": lambda d: d.isel(time=[0, 1, 2, 2, *range(3, 16)]),
}
REFUSED = {
    "metres": lambda d: in_unit(d, "m", 1.0, 0.0),
    "unknown unit": lambda d: in_unit(d, "furlong", 1.0, 0.0),
    "hourly": lambda d: field(9, hours=1).assign(t=d.t),
    "daily": lambda d: with_time(d, d.time.values[0] + np.arange(16) * np.timedelta64(1, "D")),
    "plain numbers": lambda d: with_time(d, np.arange(16.0)),
    "YYYYMM": lambda d: with_time(d, 200001 + np.arange(16) % 12 + 100 * (np.arange(16) // 12)),
    "360 days": lambda d: d.assign_coords(
        time=xr.date_range("2001-01-01", periods=16, freq="6h", calendar="360_day", use_cftime=True)
    ),
    "uneven steps": lambda d: with_time(
        d, d.time.values + (np.arange(16) % 3 * 3600).astype("timedelta64[s]")
    ),
    "missing times": lambda d: d.isel(time=[*range(7), *range(10, 16)]),
    "repeated time with other values": lambda d: other_at(d.isel(time=[0, 1, 2, 2, 3, 4, 5]), 3),
    "backwards": lambda d: d.isel(time=slice(None, None, -1)),
    "complex": lambda d: d.assign(t=d.t + 0j),
    "text": lambda d: d.assign(t=d.t.astype(str)),
    "renamed": lambda d: d.rename(t="temp"),
    "one dim less": lambda d: d.isel(lat=0),
    "the numbers of x in seconds": lambda d: with_x(d, d.x.values, units="s"),
    "the numbers of x in kilometres": lambda d: with_x(d, d.x.values, units="km"),
    "x not a number": lambda d: with_x(d, np.r_[d.x.values[:-1], np.nan], units="m"),
    "x infinite": lambda d: with_x(d, np.r_[d.x.values[:-1], np.inf], units="m"),
    "NaN": lambda d: d.assign(t=d.t.where(d.t.lat > 0)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_the_same_numbers(run, tmp_path, name):
    (tmp_path / "plain").mkdir()
    expected = predicted(run, field(9), tmp_path / "plain")
    actual = predicted(run, EQUAL[name](field(9)), tmp_path)
    time = next(d for d in actual.t.dims if d not in ("lat", "x"))
    aligned = actual.t.transpose(time, "lat", "x").sortby("lat").values
    wanted = expected.t.transpose("time", "lat", "x").values
    np.testing.assert_allclose(aligned, wanted, rtol=1e-6)
    assert actual.t.attrs["units"] == "K"
    np.testing.assert_array_equal(actual[time].values, expected.time.values)


@pytest.mark.parametrize("name", REFUSED)
def test_a_difference_is_named(run, tmp_path, name):
    with pytest.raises(ScitoolkitError) as error:
        predicted(run, REFUSED[name](field(9)), tmp_path)
    assert "input.nc" in str(error.value)
    assert not (tmp_path / "output.nc").exists()


@pytest.mark.parametrize("name", ["hourly", "metres", "complex"])
def test_evaluate_compares_as_predict_does(run, tmp_path, name):
    data = REFUSED[name](field(9))
    data.to_netcdf(tmp_path / "input.nc", engine="h5netcdf")
    with pytest.raises(ScitoolkitError):
        scitoolkit.evaluate(run, data=tmp_path / "input.nc")


def test_a_folder_without_facts_is_used_as_before(run, tmp_path):
    import shutil

    former = shutil.copytree(run, tmp_path / "former")
    (former / "model" / "facts.json").unlink()
    assert np.isfinite(predicted(former, field(9), tmp_path).t).all()


@pytest.mark.parametrize("times", [None, [f"frame {n}" for n in range(16)]])
def test_a_step_that_is_not_stated_is_told(run, tmp_path, times, caplog):
    data = field(9).drop_vars("time")
    data = data if times is None else data.assign_coords(time=times)
    assert np.isfinite(predicted(run, data, tmp_path).t).all()
    assert "no coordinate; trained on dates with a step of 6 hours" in caplog.text


def test_minutes_are_compared_with_hours(tmp_path, run):
    def numbered(seed, step, unit):
        return with_time(field(seed), step * np.arange(16.0), units=unit)

    hours = scitoolkit.run(job_on(tmp_path, run, lambda s: numbered(s, 6, "h"))).path
    expected = predicted(hours, numbered(9, 6, "h"), tmp_path)
    actual = predicted(hours, numbered(9, 360, "min"), tmp_path)
    np.testing.assert_array_equal(actual.t, expected.t)
    np.testing.assert_array_equal(actual.time, 60 * expected.time)
    for step, unit in ((1, "h"), (6, "min"), (6, "furlong")):
        with pytest.raises(ScitoolkitError, match="step of 6 h"):
            predicted(hours, numbered(9, step, unit), tmp_path)


def periodic(seed: int, points: int) -> xr.Dataset:
    """Return a wave of period 12 in x at `points` points that are 1 apart."""
    data = field(seed).isel(x=[0] * points)
    x = np.arange(float(points))
    phase = 2 * np.pi * x / 12 + 0.3 * np.arange(16)[:, None, None] + seed
    values = 290 + np.sin(phase) * np.cos(np.deg2rad(data.lat.values))[:, None]
    return with_x(data.assign(t=(data.t.dims, values.astype("f4"), {"units": "K"})), x, units="m")


@pytest.mark.parametrize("points", [12, 13])
def test_both_ends_of_a_period_are_refused(run, tmp_path, points):
    job = job_on(tmp_path, run, lambda s: periodic(s, points), boundary={"x": "circular"})
    if points == 12:
        assert scitoolkit.run(job).path.is_dir()
        return
    with pytest.raises(ScitoolkitError, match="dim x is circular, and its last cells equal"):
        scitoolkit.run(job)


def test_a_resumed_run_has_the_same_data(run, tmp_path):
    job = job_on(tmp_path, run, field)
    first = scitoolkit.train(job).path
    for seed in range(5):
        path = tmp_path / "runs" / f"run{seed}.nc"
        path.unlink()
        in_unit(field(seed), "degC", 1.0, -273.15).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ScitoolkitError, match="unit degC"):
        scitoolkit.train(job, resume=True, run_dir=first)


def test_a_resumed_run_has_the_same_rows_and_content(run, tmp_path):
    job = job_on(tmp_path, run, field)
    first = scitoolkit.train(job).path
    path = tmp_path / "runs" / "run3.nc"
    path.unlink()
    field(11).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ScitoolkitError, match=r"run3.nc has other content"):
        scitoolkit.train(job, resume=True, run_dir=first)
    field(3).isel(time=slice(None, -1)).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ScitoolkitError, match=r"simulation run3 has \d+ rows"):
        scitoolkit.train(job, resume=True, run_dir=first)


def test_windows_cross_no_missing_times(run, tmp_path):
    def with_gap(seed):
        return field(seed).isel(time=[*range(7), *range(10, 16)])

    job = job_on(tmp_path, run, with_gap)
    with pytest.raises(ScitoolkitError, match=r"data.gaps=split"):
        scitoolkit.train(job)
    trained = scitoolkit.run(job, overrides=["data.gaps=split"]).path
    assert (trained / "results.json").is_file()
    field(9).isel(time=[0, 1, 2, 6, 7, 8, 9]).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(ScitoolkitError, match="one stretch"):
        scitoolkit.predict(trained, tmp_path / "a.nc", tmp_path / "b.nc", steps=2)


UNKNOWN = {
    "celsius without a unit": (lambda d: in_unit(d, "", 1.0, -273.15), "without a unit"),
    **{
        f"{mark:g}": (lambda d, mark=mark: d.assign(t=d.t.where(d.t.lat < 30, mark)), "fill value")
        for mark in (-999.0, -9999.0, 1e20, 9.96921e36)
    },
    "-9999 in celsius": (
        lambda d: d.assign(t=(d.t - 273.15).where(d.t.lat < 30, -9999.0).assign_attrs(units="C")),
        "fill value",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_values_of_unknown_meaning_are_refused(run, tmp_path, name):
    change, text = UNKNOWN[name]
    data = change(field(9))
    data = data.assign(t=data.t.astype("f4", keep_attrs=True))
    with pytest.raises(ScitoolkitError, match=text) as error:
        predicted(run, data, tmp_path)
    assert "variable t" in str(error.value)
    with pytest.raises(ScitoolkitError, match=text):
        scitoolkit.evaluate(run, data=tmp_path / "input.nc")


def test_evaluate_refuses_a_mark_in_any_sample(run, tmp_path):
    data = field(9)
    data.t.values[11, 2, 3:5] = -9999.0
    data.to_netcdf(tmp_path / "input.nc", engine="h5netcdf")
    with pytest.raises(ScitoolkitError, match="2 values are -9999"):
        scitoolkit.evaluate(run, data=tmp_path / "input.nc")


FAR = {
    "zeros": lambda d: d.assign(t=(0 * d.t).assign_attrs(units="K")),
}


@pytest.mark.parametrize("name", FAR)
def test_values_far_from_the_training_are_told(run, tmp_path, name, caplog):
    data = FAR[name](field(9))
    data = data.assign(t=data.t.astype("f4", keep_attrs=True))
    predicted(run, data, tmp_path)
    assert "input.nc: variable t: a mean of" in caplog.text
    assert "standard deviations from the training" in caplog.text
    caplog.clear()
    scitoolkit.evaluate(run, data=tmp_path / "input.nc")
    assert "standard deviations from the training" in caplog.text


@pytest.mark.parametrize("name", ["same", "celsius", "fahrenheit", "no unit"])
def test_values_like_those_of_the_training_are_not_told(run, tmp_path, name, caplog):
    predicted(run, {"same": lambda d: d, **EQUAL}[name](field(9)), tmp_path)
    assert "standard deviations" not in caplog.text


def test_a_single_sample_is_followed_by_the_step_of_the_training(run, tmp_path):
    expected = predicted(run, field(9).isel(time=slice(-2, None)), tmp_path)
    actual = predicted(run, field(9).isel(time=[-1]), tmp_path)
    np.testing.assert_array_equal(actual.time, expected.time)
    np.testing.assert_array_equal(actual.t, expected.t)
    noleap = xr.date_range("2001-01-01", periods=1, calendar="noleap", use_cftime=True)
    actual = predicted(run, field(9).isel(time=[-1]).assign_coords(time=noleap), tmp_path)
    assert [str(t) for t in actual.time.values] == ["2001-01-01 06:00:00", "2001-01-01 12:00:00"]


def test_a_single_sample_of_months_states_no_step(run, tmp_path):
    def monthly(seed):
        months = np.datetime64(f"{2000 + 2 * seed}-01") + np.arange(16) * np.timedelta64(1, "M")
        return with_time(field(seed), months.astype("M8[ns]"))

    months = scitoolkit.run(job_on(tmp_path, run, monthly)).path
    with pytest.raises(ScitoolkitError, match=r"one sample states no step"):
        predicted(months, monthly(9).isel(time=[-1]), tmp_path)


@pytest.mark.parametrize(("unit", "number"), [("h", 6.0), ("min", 360.0), ("", 6.0)])
def test_a_single_numbered_sample(run, tmp_path, unit, number):
    hours = scitoolkit.run(
        job_on(tmp_path, run, lambda s: with_time(field(s), 6 * np.arange(16.0), units="h"))
    ).path
    data = with_time(field(9).isel(time=[-1]), np.array([90.0 * number / 6]), units=unit)
    actual = predicted(hours, data, tmp_path)
    np.testing.assert_allclose(actual.time, [96 * number / 6, 102 * number / 6])


def test_a_grid_from_elsewhere_is_told_by_its_start(run, tmp_path, caplog):
    predicted(run, field(9).assign_coords(lat=("lat", field(9).lat.values + 10, {})), tmp_path)
    assert "lat: 8 cells for 8, 10 wide for 10, from -25 on for -35" in caplog.text


def on_circle(data: xr.Dataset) -> xr.Dataset:
    """Return the data with x as longitudes of a whole circle."""
    lon = ("lon", np.arange(12) * 30.0, {"units": "degrees_east"})
    return data.rename(x="lon").assign_coords(lon=lon)


def test_longitudes_from_another_meridian_are_the_same_grid(run, tmp_path, caplog):
    def make(seed):
        return on_circle(field(seed))

    boundary = {"lon": "circular", "lat": "edge"}
    emulator = scitoolkit.run(job_on(tmp_path, run, make, boundary=boundary)).path
    expected = predicted(emulator, make(9), tmp_path)
    caplog.clear()
    turned = make(9).assign_coords(lon=make(9).lon.values + 360)
    actual = predicted(emulator, turned, tmp_path)
    np.testing.assert_array_equal(actual.t, expected.t)
    np.testing.assert_array_equal(actual.lon, expected.lon + 360)
    rolled = make(9).roll(lon=6, roll_coords=True)
    rolled = rolled.assign_coords(lon=(rolled.lon + 180) % 360 - 180)
    actual = predicted(emulator, rolled, tmp_path)
    assert actual.lon.values[0] == -180
    np.testing.assert_allclose(actual.t, expected.t.roll(lon=6), atol=1e-4)
    assert "the grid differs" not in caplog.text
    shifted = make(9).assign_coords(lon=make(9).lon.values + 15)
    predicted(emulator, shifted, tmp_path)
    assert "the grid differs" in caplog.text


def test_a_circle_with_edges_is_not_read_from_another_meridian(run, tmp_path):
    def make(seed):
        return on_circle(field(seed))

    job = job_on(tmp_path, run, make, boundary={"lon": "edge", "lat": "edge"})
    emulator = scitoolkit.run(job).path
    rolled = make(9).roll(lon=6, roll_coords=True)
    rolled = rolled.assign_coords(lon=(rolled.lon + 180) % 360 - 180)
    fix = r"assign_coords\(lon=\(ds\.lon - 0\) % 360 \+ 0\)\.sortby\('lon'\)"
    with pytest.raises(ScitoolkitError, match="the same circle from another meridian.*" + fix):
        predicted(emulator, rolled, tmp_path)
    expected = predicted(emulator, make(9), tmp_path)
    back = predicted(emulator, rolled.assign_coords(lon=rolled.lon % 360).sortby("lon"), tmp_path)
    np.testing.assert_array_equal(back.t, expected.t)


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"standard_name": "sea_surface_wave_to_direction"}, "359 and 1 degrees"),
        ({"flag_meanings": "sea ice"}, "codes of classes"),
    ],
)
def test_numbers_that_are_no_quantity_are_told(run, tmp_path, attrs, told):
    def make(seed):
        data = field(seed)
        return data.assign(t=data.t.assign_attrs(attrs))

    _, findings = scitoolkit.validate(job_on(tmp_path, run, make))
    levels = [f.level for f in findings if told in f.message and f.key == "data.outputs, t"]
    assert levels == ["warning"]
