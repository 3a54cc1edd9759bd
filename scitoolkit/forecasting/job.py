"""The forecasting job: what the command line, a search and a Python user call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.job import Artifacts
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.parameters import network_cost
from scitoolkit.training import TrainingJob


class ForecastingJob(TrainingJob):
    """Forecasts of gridded series."""

    config_class: ClassVar[type[ForecastingConfig]] = ForecastingConfig

    def check(self, config: ForecastingConfig) -> Mapping[str, Any]:
        """Open the data, fit the closed-form part, run one batch; write nothing."""
        from scitoolkit.forecasting import pipeline

        return pipeline.check(config)

    def train(self, config: ForecastingConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Fit on train, choose on validation, refit the closed-form part on both, save `model/`."""
        from scitoolkit.forecasting import pipeline

        pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Evaluate on the run's own test part, or on all of another file after the training.

        A run directory gets results.json, results.nc and model/metrics.json; with `data` nothing
        is written.
        """
        from scitoolkit.forecasting import pipeline

        return pipeline.evaluate(directory, data)

    def search_trial(
        self, config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train the network alone; return `validation_rmse` of the corrected forecast."""
        from scitoolkit.forecasting import pipeline

        return pipeline.search_trial(config, run, resume=resume)

    def search_cost(self, config: ForecastingConfig) -> Mapping[str, float]:
        """Return the number of trained parameters; 40 modes are assumed where a rank is chosen."""
        return network_cost(config)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Forecast from the last steps of a file; write NetCDF with 90 % bounds."""
        from scitoolkit.forecasting import pipeline

        pipeline.predict(directory, source, output)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder, and the forecaster that was chosen."""
        winner = ModelFolder(directory).record()["winner"]
        return Artifacts(rows=[f"| chosen on validation | {winner} |"])
