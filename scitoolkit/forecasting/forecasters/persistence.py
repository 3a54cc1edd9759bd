"""Persistence: the last input, held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from scitoolkit.forecasting.forecasters.base import Forecaster, ForecasterConfig, Memo, Setting
from scitoolkit.forecasting.windows import Array, Series, Windows


class Persistence(Forecaster):
    """The last input, held at every lead."""

    def fit(self, segments: Sequence[Series], memo: Memo | None = None) -> Persistence:
        """Nothing to learn."""
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the last input at every lead."""
        return np.repeat(windows.lagged(0)[:, None], windows.leads, axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return nothing: there is nothing to keep."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Persistence:
        """Return self."""
        return self


class PersistenceConfig(ForecasterConfig):
    """Holds the last input."""

    title: ClassVar[str] = "persistence"

    name: Literal["persistence"] = "persistence"

    def build(self, setting: Setting) -> Persistence:
        """Return the model."""
        return Persistence()
