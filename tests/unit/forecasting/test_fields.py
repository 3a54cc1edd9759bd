"""Several variables, bounds, transforms and drivers, from a file to what `predict` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.config import ForecastingConfig, LSTMConfig
from scitoolkit.forecasting.fields import open_field, open_split
from scitoolkit.forecasting.fitting import begin_network, prepare
from scitoolkit.forecasting.job import ForecastingJob

STEPS = 200


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A wave in a warm field and a small one, rain that is never negative, a forcing."""
    rng = np.random.default_rng(0)
    t, x = np.arange(STEPS)[:, None], np.linspace(0, 2 * np.pi, 16, endpoint=False)
    wave = np.sin(x - 0.4 * t)
    forcing = np.cumsum(rng.normal(size=STEPS))
    noise = 0.05 * rng.normal(size=(4, STEPS, 16))
    fields = {
        "warm": (300 + 5 * wave + noise[0], "K"),
        "small": (1e-3 * (np.cos(x - 0.4 * t) + noise[1]), "kg kg-1"),
        "rain": (np.maximum(0, wave + noise[2] - 0.3) ** 2, "mm/day"),
        "forced": (wave + 2 * forcing[:, None] * np.cos(x) + noise[3], "m"),
    }
    made = xr.Dataset(
        {k: (("time", "x"), v, {"units": unit}) for k, (v, unit) in fields.items()}
        | {"index": ("time", forcing)},
        coords={
            "time": np.datetime64("2000-01-01", "ns") + np.arange(STEPS) * np.timedelta64(1, "D")
        },
    )
    path = tmp_path_factory.mktemp("fields") / "made.nc"
    made.to_netcdf(path, engine="h5netcdf")
    return path


def config(path, forecaster="pod_ridge", **data):
    return ForecastingConfig(
        data={"path": path, **data},
        forecaster=forecaster,
        model={"name": "none"},
        harmonics=[0],
        split={"train": 0.625, "validation": 0.125, "test": 0.25},
        pod={"rank": 4},
    )


def job_on(folder, settings):
    run, job = RunDirectory.create(folder, "test", settings), ForecastingJob()
    job.train(settings, run)
    return job, run, job.evaluate(run.path)


def forecast(job, run, path, out):
    job.predict(run.path, path, out)
    with xr.open_dataset(out, engine="h5netcdf") as dataset:
        return dataset.load()


def test_times_that_are_numbers_keep_their_unit_and_values_their_method(file, tmp_path):
    seconds = ("time", 0.5 * np.arange(STEPS), {"units": "s"})
    with xr.open_dataset(file, engine="h5netcdf") as dataset:
        dataset["warm"].attrs["cell_methods"] = "time: mean (interval: 1 s)"
        dataset.assign_coords(time=seconds).to_netcdf(tmp_path / "s.nc", engine="h5netcdf")
    job, run, _ = job_on(tmp_path, config(tmp_path / "s.nc", variable="warm"))
    job.predict(run.path, tmp_path / "s.nc", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf", decode_times=False) as out:
        assert out.valid_time.attrs["units"] == "s"
        assert out.valid_time.values[0] == 0.5 * STEPS
        assert {out[name].attrs["cell_methods"] for name in ("warm", "warm_low")} == {"time: mean"}


def test_several_variables_share_a_forecast_and_keep_their_units(file, tmp_path):
    job, run, results = job_on(tmp_path, config(file, variables=["warm", "small"]))
    assert results.metrics["rmse"] < 0.15  # of a deviation
    table = next(t for t in results.tables if "each variable" in t.title)
    assert table.columns == ["forecast", "warm [K]", "small [kg kg-1]"]
    own = next(row for row in table.rows if row[0] == "surrogate")
    assert own[1] < 0.5
    assert own[2] < 1e-4
    out = forecast(job, run, file, tmp_path / "out.nc")
    assert out.warm.attrs["units"] == "K"
    assert out.warm.dims == ("lead", "x")
    assert abs(float(out.warm.mean()) - 300) < 1
    assert float(abs(out.small).max()) < 2e-3
    assert bool((out.small_low < out.small_high).all())


@pytest.mark.parametrize("transform", ["none", "sqrt", "log1p"])
def test_a_bounded_field_stays_inside_its_bounds(file, tmp_path, transform):
    settings = config(file, variable="rain", minimum=0.0, transform=transform)
    job, run, results = job_on(tmp_path, settings)
    assert results.units["rmse"] == "mm/day"
    assert results.metrics["rmse"] < 0.15
    assert 0.85 < results.metrics["coverage90"] <= 1
    out = forecast(job, run, file, tmp_path / "out.nc")
    assert float(out.rain_low.min()) >= 0
    assert float(out.rain.max()) > 0.1


def test_a_forcing_known_in_advance_lowers_the_error(file, tmp_path):
    drivers = [{"variable": "index"}]
    without = job_on(tmp_path / "a", config(file, variable="forced"))[2]
    job, run, results = job_on(tmp_path / "b", config(file, variable="forced", drivers=drivers))
    assert results.metrics["rmse"] < 0.2 * without.metrics["rmse"]
    with pytest.raises(
        DataError, match=r"driver index: no value near 2000-07-19.*covers the field"
    ):
        job.predict(run.path, file, tmp_path / "out.nc")
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        whole.drop_vars("index").isel(time=slice(None, 150)).to_netcdf(tmp_path / "part.nc")
        whole[["index"]].to_netcdf(tmp_path / "index.nc")
        truth = whole.forced[150:158].values
    given = config(
        file, variable="forced", drivers=[{"variable": "index", "path": tmp_path / "index.nc"}]
    )
    job, run, _ = job_on(tmp_path / "c", given)
    out = forecast(job, run, tmp_path / "part.nc", tmp_path / "out.nc")
    assert float(np.sqrt(((out.forced.values - truth) ** 2).mean())) < 0.2


def test_a_driver_without_a_unit_is_that_of_the_training_or_refused(file, tmp_path):
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        index = (300 + whole["index"].load()).assign_attrs(units="K")
    for name, unit, shift in (("index", "K", 0), ("same", "", 0), ("celsius", "", -273.15)):
        (index + shift).assign_attrs(units=unit).to_netcdf(tmp_path / f"{name}.nc")
    drivers = [{"variable": "index", "path": tmp_path / "index.nc"}]
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        whole.drop_vars("index").isel(time=slice(None, 150)).to_netcdf(tmp_path / "part.nc")
    job, run, _ = job_on(tmp_path / "a", config(file, variable="forced", drivers=drivers))
    known = forecast(job, run, tmp_path / "part.nc", tmp_path / "out.nc")
    (tmp_path / "same.nc").rename(tmp_path / "index.nc")
    out = forecast(job, run, tmp_path / "part.nc", tmp_path / "out.nc")
    np.testing.assert_array_equal(out.forced, known.forced)
    (tmp_path / "celsius.nc").rename(tmp_path / "index.nc")
    with pytest.raises(DataError, match=r"variable driver index: values from .* without a unit"):
        job.predict(run.path, tmp_path / "part.nc", tmp_path / "out.nc")


@pytest.mark.parametrize(("every", "told"), [(1, False), (5, True)])
def test_a_driver_with_longer_steps_is_told(file, tmp_path, caplog, every, told):
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        whole[["index"]].isel(time=slice(None, None, every)).to_netcdf(tmp_path / "index.nc")
        whole.isel(time=slice(None, STEPS - 4)).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    drivers = [{"variable": "index", "path": tmp_path / "index.nc"}]
    open_field(config(tmp_path / "a.nc", variable="forced", drivers=drivers))
    assert ("each value is taken for 5 steps of the field" in caplog.text) == told


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"standard_name": "wind_from_direction"}, "359 and 1 degrees"),
        ({"flag_values": [0, 1]}, "codes of classes"),
        ({"standard_name": "wind_speed"}, ""),
    ],
)
def test_numbers_that_are_no_quantity_are_told(file, tmp_path, caplog, attrs, told):
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        whole["warm"].attrs.update(attrs)
        whole.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    open_field(config(tmp_path / "a.nc", variable="warm"))
    assert ("variable warm: " in caplog.text) == bool(told)
    assert told in caplog.text


def test_a_driver_without_skill_is_left_out(file, tmp_path, caplog):
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        noise = np.random.default_rng(1).normal(size=STEPS)
        whole.assign(index=("time", np.linspace(0, 1, STEPS) + 1e-3 * noise)).to_netcdf(
            tmp_path / "drift.nc"
        )
    settings = config(tmp_path / "drift.nc", variable="warm", drivers=[{"variable": "index"}])
    job_on(tmp_path / "run", settings)
    assert "index: no skill on held-out blocks" in caplog.text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "set either variable"),
        ({"variables": ["warm"]}, "two or more different names"),
        ({"variable": "warm", "minimum": {"rain": 0.0}}, "minimum.rain: no such variable"),
        ({"variable": "warm", "transform": "cube"}, "transform"),
    ],
)
def test_settings_that_contradict_are_refused(file, data, said):
    with pytest.raises((ConfigError, ValueError), match=said):
        config(file, **data)


def test_values_beyond_the_bounds_are_refused(file, tmp_path):
    with pytest.raises(DataError, match=r"variable small: values from .* Allowed: 0 to inf"):
        job_on(tmp_path, config(file, variable="small", minimum=0.0))


def changed(file, folder, change):
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        field = whole.warm.load()
    change(field)
    field.encoding = {}
    field.to_dataset().to_netcdf(folder / "changed.nc", engine="h5netcdf")
    return config(folder / "changed.nc", variable="warm")


@pytest.mark.parametrize("fill", [-9999.0, 1e20, 9.969209968386869e36])
@pytest.mark.parametrize("rows", [slice(None), slice(7, 8)])
def test_fill_values_that_no_one_flagged_are_refused(file, tmp_path, fill, rows):
    def land(field):
        field[rows, :3] = fill

    with pytest.raises(DataError, match=r"3 of 16 cells contain .* unflagged fill value"):
        job_on(tmp_path, changed(file, tmp_path, land))


def test_fill_values_of_a_variable_are_seen_beside_larger_ones_of_another(file, tmp_path):
    """-9999 is far outside water vapour, but not far outside pressures."""
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        fields = whole[["warm", "small"]].load()
    fields["warm"] = 300 * fields["warm"]
    fields["small"][4:6, :2] = -9999.0
    fields.drop_encoding().to_netcdf(tmp_path / "fill.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"variable small: 2 of 16 cells contain -9999"):
        job_on(tmp_path, config(tmp_path / "fill.nc", variables=["warm", "small"]))


def test_constant_cells_are_told(file, tmp_path):
    def land(field):
        field[:, :3] = 12.0

    _, _, results = job_on(tmp_path, changed(file, tmp_path, land))
    assert "3 of 16 cells are constant" in " ".join(results.summary)


def test_irregular_steps_are_named_as_the_cause(file, tmp_path):
    days = np.arange(STEPS) * 1.0 + np.random.default_rng(0).uniform(-0.3, 0.3, STEPS)
    with xr.open_dataset(file, engine="h5netcdf") as whole:
        moved = np.datetime64("2000-01-01", "ns") + (days * 86400e9).astype("timedelta64[ns]")
        whole[["warm"]].assign_coords(time=moved).to_netcdf(tmp_path / "jitter.nc")
    with pytest.raises(DataError, match=r"of 199 time steps are uneven \(0\.\d+ to 1\.\d+ days"):
        job_on(tmp_path, config(tmp_path / "jitter.nc", variable="warm"))


def test_shipped_data_give_no_warning():
    ersst = next((Path(__file__).parents[3] / "datasets" / "ersst_v5").glob("*.nc"))
    assert open_field(config(ersst, variable="sst")).warnings == ()


def test_adaptive_intervals_follow_errors_that_grow_and_predict_writes_them(tmp_path):
    rng = np.random.default_rng(0)
    t, x = np.arange(400)[:, None], np.linspace(0, 2 * np.pi, 16, endpoint=False)
    noise = np.where(t < 300, 0.1, 0.3) * rng.normal(size=(400, 16))
    days = np.datetime64("2000-01-01", "ns") + np.arange(400) * np.timedelta64(1, "D")
    path = tmp_path / "louder.nc"
    field = xr.DataArray(np.sin(x - 0.4 * t) + noise, dims=("time", "x"), coords={"time": days})
    field.to_dataset(name="u").to_netcdf(path, engine="h5netcdf")
    fixed = config(path, variable="u")
    width, coverage = {}, {}
    for kind in ("static", "adaptive"):
        settings = fixed.model_copy(update={"intervals": kind})
        job, run, results = job_on(tmp_path / kind, settings)
        out = forecast(job, run, path, tmp_path / f"{kind}.nc")
        width[kind] = float((out.u_high - out.u_low).mean())
        coverage[kind] = results.metrics["coverage90"]
    assert coverage["static"] < 0.6
    assert coverage["adaptive"] > 0.75
    assert 2 < width["adaptive"] / width["static"] < 4


@pytest.mark.parametrize(
    ("model", "base"),
    [("increment_lstm", "persistence"), ("pod_lstm", "climatology")],
)
def test_what_the_network_predicts_is_a_setting(file, model, base):
    settings = config(file, variable="warm", forecaster="auto").model_copy(
        update={"model": LSTMConfig(name=model)}
    )
    field, parts = open_split(settings)
    found = prepare(field, parts, settings)
    assert found.selection.winner.config.name == base
    windows = parts.windows["train"]
    predicted = begin_network(found, settings).base.predict(windows)
    last = windows.lagged(0)[:, None]
    assert np.allclose(predicted - predicted[:, :1], 0, atol=1e-6)  # one level at all leads
    assert np.allclose(predicted, last, atol=1e-6) == (model == "increment_lstm")
