from __future__ import annotations

import json
from pathlib import Path

import cftime
import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import read_field, split_field
from scitoolkit.forecasting.job import ForecastingJob
from scitoolkit.forecasting.surrogate import ForecastSurrogate
from scitoolkit.io.calendar_steps import times_after
from scitoolkit.io.coordinates import time_dim

DATA = next((Path(__file__).parents[3] / "datasets" / "ersst_v5").glob("*.nc"))


@pytest.fixture(scope="module")
def sst():
    with xr.open_dataset(DATA, engine="h5netcdf") as dataset:
        field = dataset.sst.isel(lat=slice(1, None, 8), lon=slice(None, None, 8)).load()
    field.encoding = {}
    return field


def config(path, variable="sst", *, training=None, **more):
    model = more.get("model", {}).get("name", "auto")
    if model in ("auto", "none"):  # one family: the choice among all is tested below
        more = {"forecaster": {"name": "damped_anomaly_memory", "folds": 1}, **more}
    if model != "none":
        more["training"] = training or {"epochs": 2, "batch_size": 16, "progress": False}
    return ForecastingConfig(
        data={"path": path, "variable": variable},
        split={"train": 0.625, "validation": 0.125, "test": 0.25},
        ensemble=1,
        **more,
    )


def run_job(tmp_path, field, name="sst", **more):
    path = tmp_path / "field.nc"
    field.rename(name).to_dataset().to_netcdf(path, engine="h5netcdf")
    settings = config(path, name, **more)
    run = RunDirectory.create(tmp_path / "runs", "test", settings)
    job = ForecastingJob()
    job.train(settings, run)
    return job, run, path, job.evaluate(run.path)


def test_from_file_to_forecast(tmp_path, sst):
    job, run, path, results = run_job(tmp_path, sst)
    assert results.units["rmse"] == "degC"
    assert results.metrics["rmse"] < 0.7
    assert results.metrics["test_windows"] == 25
    job.predict(run.path, path, tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as out:
        assert out.sst.attrs["units"] == "degC"
        assert time_dim(out.sst) == "lead"
        assert str(out.valid_time.values[0])[:10] == "2020-09-01"
        assert bool((out.sst_low <= out.sst_high).where(out.sst.notnull(), True).all())
        assert int(out.sst[0].notnull().sum()) == int(sst.notnull().all("time").sum())
    # The same file given as another one: the windows after the training are the test part.
    other = job.evaluate(run.path, path)
    assert other.metrics["rmse"] == pytest.approx(results.metrics["rmse"])


def test_a_file_that_changed_since_the_training_is_scored_after_it(tmp_path, sst, caplog):
    job, run, path, results = run_job(tmp_path, sst)
    steps, last = sst.sizes["time"], results.metrics["test_windows"]
    for rows in (slice(0, -4), slice(10, None)):
        path.unlink()
        sst.isel(time=rows).rename("sst").to_dataset().to_netcdf(path, engine="h5netcdf")
        caplog.clear()
        again = job.evaluate(run.path)
        assert "has changed since the training" in caplog.text
        assert again.metrics["test_windows"] == last - (4 if rows.stop else 0)
    path.unlink()
    sst.isel(time=slice(0, steps * 3 // 4)).rename("sst").to_dataset().to_netcdf(
        path, engine="h5netcdf"
    )
    with pytest.raises(DataError, match="no window after the training data"):
        job.evaluate(run.path)


def test_a_file_without_dates_that_changed_is_refused(tmp_path, sst):
    plain = sst.assign_coords(time=np.arange(float(sst.sizes["time"])))
    job, run, path, _ = run_job(tmp_path, plain)
    path.unlink()
    plain.isel(time=slice(0, -4)).rename("sst").to_dataset().to_netcdf(path, engine="h5netcdf")
    with pytest.raises(DataError, match="124 steps, unlike the file of the training"):
        job.evaluate(run.path)


DAILY = np.datetime64("2010-01-01", "ns") + np.arange(128) * np.timedelta64(1, "D")
YEAR_AND_MONTH = np.array([100 * (2010 + k // 12) + 1 + k % 12 for k in range(128)])


@pytest.mark.parametrize(
    "change",
    [
        lambda field: field.assign_attrs(units="K"),
        lambda field: field.isel(lat=slice(1, None)),
        lambda field: field.assign_coords(time=DAILY),
    ],
    ids=["unit", "region", "step"],
)
def test_a_resumed_run_refuses_other_data(tmp_path, sst, change):
    _, run, path, _ = run_job(tmp_path, sst, model={"name": "none"})
    path.unlink()
    change(sst).to_dataset().to_netcdf(path, engine="h5netcdf")
    settings = ModelFolder(run.path).config(ForecastingConfig)
    with pytest.raises(DataError, match="resumed run"):
        ForecastingJob().train(settings, run, resume=True)


def test_validation_of_a_configuration_reads_the_header(tmp_path, sst):
    path = tmp_path / "field.nc"
    sst.assign_coords(time=YEAR_AND_MONTH).to_dataset().to_netcdf(path, engine="h5netcdf")
    (finding,) = ForecastingJob().validate(config(path, model={"name": "none"}))
    assert finding.level == "error"
    assert "YYYYMM" in str(finding)


def test_the_test_part_changes_nothing_that_is_fitted(tmp_path, sst):
    (tmp_path / "a").mkdir()
    one = run_job(tmp_path / "a", sst)[1]
    changed = sst.copy(deep=True)
    changed[96:] = changed[96:] + 5.0
    (tmp_path / "b").mkdir()
    two = run_job(tmp_path / "b", changed)[1]
    weights = [(r.path / "model" / "weights.safetensors").read_bytes() for r in (one, two)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_other_calendar_names_and_units(tmp_path, sst, calendar):
    times = [cftime.datetime(2010 + i // 12, 1 + i % 12, 15, calendar=calendar) for i in range(128)]
    field = (sst + 273.15).assign_coords(time=times).rename(lat="latitude", lon="longitude")
    field.attrs["units"] = "K"
    _, _, _, results = run_job(tmp_path, field, "tas")
    assert results.units["rmse"] == "K"
    assert results.metrics["rmse"] < 0.7


def test_one_space_dim_without_dates_units_or_mask(tmp_path, sst):
    values = sst.values[:, 4:6].reshape(128, -1)
    field = xr.DataArray(values[:, np.isfinite(values).all(axis=0)], dims=("time", "x"))
    _, _, _, results = run_job(tmp_path, field, "u", harmonics=[2])
    assert results.metrics["rmse"] > 0


def test_too_short_a_series_says_how_many_steps_are_needed(tmp_path, sst):
    with pytest.raises(DataError, match="at least 66 steps"):
        run_job(tmp_path, sst[:40])


@pytest.mark.parametrize("resolution", ["ns", "s", "D"])
def test_the_dates_forecast_continue_the_series(resolution):
    def dates(*texts):
        return np.array(texts, dtype=f"M8[{resolution}]")

    weeks = times_after(dates("2001-01-01", "2001-01-08", "2001-01-15"), 2)
    assert [str(t)[:10] for t in weeks] == ["2001-01-22", "2001-01-29"]
    months = times_after(dates("2001-11-01", "2001-12-01"), 2)
    assert [str(t)[:10] for t in months] == ["2002-01-01", "2002-02-01"]


def test_the_dates_forecast_follow_the_calendar():
    days = [cftime.Datetime360Day(2001, 2, day) for day in (28, 29, 30)]
    assert times_after(np.array(days), 1)[0] == cftime.Datetime360Day(2001, 3, 1)
    months = [cftime.Datetime360Day(2001, month, 16) for month in (11, 12)]
    assert times_after(np.array(months), 1)[0] == cftime.Datetime360Day(2002, 1, 16)


def test_travelling_waves_are_left_to_the_ridge_which_survives_saving(tmp_path):
    """No cell persists, but the modes' rotation is linear: damping has no skill, the ridge has."""
    rng = np.random.default_rng(0)
    steps, x = np.arange(160)[:, None], np.linspace(0, 2 * np.pi, 24, endpoint=False)
    waves = np.sin(x - 0.9 * steps) + np.sin(2 * x + 0.53 * steps)
    values = waves + 0.05 * rng.normal(size=(160, 24))
    field = xr.DataArray(values, dims=("time", "x"), attrs={"units": "m"})
    job, run, _, results = run_job(tmp_path, field, "h", forecaster="auto")
    record = json.loads((run.path / "model" / "fit.json").read_text())
    assert record["winner"] not in ("persistence", "climatology")
    assert results.metrics["rmse"] < 0.1
    assert results.metrics["largest_ratio_to_damped_anomaly"] < 0.5
    again = job.evaluate(run.path / "model")
    assert again.metrics["rmse"] == results.metrics["rmse"]


def lorenz63(count, noise=0.02):
    """Return a field (count, y, x) whose three patterns follow the Lorenz system, step 0.05."""

    def slope(s):
        return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    state, out, h = np.array([1.0, 1.0, 20.0]), [], 0.01
    for i in range(5 * count + 500):
        a = slope(state)
        b = slope(state + h / 2 * a)
        c = slope(state + h / 2 * b)
        d = slope(state + h * c)
        state = state + h / 6 * (a + 2 * b + 2 * c + d)
        if i >= 500 and i % 5 == 0:
            out.append(state)
    z = np.array(out)
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    x, y = np.meshgrid(np.arange(8) * np.pi / 4, np.arange(4) * np.pi / 4)
    patterns = np.stack([np.cos(x), np.sin(x) * np.cos(y), np.cos(2 * x) * np.sin(y)])
    field = np.einsum("tk,kyx->tyx", z, patterns)
    field += noise * np.random.default_rng(0).standard_normal(field.shape)
    return xr.DataArray(field, dims=("time", "y", "x"))


@pytest.mark.parametrize("model", ["none", "damped_residual_lstm"])
def test_intervals_are_those_of_the_forecaster_that_is_delivered(tmp_path, model):
    """The correction makes errors several times smaller than those of the base alone."""
    job, run, path, results = run_job(
        tmp_path,
        lorenz63(1500),
        "u",
        model={"name": model},
        **({"forecaster": "cubic_map", "pod": {"rank": 3}} if model == "none" else {}),
        training={"epochs": 15, "batch_size": 32, "progress": False},
    )
    settings = ModelFolder(run.path).config(ForecastingConfig)
    surrogate = ForecastSurrogate.load(run.path / "model")
    if model == "damped_residual_lstm":
        assert surrogate.forecaster.factors_.any()
    field = read_field(settings.data, surrogate.grid)
    rows = next(t for t in results.tables if t.title.startswith("RMSE on the test split")).rows
    assert {"persistence", "climatology", "surrogate"} <= {row[0] for row in rows}
    windows = split_field(field, settings).windows["test"]
    truth, forecast = windows.targets(), surrogate.forecast(windows)
    low, high = surrogate.intervals(0.9)
    inside = ((truth >= forecast + low) & (truth <= forecast + high)).mean(axis=(0, 2))
    assert 0.85 < inside.min() <= inside.max() < 0.95
    assert 0.87 < inside.mean() < 0.93
    assert results.metrics["coverage90"] == pytest.approx(inside.mean(), abs=1e-3)
    # What `predict` writes is the same interval.
    job.predict(run.path, path, tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as out:
        written = (out.u_high - out.u_low).values.reshape(len(low), -1)
    np.testing.assert_allclose(written, high - low, rtol=1e-5)


def test_the_best_row_of_the_table_can_be_chosen(tmp_path):
    """Waves under noise: outside the modes there is nothing but noise to damp."""
    rng = np.random.default_rng(0)
    steps, x = np.arange(400)[:, None], np.linspace(0, 2 * np.pi, 24, endpoint=False)
    waves = np.sin(x - 0.9 * steps) + np.sin(2 * x + 0.53 * steps)
    values = waves + 0.2 * rng.normal(size=(400, 24))
    field = xr.DataArray(values, dims=("time", "x"), attrs={"units": "m"})
    _, run, _, results = run_job(
        tmp_path, field, "h", pod={"rank": 4}, forecaster="auto", model={"name": "none"}
    )
    record = json.loads((run.path / "model" / "fit.json").read_text())
    table = {row[0]: row[-1] for row in results.tables[0].rows}
    assert {"climatology + POD ridge", "linear map with lags", "Hankel-DMD"} <= {
        e["title"] for e in record["entries"]
    }
    assert table["surrogate"] <= min(table.values()) * 1.01
    assert f"Chosen on validation: {record['winner']}" in results.summary[1]
    delivered = [e for e in record["entries"] if e["label"] == record["winner"]]
    assert delivered[0]["blocked"] == min(
        e["blocked"] for e in record["entries"] if e["stable"] and e["blocked"] is not None
    )


def test_one_family_is_delivered_when_it_is_asked_for(tmp_path):
    field = lorenz63(600)
    _, run, _, results = run_job(
        tmp_path,
        field,
        "u",
        model={"name": "none"},
        pod={"rank": 3},
        forecaster={"name": "identified_ode"},
    )
    record = json.loads((run.path / "model" / "fit.json").read_text())
    assert [e["config"]["name"] for e in record["entries"]] == ["identified_ode"]
    assert record["entries"][0]["config"]["penalty"] in (1e-8, 1e-6, 1e-4, 1e-2)
    assert results.metrics["rmse"] < 0.05


def test_a_family_that_cannot_be_used_is_refused_by_name(tmp_path, sst):
    with pytest.raises(ConfigError, match="stencil cannot be used here: masked cells"):
        run_job(tmp_path, sst, forecaster={"name": "stencil"}, model={"name": "none"})


def test_a_weights_file_of_an_older_release_is_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    save_file(
        {"a": np.zeros(1)},
        str(tmp_path / "weights.safetensors"),
        {"scitoolkit": json.dumps({"name": "sst"})},
    )
    with pytest.raises(CheckpointError, match="other forecasters"):
        ForecastSurrogate.load(tmp_path)


def test_months_stamped_at_their_end_are_continued_at_their_end():
    months = np.arange("2001-12", "2003-01", dtype="datetime64[M]")
    ends = (months[1:].astype("datetime64[D]") - np.timedelta64(1, "D")).astype("datetime64[ns]")
    noon = np.timedelta64(12, "h")
    expected = np.array(["2002-12-31T12", "2003-01-31T12", "2003-02-28T12"], "datetime64[ns]")
    np.testing.assert_array_equal(times_after(ends + noon, 3), expected)
    thirtieth = np.array(["2001-12-30", "2002-01-30"], "datetime64[ns]")
    assert times_after(thirtieth, 2).astype("datetime64[D]").astype(str).tolist() == [
        "2002-02-28",
        "2002-03-30",
    ]
    noleap = [cftime.DatetimeNoLeap(2001, m, d) for m, d in ((1, 31), (2, 28))]
    assert [(t.month, t.day) for t in times_after(np.array(noleap), 2)] == [(3, 31), (4, 30)]
    even = [cftime.Datetime360Day(2001, m, 30) for m in (11, 12)]
    assert times_after(np.array(even), 1)[0] == cftime.Datetime360Day(2002, 1, 30)
