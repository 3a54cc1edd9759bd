"""Mean of damped anomalies with memory over two numbers of harmonics and two shrinkages."""

from __future__ import annotations

from typing import ClassVar, Literal

from scitoolkit.forecasting.forecasters.autoregression import Average
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting
from scitoolkit.forecasting.forecasters.damped_anomaly import SHRINKAGES, MemoryConfig


class DampedAverageConfig(ForecasterConfig):
    """Mean of damped anomalies with memory, usually more robust than the best member.

    The members combine the selected number of harmonics and one less with two shrinkages.
    """

    title: ClassVar[str] = "average of damped anomalies with memory"

    name: Literal["damped_anomaly_average"] = "damped_anomaly_average"

    def build(self, setting: Setting) -> Average:
        """Return the unfitted model."""
        memory = tuple(sorted({min(3, setting.inputs), setting.inputs} - {1}))
        members = [
            MemoryConfig(harmonics=n, memory=memory, folds=3, shrinkage=shrinkage)
            for n in sorted({max(0, setting.harmonics - 1), setting.harmonics})
            for shrinkage in SHRINKAGES
        ]
        return Average([member.build(setting) for member in members])
