"""Forecasts of thirty series of all calendars beside eight models of statsforecast.

A series is a CSV file (months on 360 days: NetCDF in `months since`, calendar 360) of months,
dekads, pentads, quarters, days, hours or plain steps, with fixed and changing seasons, trends,
random walks, moving averages and gaps. Our job is the shipped one: `auto`, closed forms, adaptive
intervals; the calendar tells its seasons (plain steps have none). Each model is fitted once to the
steps before the last 320, and forecasts from every origin in these with the values up to it.

`ratios` are our RMSE over all leads and origins over that of the best of the eight on the test part
itself, which nobody knows before. `coverage_*`: of the 90 % intervals, at each lead of each series.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from _calendar_series import TEST, Made, series
from _forecasts import folder
from _places import BENCHMARKS, PEERS
from _progress import Progress

PEER = PEERS / "forecasting" / "bin" / "python"
VALIDATION = 160
VARIABLE = "y"
PARTS = 3
"""Processes of the peers."""


def write(made: Made) -> Path:
    """Write a series as its users would have it."""
    name = made.name.replace(", ", "_").replace(" ", "_")
    if made.name.startswith("month of 360 days"):
        path = folder() / f"{name}.nc"
        attrs = {"units": "months since 1930-01-01", "calendar": "360"}
        times = ("time", np.arange(len(made.values)) + 0.5, attrs)
        data = xr.Dataset({VARIABLE: ("time", made.values)}, {"time": times})
        data.to_netcdf(path, engine="h5netcdf")
        return path
    path = folder() / f"{name}.csv"
    pd.DataFrame({"time": made.times, VARIABLE: made.values}).to_csv(path, index=False)
    return path


def steps_left(made: Made) -> int:
    """Return the number of steps once short gaps are filled and the others left out."""
    missing = pd.Series(np.isnan(made.values))
    lengths = missing.groupby((missing != missing.shift()).cumsum()).transform("sum")
    fill = made.settings.get("data", {}).get("fill", 0)
    return int((~(missing & (lengths > fill))).sum())


def forecast(made: Made) -> tuple[float, list[float], str]:
    """Return our RMSE, the coverage of the 90 % intervals per lead, and the forecaster."""
    from scitoolkit.core.model_folder import ModelFolder
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.forecasting.config import ForecastingConfig
    from scitoolkit.forecasting.data import split_field
    from scitoolkit.forecasting.fields import open_field
    from scitoolkit.forecasting.job import ForecastingJob
    from scitoolkit.forecasting.surrogate import ForecastSurrogate

    train = steps_left(made) - TEST - VALIDATION
    config = ForecastingConfig(
        data={"path": write(made), "variable": VARIABLE, **made.settings.get("data", {})},
        split={"train": train, "validation": VALIDATION, "test": TEST},
        inputs=made.inputs,
        leads=made.leads,
        intervals="adaptive",
        model={"name": "none"},
    )
    job = ForecastingJob()
    run = RunDirectory.create(folder() / "runs", "calendars", config)
    job.train(config, run)
    model = ModelFolder(run.path)
    surrogate = ForecastSurrogate.load(model.path)
    field = open_field(config, surrogate.coding, surrogate.grid, model.facts())
    windows = split_field(field.data, config).windows["test"]
    error = windows.targets() - surrogate.forecast(windows)
    low, high = surrogate.intervals(0.9)
    factors = surrogate.factors(windows)
    inside = (error >= factors * low) & (error <= factors * high)
    assert len(windows) == TEST - made.leads + 1
    coverage = inside.mean(axis=(0, 2)).round(4).tolist()
    seasons = ", ".join(f"{s:.6g}" for s in surrogate.coding.seasons)
    winner = f"{model.record()['winner']}{f'; seasons {seasons}' if seasons else ''}"
    return float(np.sqrt((error**2).mean())), coverage, winner


def begin_peers(names: list[str]) -> list[subprocess.Popen]:
    """Start the peers on all series, in three processes beside ours."""
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS), "NUMBA_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [str(PEER), str(Path(__file__).with_name("_calendars_peer.py")), *names[part::PARTS]],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for part in range(PARTS)
    ]


def end_peers(processes: list[subprocess.Popen]) -> dict[str, dict[str, float]]:
    """Return {series: {model: RMSE}} of the peers."""
    found: dict[str, dict[str, float]] = {}
    for process in processes:
        text, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"a peer ended with {process.returncode}")
        found |= json.loads(text)
    return found


def run() -> dict:
    """Return the ratios and coverages of all series."""
    figures: dict = {"rmse": {}, "ratios": {}, "coverage_per_lead": {}, "winners": {}, "best": {}}
    made, progress = series(), Progress("forecast_calendars")
    started = begin_peers([item.name for item in made])
    for item in made:
        rmse, coverage, winner = progress.part(item.name, partial(forecast, item))[0]
        figures["rmse"][item.name] = rmse
        figures["coverage_per_lead"][item.name] = coverage
        figures["winners"][item.name] = winner
        print(f"{item.name}: {rmse:.4g}, {winner}", file=sys.stderr, flush=True)
    theirs = end_peers(started)
    for name, rmse in figures["rmse"].items():
        best = min(theirs[name], key=lambda model: theirs[name][model])
        figures["best"][name] = best
        figures["ratios"][name] = round(rmse / theirs[name][best], 4)
    ratios = list(figures["ratios"].values())
    covered = [c for values in figures["coverage_per_lead"].values() for c in values]
    return {
        "series": len(made),
        "over_best_statsforecast_median": float(np.median(ratios)),
        "over_best_statsforecast_max": max(ratios),
        "coverage_min": min(covered),
        "coverage_max": max(covered),
        **figures,
        "peers": theirs,
    }
