"""The stages of a forecast's data, apart from those of its models, which import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scitoolkit.core.data_differences import Accepts, Difference
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import ACCEPTS
from scitoolkit.forecasting.field_file import FieldFile, training_file
from scitoolkit.surrogate.stages import DataStages, Parts


class FieldStages(DataStages):
    """Stages of a gridded time series, whose samples are its time steps."""

    def open(self, config: ForecastingConfig, path: Any) -> FieldFile:
        """Return the file, of which nothing is read yet."""
        return FieldFile(config, path)

    def open_indexed(self, config: ForecastingConfig, path: Any, keep: bool) -> FieldFile:
        """Return the file of a training, whose values trials of a search share."""
        return training_file(config, path) if keep else FieldFile(config, path)

    def facts(self, config: ForecastingConfig, data: FieldFile) -> DataFacts:
        """Return what the headers say about the variables."""
        return data.facts

    def accepts(self, config: ForecastingConfig) -> Accepts:
        """Allow gaps, across which no window extends."""
        return ACCEPTS

    def convert(
        self, data: FieldFile, differences: Sequence[Difference], trained: DataFacts | None
    ) -> FieldFile:
        """Return the file, each of whose simulations is converted when it is read."""
        return data if trained is None else FieldFile(data.config, data.config.data.path, trained)

    def split(self, config: ForecastingConfig, data: FieldFile) -> Parts:
        """Return the steps of each part."""
        return {name: [steps] for name, steps in data.split[1].steps.items()}
