"""Starter configurations of forecasts: tables, panels, files without names of dims."""

from __future__ import annotations

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

from scitoolkit.core.errors import DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import read_field, split_field
from scitoolkit.forecasting.starter import starter

STEPS = 120
WAVE = np.sin(0.2 * np.arange(STEPS))
DAYS = pd.date_range("2001-01-01", periods=STEPS)


def started(path):
    """Return the text of a starter, its configuration and the cells that this one reads."""
    text = starter(DataToStart([str(path)], [str(path)]))
    config = ForecastingConfig.model_validate(yaml.safe_load(text))
    data = read_field(config.data)
    assert all(len(windows) for windows in split_field(data, config).windows.values())
    assert config.pod.rank <= len(data.weights)
    return text, config, data


def test_a_table_of_series_is_started(tmp_path):
    path = tmp_path / "probe.csv"
    pd.DataFrame({"time": np.arange(STEPS), "I [A]": WAVE, "V": -WAVE}).to_csv(path, index=False)
    text, config, data = started(path)
    assert (config.data.variable, config.data.units, config.pod.rank) == ("I", "A", 1)
    assert "V can be forecast too" in text
    np.testing.assert_array_equal(data.series.values[:, 0], WAVE)


def test_a_series_of_a_netcdf_file_is_started(tmp_path):
    data = xr.Dataset({"flow": ("time", WAVE)}, {"time": DAYS})
    data.to_netcdf(tmp_path / "flow.nc", engine="h5netcdf")
    assert started(tmp_path / "flow.nc")[1].data.variable == "flow"


def test_a_panel_with_empty_cells_is_started_with_their_number(tmp_path):
    parts = [
        pd.DataFrame({"date": DAYS, "station": n, "rain (mm)": WAVE}) for n in ("Oslo", "Roma")
    ]
    parts[1].loc[[5, 6, 40], "rain (mm)"] = np.nan
    pd.concat(parts).to_csv(tmp_path / "stations.csv", index=False)
    _, config, data = started(tmp_path / "stations.csv")
    assert (config.data.variable, config.data.units, config.data.fill) == ("rain", "mm", 2)
    assert data.grid.size == config.pod.rank == 2


def stations(path):
    """Write three stations as CF has them, with names of characters and a gap of two hours."""
    values = np.stack([WAVE, -WAVE, 2 * WAVE], axis=1).astype(np.float32)
    values[[50, 51], 1] = np.nan
    data = xr.Dataset(
        {
            "t2m": (("time", "station"), values, {"units": "K", "coordinates": "lat lon"}),
            "station_name": (
                "station",
                np.array([b"Oslo", b"Roma", b"Kyiv"]),
                {"cf_role": "timeseries_id"},
            ),
            "lat": ("station", [60.0, 42.0, 50.0], {"units": "degrees_north"}),
            "lon": ("station", [11.0, 12.0, 31.0], {"units": "degrees_east"}),
        },
        {"time": DAYS},
        {"featureType": "timeSeries"},
    )
    data.to_netcdf(path, engine="h5netcdf")


def test_stations_of_cf_are_started_as_series_with_names(tmp_path):
    stations(tmp_path / "stations.nc")
    _, config, data = started(tmp_path / "stations.nc")
    assert (config.data.variable, config.data.fill) == ("t2m", 2)
    assert data.grid.station_name.values.tolist() == ["Oslo", "Roma", "Kyiv"]
    with pytest.raises(DataError, match=r"1 of 3 series.*Roma.*data\.fill"):
        read_field(config.data.model_copy(update={"fill": 0}))


@pytest.mark.parametrize("group", ["", "fields/"])
def test_a_plain_hdf5_file_is_started_with_the_guess_of_its_dims(tmp_path, group):
    field = WAVE[:, None, None] * np.random.default_rng(0).normal(size=(6, 8))
    with h5py.File(tmp_path / "plasma.h5", "w") as file:
        file[f"{group}ne"], file["t"] = field, np.arange(STEPS) * 1e-7
    text, config, data = started(tmp_path / "plasma.h5")
    assert config.data.dims == ["t", "y", "x"]
    assert "t, y, x is a guess" in text
    np.testing.assert_array_equal(data.series.values, field.reshape(STEPS, -1))
    np.testing.assert_array_equal(data.times, np.arange(STEPS) * 1e-7)


def test_a_file_without_times_and_one_of_few_are_refused_with_a_remedy(tmp_path):
    with h5py.File(tmp_path / "steps.h5", "w") as file:
        for step in range(20):
            file[f"step_{step:03d}/phi"] = np.zeros((6, 8))
    with pytest.raises(DataError, match="look like times of one variable"):
        job_for_task("forecast").starter(DataToStart([str(tmp_path / "steps.h5")], ["steps.h5"]))
    xr.Dataset({"u": (("y", "x"), np.ones((4, 4)))}).to_netcdf(
        tmp_path / "still.nc", engine="h5netcdf"
    )
    with pytest.raises(DataError):
        starter(DataToStart([str(tmp_path / "still.nc")], ["still.nc"]))
    few = xr.Dataset({"u": ("time", WAVE[:7])}, {"time": DAYS[:7]})
    few.to_netcdf(tmp_path / "few.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"7 time steps\. Allowed: 16 or more"):
        starter(DataToStart([str(tmp_path / "few.nc")], ["few.nc"]))
