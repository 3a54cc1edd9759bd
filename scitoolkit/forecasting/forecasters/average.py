"""Mean of several forecasters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scitoolkit.forecasting.forecasters.base import Forecaster, Memo, prefixed, within
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows


class Average(Forecaster):
    """Mean of several forecasters, usually more robust than the best one."""

    def __init__(self, members: Sequence[Forecaster]) -> None:
        self.members: list[Forecaster] = list(members)

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Average:
        """Fit every member."""
        for member in self.members:
            member.fit(segments)
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the mean forecast, (window, lead, channel)."""
        return np.mean([member.predict(windows) for member in self.members], axis=0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of every member."""
        parts = [prefixed(str(i), member.arrays()) for i, member in enumerate(self.members)]
        return {key: value for part in parts for key, value in part.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Average:
        """Restore the fitted state from `arrays`; return self."""
        for i, member in enumerate(self.members):
            member.restore(within(str(i), arrays))
        return self
