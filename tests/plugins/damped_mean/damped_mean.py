"""A whole domain in one file: predicts the time mean of a series, found by damped iteration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import xarray as xr

from scitoolkit.core.config import DataPath, load_config
from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Finding, Job
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results, Table
from scitoolkit.core.run_directory import RunDirectory


class DampedMeanConfig(JobConfig):
    """The series of `variable` over `time` in a file, and the number of iterations."""

    domain: Literal["damped_mean"] = "damped_mean"
    data: DataPath
    variable: str = "x"
    iterations: int = 20


class DampedMeanJob(Job):
    """The time mean of a series."""

    config_class: ClassVar[type[DampedMeanConfig]] = DampedMeanConfig

    def validate(self, config: DampedMeanConfig) -> Sequence[Finding]:
        """Report a file without the variable."""
        if config.data.exists() and config.variable not in xr.open_dataset(config.data):
            return [Finding(f"no variable {config.variable!r}", key="variable")]
        return ()

    def check(self, config: DampedMeanConfig) -> Mapping[str, Any]:
        """Read the series."""
        return {"steps": len(_series(config.data, config.variable))}

    def train(self, config: DampedMeanConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Move half of the way to the mean in each iteration; a checkpoint after each."""
        series = _series(config.data, config.variable)
        saved = run.checkpoints / "state.json"
        state = {"step": 0, "mean": 0.0}
        if resume and saved.exists():
            state = json.loads(saved.read_text())
        while state["step"] < config.iterations:
            state = {"step": state["step"] + 1, "mean": (state["mean"] + float(series.mean())) / 2}
            write_atomic(saved, json.dumps(state))
            run.log_metrics({"validation/loss": _error(series, state["mean"])}, step=state["step"])
        ModelFolder.create(run).finish(run, state)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Return the RMSE of the mean."""
        config = load_config(DampedMeanConfig, directory / "config.yaml")
        error = _error(_series(data or config.data, config.variable), _mean(directory))
        table = Table(title="Error", columns=["RMSE"], rows=[[error]])
        results = Results(title="Damped mean", metrics={"rmse": error}, tables=[table])
        ModelFolder(directory).write_results(results, data)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Write the mean once for every time of the file."""
        config = load_config(DampedMeanConfig, directory / "config.yaml")
        series = _series(source, config.variable)
        (0 * series + _mean(directory)).to_dataset(name=config.variable).to_netcdf(output)


def _series(path: Path, variable: str) -> xr.DataArray:
    if not path.exists():
        raise DataError("no such file", where=str(path))
    with xr.open_dataset(path) as dataset:
        return dataset[variable].load()


def _mean(directory: Path) -> float:
    return float(ModelFolder(directory).record()["mean"])


def _error(series: xr.DataArray, mean: float) -> float:
    return float(((series - mean) ** 2).mean() ** 0.5)
