"""Series of the forecasting benchmarks, each forecast once per process by the shipped job."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from _places import ROOT
from _series import gusts, kuramoto_sivashinsky, lorenz63, lorenz96, waves

ERSST = ROOT / "datasets" / "ersst_v5" / "ersstv5_monthly_2deg_201001-202008.nc"
SPLIT = {"train": 0.625, "validation": 0.125, "test": 0.25}

# Field and number of modes.
MADE = {
    "lorenz63": (lorenz63, 3),
    "lorenz96": (lorenz96, 5),
    "lorenz96_noise": (lambda: lorenz96(noise=0.1), 5),
    "ks": (kuramoto_sivashinsky, 16),
    "waves": (waves, 6),
    "gusts": (gusts, 4),
    "lorenz63_noise": (lambda: lorenz63(noise=0.1, seed=1), 3),
}


class Done(NamedTuple):
    """A finished forecast of a series: its file, the delivered model, test windows, CPU seconds."""

    path: Path
    surrogate: object
    results: object
    record: dict
    windows: object
    seconds: float


@cache
def folder() -> Path:
    """Return a folder that lasts as long as the process."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def forecast(name: str) -> Done:
    """Return a series, forecast by `auto` with closed forms only."""
    if name == "sc20":
        path, split = sc20(folder() / "sc20.nc")
        return trained(path, 5, split)
    if name == "ersst":
        path = folder() / ERSST.name
        path.symlink_to(ERSST)
        return trained(path, 5, SPLIT, "sst")
    make, rank = MADE[name]
    return trained(write(make(), folder() / f"{name}.nc"), rank, SPLIT)


def write(field, path: Path, times=None) -> Path:
    dims = ("time", "y", "x") if field.ndim == 3 else ("time", "x")
    array = xr.DataArray(field, dims=dims, name="u")
    if times is not None:
        array = array.assign_coords(time=times)
    array.to_dataset().to_netcdf(path, engine="h5netcdf")
    return path


def sc20(path: Path) -> tuple[Path, dict]:
    """Return a file of the SC20 coefficients, and the split by which its own test part is ours."""
    import forecast_sc20

    train, test, _ = forecast_sc20.read()
    week = np.timedelta64(7, "D")
    first = np.datetime64("1981-11-01", "ns") + week * np.arange(len(train.values))
    second = np.datetime64("1990-01-03", "ns") + week * np.arange(len(test.values))
    # No area: every coefficient counts by its own variance, as in R² uniform.
    values = np.concatenate([train.values, test.values]) / train.values.std(axis=0)
    count = len(train.values)
    split = {"train": count - 72, "validation": 72, "test": len(test.values)}
    return write(values, path, np.concatenate([first, second])), split


def trained(path: Path, rank: int, split: dict, variable: str = "u", **more):
    """Train the shipped job on a file and return the result."""
    from scitoolkit.core.model_folder import ModelFolder
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.forecasting.config import ForecastingConfig
    from scitoolkit.forecasting.data import read_field, split_field
    from scitoolkit.forecasting.job import ForecastingJob
    from scitoolkit.forecasting.surrogate import ForecastSurrogate

    config = ForecastingConfig(
        data={"path": path, "variable": variable},
        split=split,
        pod={"rank": rank},
        **{"model": {"name": "none"}, **more},
    )
    job, run = ForecastingJob(), RunDirectory.create(path.parent / "runs", path.stem, config)
    begun = time.process_time()
    job.train(config, run)
    seconds = time.process_time() - begun
    results, model = job.evaluate(run.path), ModelFolder(run.path)
    surrogate = ForecastSurrogate.load(model.path)
    windows = split_field(read_field(config.data), config).windows["test"]
    return Done(path, surrogate, results, model.record(), windows, seconds)
