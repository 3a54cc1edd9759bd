"""A file unlike that of the training gives the numbers of the training's file, or is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import yaml
from altered_field import EQUAL, REFUSED, TOLD, monthly

import scitoolkit
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.job import ForecastingJob


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alterations")
    path = folder / "monthly.nc"
    monthly().to_netcdf(path, engine="h5netcdf")
    settings = ForecastingConfig(
        data={"path": path, "variable": "u"},
        inputs=4,
        leads=3,
        forecaster={"name": "damped_anomaly"},
        model={"name": "none"},
    )
    run = RunDirectory.create(folder / "runs", "test", settings)
    job = ForecastingJob()
    job.train(settings, run)
    job.predict(run.path, path, folder / "plain.nc")
    with xr.open_dataset(folder / "plain.nc", engine="h5netcdf") as out:
        plain = out.load()
    return SimpleNamespace(job=job, run=run, plain=plain)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_forecast_is_refused(model, tmp_path, name):
    altered = REFUSED[name](monthly())
    altered.to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    with pytest.raises(DataError) as error:
        model.job.predict(model.run.path, tmp_path / "in.nc", tmp_path / "out.nc")
    assert str(error.value).strip()
    assert not (tmp_path / "out.nc").exists()


@pytest.mark.parametrize("name", [*EQUAL, *TOLD])
def test_what_says_the_same_gives_the_same_forecast(model, tmp_path, name, caplog):
    {**EQUAL, **TOLD}[name](monthly()).to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    model.job.predict(model.run.path, tmp_path / "in.nc", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as out:
        for variable in ("u", "u_low", "u_high"):
            values = out[variable].squeeze(drop=True).values
            # Years of another length move the phase of the season by less than a day.
            close = 0.1 if name == "calendar without leap years" else 1e-5
            np.testing.assert_allclose(values, model.plain[variable].values, atol=close)
        first = out["valid_time"].values[0]
        month = (first.year, first.month) if hasattr(first, "year") else str(first)[:7]
        assert month in ((2000, 1), "2000-01")
    told = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert bool(told) == (name in TOLD)


def test_the_file_to_start_from_is_not_replaced(model, tmp_path):
    monthly().to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    before = (tmp_path / "in.nc").read_bytes()
    with pytest.raises(ConfigError, match="file to start from"):
        scitoolkit.predict(model.run.path, tmp_path / "in.nc", tmp_path / "in.nc")
    with pytest.raises(DataError, match="another format"):
        scitoolkit.predict(model.run.path, tmp_path / "in.nc", tmp_path / "out.csv")
    with pytest.raises(DataError, match="list is no path"):
        scitoolkit.predict(model.run.path, [tmp_path / "in.nc"], tmp_path / "out.nc")
    assert (tmp_path / "in.nc").read_bytes() == before
    assert not (tmp_path / "out.csv").exists()


def test_several_simulations_beside_a_model_of_one_are_told(model, tmp_path, caplog):
    altered = REFUSED["a second time"](monthly())
    altered.to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    model.job.evaluate(model.run.path, data=tmp_path / "in.nc")
    assert "scored on 2 simulations, the model is of one" in caplog.text


@pytest.mark.parametrize("ending", ["nc", "csv"])
def test_a_season_of_a_file_without_times_is_told(tmp_path, ending, caplog):
    steps = np.arange(240)
    values = 10 + 3 * np.sin(2 * np.pi * steps / 12) + np.cos(steps**2) / 10

    def saved(name, part):
        path = tmp_path / f"{name}.{ending}"
        data = xr.Dataset({"y": ("time", values[part])})
        if ending == "nc":
            data.to_netcdf(path, engine="h5netcdf")
        else:
            data.to_dataframe().to_csv(path, index=False)
        return path

    data = {"path": str(saved("all", slice(None))), "variable": "y"}
    document = {
        "domain": "forecasting",
        "data": data,
        "season": [12],
        "forecaster": "climatology",
        "inputs": 3,
        "leads": 6,
        "training": {"steps": 2},
        "run": {"root": str(tmp_path / "out")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    run = scitoolkit.run(str(tmp_path / "job.yaml")).path
    caplog.clear()
    scitoolkit.predict(run, tmp_path / f"all.{ending}", tmp_path / "a.nc")
    assert "no times" not in caplog.text
    part = saved("part", slice(7, 120))
    scitoolkit.predict(run, part, tmp_path / "b.nc")
    assert f"part.{ending}: no times, so that its first row is taken as step 0" in caplog.text
