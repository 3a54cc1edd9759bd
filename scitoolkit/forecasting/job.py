"""The forecasting job: what the command line, a search and a Python user call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.job import Artifacts, PipelineJob
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.parameters import network_cost
from scitoolkit.training import TrainingJob


class ForecastingJob(PipelineJob, TrainingJob):
    """Forecasts of gridded series."""

    config_class: ClassVar[type[ForecastingConfig]] = ForecastingConfig
    pipeline_name: ClassVar[str] = "scitoolkit.forecasting.pipeline"
    task: ClassVar[str] = "forecast"
    starter_name: ClassVar[str] = "scitoolkit.forecasting.starter:starter"

    def search_trial(
        self, config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train the network alone; return `validation_rmse` of the corrected forecast."""
        from scitoolkit.forecasting import pipeline

        return pipeline.search_trial(config, run, resume=resume)

    def search_cost(self, config: ForecastingConfig) -> Mapping[str, float]:
        """Return the number of trained parameters; 40 modes are assumed where a rank is chosen."""
        return network_cost(config)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays, which `deploy` writes as C."""
        from scitoolkit.forecasting.traced import traced

        return traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder, and the forecaster that was chosen."""
        winner = ModelFolder(directory).record()["winner"]
        return Artifacts(rows=[f"| chosen on validation | {winner} |"])
