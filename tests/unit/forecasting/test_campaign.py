"""Forecasts learn from many simulations; no window crosses from one into another."""

from __future__ import annotations

import tracemalloc

import h5py
import numpy as np
import pytest
import xarray as xr
import yaml

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.starter import DataToStart
from scitoolkit.forecasting import fitting
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import read_field, split_field
from scitoolkit.forecasting.job import ForecastingJob

CELLS, ROWS = 12, (40, 36, 44, 40, 38)


def simulation(number: int) -> np.ndarray:
    """A travelling wave about a level far from that of the others."""
    t, x = np.meshgrid(np.arange(ROWS[number]), np.arange(CELLS), indexing="ij")
    return (100.0 * number + np.sin(2 * np.pi * (x / CELLS - 0.03 * t) + number)).astype("f4")


@pytest.fixture(params=["files", "groups"])
def path(request, tmp_path):
    """The same simulations as a file each, and as groups of one HDF5 file (PDEBench)."""
    if request.param == "files":
        for number in range(len(ROWS)):
            times = 0.1 * np.arange(ROWS[number])
            data = xr.Dataset(
                {"u": (("time", "x"), simulation(number), {"units": "K"})},
                coords={"time": times, "x": np.arange(CELLS) / CELLS},
            )
            data.to_netcdf(tmp_path / f"sim{number}.nc", engine="h5netcdf")
        return str(tmp_path / "sim*.nc"), "u"
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for number in range(len(ROWS)):
            group = file.create_group(f"{number:04d}")
            group["data"] = simulation(number)[..., None]
            group["grid/x"] = np.arange(CELLS, dtype="f4") / CELLS
            group["grid/t"] = 0.1 * np.arange(ROWS[number], dtype="f4")
    return str(tmp_path / "all.h5"), "data_0"


def config(path, variable="u", **sections):
    sections = {
        "split": {"train": 3, "validation": 1, "test": 1},
        "inputs": 3,
        "leads": 3,
        "forecaster": {"name": "damped_anomaly_memory", "folds": 1},
        "model": {"name": "none"},
        "pod": {"rank": 2},
        **sections,
    }
    return ForecastingConfig(data={"path": path, "variable": variable}, **sections)


def test_parts_are_simulations_and_windows_stay_in_one(path):
    made = config(*path)
    data = read_field(made.data)
    assert np.allclose(data.series.values, np.concatenate([simulation(n) for n in range(5)]))
    parts = split_field(data, made)
    edges = np.cumsum([0, *ROWS]).tolist()
    assert parts.steps == {
        "train": range(edges[3]),
        "validation": range(edges[3], edges[4]),
        "test": range(edges[4], edges[5]),
    }
    for name, numbers in (("train", 3), ("validation", 1), ("test", 1)):
        windows = parts.windows[name]
        both = np.concatenate([windows.input_values(), windows.targets()], 1)
        assert np.ptp(np.rint(both.mean(2) / 100), axis=1).max() == 0
        assert len(windows) == sum(
            len(s) for s in data.simulations if s[0] in parts.steps[name]
        ) - (5 * numbers)
    assert [len(s.values) for s in data.segments(parts.steps["train"])] == list(ROWS[:3])
    pod = fitting.fit_pod(data, parts.steps["train"], 0, made)
    whole = np.concatenate([simulation(n) for n in range(3)]).astype("f8")
    found = np.linalg.svd(whole - whole.mean(0), compute_uv=False)[:2]
    assert np.allclose(pod.singular_values_, found, rtol=1e-4)


def test_a_forecast_of_several_simulations_is_scored_and_made(tmp_path, path):
    job, made = ForecastingJob(), config(*path)
    run = RunDirectory.create(tmp_path / "runs", "test", made)
    job.train(made, run)
    results = job.evaluate(run.path)
    assert all(np.isfinite(v) for k, v in results.metrics.items() if k.startswith("rmse"))
    with pytest.raises(DataError, match="5 simulations"):
        job.predict(run.path, path[0], tmp_path / "out.nc")


def test_what_needs_one_simulation_is_refused(path):
    data = read_field(config(*path).data)
    with pytest.raises(ConfigError, match=r"pod\.rank"):
        split_field(data, config(*path, pod={"rank": "forecast"}))
    with pytest.raises(ConfigError, match="test"):
        split_field(data, config(*path, split={"train": 4, "validation": 1, "test": 0}))


@pytest.mark.parametrize("path", ["files"], indirect=True)
def test_a_starter_for_several_files_divides_simulations(path):
    text = job_for_task("forecast").starter(DataToStart([path[0]], [path[0]]))
    made = yaml.safe_load(text)
    assert made["split"] == {"train": 0.7, "validation": 0.15, "test": 0.15}
    found = ForecastingConfig.model_validate(made)
    assert len(split_field(read_field(found.data), found).windows["test"])


def test_a_field_larger_than_its_memory_is_the_same_and_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("scitoolkit.io.coordinates._BLOCK_BYTES", 2**19)
    rows, cells = 1500, (20, 40)
    values = np.random.default_rng(0).normal(size=(rows, *cells)).astype("f4")
    values[:, :3] = np.nan
    data = xr.Dataset({"u": (("time", "y", "x"), values)}, coords={"time": np.arange(rows)})
    made = config(str(tmp_path / "u.nc"))
    data.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    whole = read_field(made.data)
    tracemalloc.start()
    split = read_field(made.data.model_copy(update={"memory": "512KiB"}))
    again = split.to_grid(split.series.values, ("time",))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(split.series.values, whole.series.values)
    assert np.array_equal(again.values, values, equal_nan=True)
    assert peak < values.nbytes  # float64 columns alone are 1.7 times that
    assert np.array_equal(split.grid.values, whole.grid.values)


def test_a_simulation_on_other_points_is_refused(tmp_path):
    def write(number, x, unit):
        values = simulation(number)[:30]
        data = xr.Dataset(
            {"u": (("time", "x"), values, {"units": "K"})},
            {"time": 0.1 * np.arange(30), "x": ("x", x, {"units": unit})},
        )
        data.to_netcdf(tmp_path / f"sim{number}.nc", engine="h5netcdf")

    x = 30.0 * np.arange(CELLS)
    for number in range(3):
        write(number, x, "degrees_east")
    settings = config(str(tmp_path / "sim*.nc")).data
    expected = read_field(settings).series.values
    write(1, x - 360.0, "degrees_east")
    np.testing.assert_array_equal(read_field(settings).series.values, expected)
    write(1, x + 5.0, "degrees_east")
    with pytest.raises(DataError, match="x runs from 5 to 335"):
        read_field(settings)


def test_several_tables_are_refused_by_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("time,u\n2001-01-01,1\n2001-01-02,2\n")
    with pytest.raises(DataError, match="2 files, of which some are tables"):
        read_field(config(str(tmp_path / "*.csv")).data)
