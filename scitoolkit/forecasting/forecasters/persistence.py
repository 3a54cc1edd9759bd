"""Persistence: the last input at all leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, model_validator

from scitoolkit.core.config import refuse_unused
from scitoolkit.forecasting.forecasters.base import Forecaster, ForecasterConfig, Memo, Setting
from scitoolkit.forecasting.forecasters.climatology import AnomalyPersistence, chosen_harmonics
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows


class Persistence(Forecaster):
    """Persistence: the forecast is the last input at all leads."""

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Persistence:
        """Return self; there is nothing to fit."""
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the last input at all leads, (window, lead, channel)."""
        return np.repeat(windows.lagged(0)[:, None], windows.leads, axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return an empty dictionary; there is no fitted state."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Persistence:
        """Return self."""
        return self


class PersistenceConfig(ForecasterConfig):
    """Persistence of the last input, or of its anomaly from the climatology.

    Attributes:
        anomalies: whether the anomaly persists.
        harmonics: of the climatology; None uses the number selected by validation.
    """

    title: ClassVar[str] = "persistence"
    in_title: ClassVar[tuple[str, ...]] = ("anomalies",)

    name: Literal["persistence"] = "persistence"
    anomalies: bool = False
    harmonics: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _read(self) -> PersistenceConfig:
        if not self.anomalies:
            refuse_unused(self, "anomalies false", "harmonics")
        return self

    def build(self, setting: Setting) -> Forecaster:
        """Return the unfitted model."""
        if self.anomalies:
            return AnomalyPersistence(chosen_harmonics(self.harmonics, setting))
        return Persistence()

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the persistence of values and of anomalies."""
        return [cls(), cls(anomalies=True)]

    def titled(self) -> str:
        """Return the name in tables."""
        return f"climatology + anomaly {self.title}" if self.anomalies else self.title
