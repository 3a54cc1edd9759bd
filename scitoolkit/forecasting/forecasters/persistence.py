"""Persistence: the last input at all leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from scitoolkit.forecasting.forecasters.base import Forecaster, ForecasterConfig, Memo, Setting
from scitoolkit.forecasting.windows import Array, Series, Windows


class Persistence(Forecaster):
    """Persistence: the forecast is the last input at all leads."""

    def fit(self, segments: Sequence[Series], memo: Memo | None = None) -> Persistence:
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
    """Persistence of the last input."""

    title: ClassVar[str] = "persistence"

    name: Literal["persistence"] = "persistence"

    def build(self, setting: Setting) -> Persistence:
        """Return the model, which needs no fit."""
        return Persistence()
