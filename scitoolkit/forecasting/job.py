"""Forecasting job, used by the command line, by searches and from Python."""

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
    """Training and evaluation of forecasts of a gridded time series."""

    config_class: ClassVar[type[ForecastingConfig]] = ForecastingConfig
    pipeline_name: ClassVar[str] = "scitoolkit.forecasting.pipeline"
    task: ClassVar[str] = "forecast"
    starter_name: ClassVar[str] = "scitoolkit.forecasting.starter:starter"

    def search_trial(
        self, config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train the network of a trial; return its scores on the validation part."""
        from scitoolkit.forecasting import pipeline

        return pipeline.search_trial(config, run, resume=resume)

    def search_cost(self, config: ForecastingConfig) -> Mapping[str, float]:
        """Return the number of network parameters; 40 modes are assumed for an automatic rank."""
        return network_cost(config)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays, which `deploy` exports to C."""
        from scitoolkit.forecasting.traced import traced

        return traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish and the selected forecaster for the model card."""
        winner = ModelFolder(directory).record()["winner"]
        return Artifacts(rows=[f"| chosen on validation | {winner} |"])
