"""Forecasting job, used by the command line, by searches and from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import Artifacts
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.parameters import network_cost
from scitoolkit.surrogate import StagesAt, SurrogateJob


class ForecastingJob(SurrogateJob):
    """Training and evaluation of forecasts of a gridded time series."""

    config_class: ClassVar[type[ForecastingConfig]] = ForecastingConfig
    stages = StagesAt("scitoolkit.forecasting.stages:ForecastStages")
    data_stages = StagesAt("scitoolkit.forecasting.field_stages:FieldStages")
    task: ClassVar[str] = "forecast"
    starter_name: ClassVar[str] = "scitoolkit.forecasting.starter:starter"

    def search_trial(
        self, config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train the network of a trial; return its scores on the validation part and its cost.

        RMSEs are in the unit of the field: `validation_rmse` with the full correction by the
        network, `validation_rmse_supported` with the correction scaled by `lead_factors`,
        `validation_rmse_base` without it. `validation_loss` is the loss of the network.

        Raises:
            ConfigError: the configuration has no network.
        """
        from scitoolkit.forecasting.fitting import judge_network
        from scitoolkit.surrogate import fit, start

        if config.model.name == "none":
            raise ConfigError(
                "model.name none has no network to train",
                where="model.name",
                allowed="not none",
                fix="model.name=auto",
            )
        begun = start(self.stages, config, run.path)
        trainer, forecast = fit(self.stages, config, begun, run, resume=resume), begun.model
        judged = judge_network(forecast.prepared, forecast.correction, config)
        return {
            **network_cost(config),
            "validation_rmse": judged.full,
            "validation_rmse_supported": judged.entry.validation,
            "validation_rmse_base": forecast.prepared.selection.winner.validation,
            "validation_loss": float(trainer.best["loss"]) if trainer.best else float("nan"),
        }

    def search_cost(self, config: ForecastingConfig) -> Mapping[str, float]:
        """Return the number of network parameters; 40 modes are assumed for an automatic rank."""
        return network_cost(config)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish and the selected forecaster for the model card."""
        winner = ModelFolder(directory).record()["winner"]
        return Artifacts(rows=[f"| chosen on validation | {winner} |"])
