"""Series without space: seasons by a test, gaps, any calendar, and the simplest forecaster."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.choosing import Chooser, setting_of
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.fields import open_split
from scitoolkit.forecasting.forecasters.base import RENAMED, forecasters, stored_config
from scitoolkit.forecasting.gaps import filled
from scitoolkit.forecasting.job import ForecastingJob
from scitoolkit.forecasting.seasons import clock, cycles, find_seasons, step_numbers
from scitoolkit.forecasting.surrogate import ForecastSurrogate

COUNT = 900


def noise(count=COUNT, seed=0, damping=0.7):
    rng = np.random.default_rng(seed)
    out = np.zeros(count)
    for i in range(1, count):
        out[i] = damping * out[i - 1] + rng.standard_normal()
    return out


def seasonal(period, count=COUNT, amplitude=4.0):
    angle = 2 * np.pi * np.arange(count) / period
    return amplitude * (np.cos(angle) + 0.5 * np.sin(2 * angle))


def hours(count=COUNT):
    return pd.date_range("2023-03-01", periods=count, freq="h")


def job_on(folder, values, times, **more):
    path = folder / "series.csv"
    pd.DataFrame({"time": times, "load [MW]": values}).to_csv(path, index=False)
    data = {"path": path, "variable": "load", **more.pop("data", {})}
    config = ForecastingConfig(
        **{
            "data": data,
            "inputs": 8,
            "leads": 4,
            "forecaster": "damped_anomaly",
            "model": {"name": "none"},
            **more,
        }
    )
    run, job = RunDirectory.create(folder / "runs", "series", config), ForecastingJob()
    job.train(config, run)
    surrogate = ForecastSurrogate.load(run.path / "model")
    return SimpleNamespace(path=path, config=config, run=run, job=job, surrogate=surrogate)


def predicted(done, source, folder):
    done.job.predict(done.run.path, source, folder / "out.nc")
    with xr.open_dataset(folder / "out.nc", engine="h5netcdf") as out:
        return out.load()


def test_day_and_week_are_found_and_forecast(tmp_path):
    values = 20 + seasonal(24) + seasonal(168, amplitude=3.0) + 0.3 * noise()
    done = job_on(tmp_path, values, hours())
    assert done.surrogate.coding.seasons == (24.0, 168.0)
    out = predicted(done, done.path, tmp_path)
    assert out["load"].dims == ("lead",)
    assert out["load"].attrs["units"] == "MW"
    assert out["valid_time"].values[0] == hours(COUNT + 1)[-1]
    truth = (20 + seasonal(24, COUNT + 4) + seasonal(168, COUNT + 4, 3.0))[-4:]
    assert np.abs(out["load"].values - truth).max() < 1.5
    metrics = done.job.evaluate(done.run.path).metrics
    assert metrics["rmse"] < 0.6


def test_a_file_that_begins_later_keeps_the_phase(tmp_path):
    done = job_on(tmp_path, 20 + seasonal(24) + 0.3 * noise(), hours())
    whole = predicted(done, done.path, tmp_path)
    table = pd.read_csv(done.path)
    table.iloc[-37:].to_csv(tmp_path / "late.csv", index=False)
    late = predicted(done, tmp_path / "late.csv", tmp_path)
    np.testing.assert_allclose(late["load"].values, whole["load"].values, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_slow_swings_are_no_season(seed):
    values = noise(seed=seed, damping=0.98)[:, None]
    times = hours().values
    years = 2023 + np.arange(COUNT) / 8766
    assert find_seasons("calendar", times, years, values) == ()
    assert find_seasons("search", times, years, values) == ()


@pytest.mark.parametrize("period", [7, 12, 30, 17.5])
def test_a_period_of_plain_steps_is_searched(period):
    values = (seasonal(period) + noise())[:, None]
    undated = np.full(COUNT, np.nan)
    assert find_seasons("calendar", np.arange(COUNT), undated, values) == ()
    seasons = find_seasons("search", np.arange(COUNT), undated, values)
    # Its second harmonic may be found as a separate season.
    assert seasons[-1] == pytest.approx(period, rel=1e-3)
    assert len(seasons) <= 2


def test_named_periods_and_those_that_are_refused():
    undated, values = np.full(COUNT, np.nan), np.zeros((COUNT, 1))
    assert find_seasons([12, 7], np.arange(COUNT), undated, values) == (12.0, 7.0)
    with pytest.raises(ConfigError, match="season of 365"):
        find_seasons([365], np.arange(COUNT), undated, values)


def test_clock_and_cycles_continue_after_the_last_step():
    times = hours(100).values
    ahead = clock(times, (24.0, 168.0), 5)
    np.testing.assert_allclose(ahead, clock(hours(105).values, (24.0, 168.0)))
    np.testing.assert_allclose(
        cycles(times, (24.0, 168.0), 5), cycles(hours(105).values, (24.0, 168.0)), atol=1e-9
    )
    dekads = [f"2001-{m:02}-{d:02}" for m in range(1, 13) for d in (1, 11, 21)]
    assert np.diff(step_numbers(np.array(dekads, "M8[ns]"))).tolist() == [1.0] * 35


@pytest.mark.parametrize("gap", [1, 2, 5])
@pytest.mark.parametrize("absent", ["row", "value"])
def test_short_gaps_are_filled_and_long_ones_are_not_crossed(tmp_path, gap, absent):
    values = 20 + seasonal(24) + 0.3 * noise()
    missing = np.zeros(COUNT, bool)
    missing[300 : 300 + gap] = True
    times = hours()
    if absent == "row":
        values, times = values[~missing], times[~missing]
    else:
        values = np.where(missing, np.nan, values)
    done = job_on(tmp_path, values, times, data={"fill": 2}, season=[24])
    field, _ = open_split(done.config)
    filled_in = gap <= 2
    assert len(field.data.series.values) == COUNT - (0 if filled_in else gap)
    assert field.data.breakpoints == (() if filled_in else (300,))


def test_filling_interpolates_each_cell_and_dates():
    times = pd.date_range("2001-01-01", periods=6, freq="MS").values
    u = xr.DataArray(
        np.stack([[0.0, 1, np.nan, 3, 4, 5], [5.0, np.nan, np.nan, np.nan, 1, 0]], axis=1),
        dims=("time", "x"),
        coords={"time": times},
        name="u",
    )
    out = filled(u, 2)
    assert out.values[2, 0] == 2.0
    assert np.isnan(out.values[1:4, 1]).all()
    missing = filled(u.isel(time=[0, 1, 3, 4, 5]), 1)
    assert (missing["time"].values == times).all()
    assert missing.values[2, 0] == 2.0


def test_a_panel_and_several_columns(tmp_path):
    panel = pd.concat(
        [
            pd.DataFrame({"id": name, "ds": hours(), "y": 20 + seasonal(24) + noise(seed=k)})
            for k, name in enumerate("abc")
        ]
    )
    panel.to_csv(tmp_path / "series.csv", index=False)
    config = {"inputs": 8, "leads": 4, "forecaster": "damped_anomaly", "model": {"name": "none"}}
    for data in ({"variable": "y"}, {"variables": ["u", "v"]}):
        path = tmp_path / "panel.csv"
        if "variable" in data:
            panel.to_csv(path, index=False)
        else:
            u, v = 20 + seasonal(24) + noise(seed=1), 1e4 * noise(seed=2)
            pd.DataFrame({"time": hours(), "u": u, "v": v}).to_csv(path, index=False)
        settings = ForecastingConfig(data={"path": path, **data}, season=[24], **config)
        run, job = RunDirectory.create(tmp_path / "runs", "panel", settings), ForecastingJob()
        job.train(settings, run)
        job.predict(run.path, path, tmp_path / "out.nc")
        with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as out:
            if "variable" in data:
                assert out["y"].sizes == {"lead": 4, "series": 3}
            else:
                assert out["u"].dims == ("lead",)
                assert np.isfinite(out["v"].values).all()


def test_a_panel_keeps_the_names_of_its_series_and_refuses_others(tmp_path):
    def panel(names, file):
        rows = [
            pd.DataFrame({"id": name, "ds": hours(), "y": 20 + seasonal(24) + noise(seed=k)})
            for k, name in enumerate(names)
        ]
        pd.concat(rows).to_csv(tmp_path / file, index=False)
        return tmp_path / file

    path = panel(["north", "south 2"], "panel.csv")
    settings = ForecastingConfig(
        data={"path": path, "variable": "y"},
        season=[24],
        inputs=8,
        leads=4,
        forecaster="damped_anomaly",
        model={"name": "none"},
    )
    run, job = RunDirectory.create(tmp_path / "runs", "panel", settings), ForecastingJob()
    job.train(settings, run)
    out = tmp_path / "out.nc"
    job.predict(run.path, panel(["south 2", "north"], "turned.csv"), out)  # rows in any order
    with xr.open_dataset(out, engine="h5netcdf") as forecast:
        assert forecast["label"].values.tolist() == ["north", "south 2"]
    for names in (["north", "west"], ["a", "b"]):
        with pytest.raises(DataError, match=r"label names.*those of the training data, north, sou"):
            job.predict(run.path, panel(names, "other.csv"), out)


def test_another_step_is_refused(tmp_path):
    done = job_on(tmp_path, 20 + seasonal(24) + noise(), hours(), season=[24])
    times = pd.date_range("2023-03-01", periods=COUNT, freq="D")
    pd.DataFrame({"time": times, "load [MW]": noise()}).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(DataError, match="step of 1 hour"):
        done.job.predict(done.run.path, tmp_path / "d.csv", tmp_path / "out.nc")


def _chooser(tmp_path):
    values = 20 + noise()
    path = tmp_path / "u.csv"
    pd.DataFrame({"t": np.arange(COUNT), "u": values}).to_csv(path, index=False)
    config = ForecastingConfig(
        data={"path": path, "variable": "u"}, inputs=4, leads=3, model={"name": "none"}
    )
    field, parts = open_split(config)
    return Chooser(field.data, parts, setting_of(field.data, parts, 1, config), config)


def test_a_stacking_must_be_better_by_more_than_one_standard_error(tmp_path):
    chooser = _chooser(tmp_path)
    errors = np.where(np.arange(600) % 2, 1.0, -1.0)[:, None, None] * np.ones((1, 3, 1))
    turns = np.where(np.arange(600) // 14 % 2, 1.02, 0.98)[:, None, None]
    assert not chooser._proven(turns * errors, errors)
    assert not chooser._proven(errors, turns * errors)
    assert not chooser._proven(errors, errors)
    assert not chooser._proven(np.full_like(errors, np.nan), errors)
    assert chooser._proven(0.95 * turns * errors, errors)
    assert not chooser._proven(errors, 0.95 * errors)


@pytest.mark.parametrize("former", RENAMED)
def test_former_names_are_read_and_written_by_the_present_name(former):
    config = stored_config({"name": former})
    assert config.name == RENAMED[former]["name"]
    assert former not in forecasters.names()
    again = stored_config(json.loads(config.model_dump_json()))
    assert again == config
    data = {"data": {"path": "a.nc", "variable": "u"}, "model": {"name": "none"}}
    assert ForecastingConfig(**data, forecaster=former).forecaster == config
