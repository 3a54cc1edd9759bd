"""Forecasts from a file that was altered: what is neither right, nor refused, nor told.

A surrogate is trained on a monthly field of 180 steps. Its file is altered, and read by `predict`
and by `evaluate`. Another form of the same data is right if the forecast (the scores) equals that
of the file as it was, to 1e-6 of its range. Other data have to be refused with exit code 2 to 4,
no file being written, or told in a warning. All else is silent.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
import yaml
from _places import HELPERS

import scitoolkit
from scitoolkit.core.errors import ScitoolkitError

sys.path.insert(0, str(HELPERS))
RIGHT = 1e-6


class Warned(logging.Handler):
    """Counts the warnings of the package."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def forecast_of(run: Path, source: Path) -> dict[str, np.ndarray]:
    """Return the variables of a forecast, latitudes and longitudes in ascending order."""
    output = source.with_name("out.nc")
    output.unlink(missing_ok=True)
    scitoolkit.predict(run, source, output)
    with xr.open_dataset(output, engine="h5netcdf") as opened:
        out = opened.load()
    space = [d for d in out["u"].dims if d != "lead"]
    return {str(n): v.transpose("lead", *space).values for n, v in out.data_vars.items()}


def scores_of(run: Path, source: Path) -> dict[str, np.ndarray]:
    """Return the scores of an evaluation."""
    metrics = scitoolkit.evaluate(run, data=source).metrics
    return {k: np.array(v, float) for k, v in metrics.items() if isinstance(v, float)}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Return whether all values are equal to 1e-6 of their range."""
    if first.keys() != second.keys():
        return False
    for name, values in first.items():
        away = np.abs(values - second[name]) if values.shape == second[name].shape else np.inf
        if not np.all(away <= RIGHT * np.abs(values).max()):
            return False
    return True


def run() -> dict:
    """Return the counts, and the names of what was silent."""
    from altered_field import EQUAL, REFUSED, TOLD, monthly

    warned = Warned()
    logging.getLogger("scitoolkit").addHandler(warned)
    counts = {"right": 0, "refused": 0, "told": 0}
    silent: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = folder / "plain.nc"
        monthly().to_netcdf(plain, engine="h5netcdf")
        settings = {
            "domain": "forecasting",
            "data": {"path": str(plain), "variable": "u"},
            "inputs": 4,
            "leads": 3,
            "forecaster": {"name": "damped_anomaly"},
            "model": {"name": "none"},
            "run": {"root": str(folder / "runs")},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        trained = scitoolkit.run(folder / "job.yaml").path
        commands: dict[str, Callable] = {"predict": forecast_of, "evaluate": scores_of}
        for command, apply in commands.items():
            expected = apply(trained, plain)
            for title, alter in {**EQUAL, **TOLD, **REFUSED}.items():
                # Fewer steps are other test windows, so that their scores have no expectation.
                if command == "evaluate" and "step" in title and title in EQUAL:
                    continue
                alter(monthly()).to_netcdf(folder / "in.nc", engine="h5netcdf")
                warned.count = 0
                try:
                    result = apply(trained, folder / "in.nc")
                except ScitoolkitError as error:
                    fine = error.exit_code in (2, 3, 4) and title in REFUSED
                    outcome = "refused" if fine else ""
                else:
                    outcome = "right" if title in EQUAL and same(expected, result) else ""
                    outcome = outcome or ("told" if warned.count else "")
                if outcome:
                    counts[outcome] += 1
                else:
                    silent.append(f"{command}: {title}")
    logging.getLogger("scitoolkit").removeHandler(warned)
    files = len({**EQUAL, **TOLD, **REFUSED})
    return {"files": files, **counts, "silent": len(silent), "silent_names": silent}
