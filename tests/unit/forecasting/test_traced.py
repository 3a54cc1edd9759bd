"""Exported forecasts: values in their units, and statuses outside the box of the training."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.deploy import CompiledSurrogate
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.fields import open_field
from scitoolkit.forecasting.job import ForecastingJob
from scitoolkit.forecasting.surrogate import ForecastSurrogate
from scitoolkit.forecasting.windows import Windows

SIMULATIONS, STEPS, INPUTS, LEADS = 5, 60, 3, 4
CASES = {
    "one": {"variable": "warm"},
    "several": {"variables": ["warm", "rain"], "transform": {"rain": "sqrt"}},
    "parameter": {"variable": "warm", "parameters": ["growth"]},
    "all": {
        "variables": ["rain", "warm"],
        "parameters": ["growth", "mass"],
        "transform": {"rain": "log1p"},
        "maximum": {"warm": 340.0},
    },
    "driver": {"variable": "warm", "drivers": [{"variable": "index"}]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Simulations of a wave in a warm field and of rain, a masked cell, two parameters."""
    out = tmp_path_factory.mktemp("campaign")
    rng = np.random.default_rng(0)
    t, x = np.arange(STEPS)[:, None], np.linspace(0, 6, 9)
    days = np.datetime64("2001-01-01", "ns") + np.arange(STEPS) * np.timedelta64(1, "D")
    index = np.cumsum(rng.normal(size=STEPS))
    for number in range(SIMULATIONS):
        growth = 1 + 0.2 * number
        wave = growth * np.sin(x - 0.3 * t) + 0.05 * rng.normal(size=(STEPS, 9))
        warm, rain = 300 + 4 * wave + 2 * index[:, None], np.maximum(0, wave) ** 2
        warm[:, 4] = rain[:, 4] = np.nan
        fields = {
            "warm": (("time", "x"), warm, {"units": "K"}),
            "rain": (("time", "x"), rain, {"units": "mm/day"}),
            "index": ("time", index),
        }
        made = xr.Dataset(fields, {"time": days}, {"growth": growth, "mass": 9.0 - number**2})
        made.to_netcdf(out / f"s{number}.nc", engine="h5netcdf")
    return out


def trained(folder, root, data):
    files = "s0.nc" if "drivers" in data else "s*.nc"
    config = ForecastingConfig(
        data={
            "path": folder / files,
            **({} if "drivers" in data else {"files": "simulations"}),
            **data,
        },
        forecaster="damped_anomaly_memory",
        model={"name": "none"},
        harmonics=[0],
        inputs=INPUTS,
        leads=LEADS,
        pod={"rank": 4},
    )
    run = RunDirectory.create(root, "test", config)
    ForecastingJob().train(config, run)
    return run.path, config


def called(path, config):
    """Return inputs of the C, a window each, and the forecasts that Python has for them."""
    found = ForecastSurrogate.load(ModelFolder(path).path)
    field = open_field(config, found.coding, found.grid)
    windows = Windows(field.data.series, np.array([2, 11, 30]), INPUTS, LEADS)
    wanted = field.physical(found.forecast(windows), windows)
    raw = found.coding.decode(
        field.data.series.values
        + (found.coding.explained(field.physical.drivers[:STEPS]) if found.coding.drivers else 0)
    )
    parts = [raw[s : s + INPUTS] for s in windows.starts]
    fields = found.coding.slices[: len(found.coding.fields)]
    arrays = [np.stack([p[:, cells] for p in parts]) for cells in fields]
    arrays.append(np.full((3, INPUTS + LEADS), 0.5))
    held = found.coding.slices[len(found.coding.fields) :]
    if held:
        arrays.append(np.stack([[p[0, cells.start] for cells in held] for p in parts]))
    if found.coding.drivers:
        arrays.append(
            np.stack([field.physical.drivers[s : s + INPUTS + LEADS] for s in windows.starts])
        )
    outputs = [wanted[..., cells] for cells in fields]
    return [np.ascontiguousarray(a, np.float32) for a in arrays], outputs


@pytest.mark.parametrize("case", CASES)
def test_the_c_forecasts_in_units_of_the_file_and_tells_inputs_outside_the_box(
    case, folder, tmp_path
):
    path, config = trained(folder, tmp_path / "runs", CASES[case])
    found = api.export(path, tmp_path / "model.so")
    library = CompiledSurrogate(tmp_path / "model.so")
    arrays, wanted = called(path, config)
    outputs, status = library(*arrays)
    assert status.tolist() == [0, 0, 0]
    for own, truth, spec in zip(outputs, wanted, found["outputs"], strict=True):
        assert spec["units"] == {"warm": "K", "rain": "mm/day"}[spec["name"]]
        assert np.abs(own - truth).max() < 2e-4 * np.abs(truth).max()
    for place, spec in enumerate(found["inputs"]):
        assert "box" in spec
        changed = [a.copy() for a in arrays]
        changed[place][1].flat[-1] = np.float32(np.max(spec["box"][1])) + 1
        assert library(*changed)[1].tolist() == [0, 1, 0], spec["name"]
        changed[place][2].flat[0] = np.nan
        assert library(*changed)[1].tolist() == [0, 1, 2]


def test_parameters_and_bounds_have_a_box_where_the_data_are_gone(folder, tmp_path, caplog):
    files = tmp_path / "files"
    shutil.copytree(folder, files)
    path, _ = trained(files, tmp_path / "runs", CASES["all"])
    shutil.rmtree(files)
    found = api.export(path, tmp_path / "model.so")
    assert "the range of the training inputs is unknown" in caplog.text
    inputs = {spec["name"]: spec for spec in found["inputs"]}
    assert inputs["rain"]["box"] == [[0.0, 0.0], None]
    assert inputs["warm"]["box"] == [None, [340.0, 340.0]]
    assert inputs["parameters"]["box"][0][0] == pytest.approx(1.0)
