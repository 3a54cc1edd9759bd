"""Forecast of a whole field from recent readings of a few sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt
from scipy.linalg import qr

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Memo,
    Setting,
    once,
    prefixed,
    within,
)
from scitoolkit.forecasting.forecasters.frames import Modes, fitted_frame, unbroken
from scitoolkit.forecasting.forecasters.regression import RidgePath
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows, all_windows


class SensorForecast(Forecaster):
    """Linear map from the input steps of a few cells to the modes at all leads.

    The cells are selected by pivoted QR decomposition of the modes. A forecast reads no other
    cells.

    Args:
        setting: window, modes and weights.
        count: number of sensors.
        penalty: of the ridge regression.

    Attributes:
        cells_: (sensor,) indices among the unmasked cells.

    Source:
        sensor placement, Manohar et al. 2018, doi:10.1109/MCS.2018.2810460; time histories of
        sparse sensors, Williams et al. 2024, doi:10.1098/rspa.2024.0054.
    """

    cells_: np.ndarray

    def __init__(self, setting: Setting, count: int, penalty: float) -> None:
        self.setting, self.count, self.penalty = setting, count, penalty
        self.frame: Modes = Modes(setting)
        self.weights_: Array

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> SensorForecast:
        """Choose the cells, then fit the map on all stretches that hold a window."""
        frame = fitted_frame(self.frame, segments, memo)
        assert isinstance(frame, Modes)
        self.frame = frame
        scaled = frame.modes_ * frame.scale_[:, None]
        self.cells_ = np.sort(qr(scaled, mode="economic", pivoting=True)[2][: self.count])
        path, rotated = once(
            memo, ("sensors", self.count, *frame.key), lambda: self._prepared(segments)
        )
        self.weights_ = path.solve(rotated, self.penalty)
        return self

    def _prepared(self, segments: Sequence[TimeSeries]) -> tuple[RidgePath, Array]:
        inputs, leads = self.setting.inputs, self.setting.leads
        windows = [all_windows(s, inputs, leads) for s in unbroken(segments, inputs + leads)]
        path = RidgePath(np.concatenate([self.features(w) for w in windows]))
        targets = [self.frame.encode(w.targets(), w.output_years()) for w in windows]
        return path, path.rotate(np.concatenate([t.reshape(len(t), -1) for t in targets]))

    def features(self, windows: Windows) -> Array:
        """Return 1 and the anomalies at the sensors, (window, 1 + inputs x sensors)."""
        steps = windows.starts[:, None] + np.arange(windows.inputs)
        seen = windows.series.values[:, self.cells_][steps]
        seen = seen - self.frame.climatology.at(windows.input_years())[..., self.cells_]
        return np.concatenate([np.ones((len(steps), 1)), seen.reshape(len(steps), -1)], axis=1)

    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, cell)."""
        coordinates = self.features(windows) @ self.weights_
        coordinates = coordinates.reshape(len(windows), self.setting.leads, -1)
        return self.frame.decode(coordinates[:, : windows.leads], windows.output_years())

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the frame, the cells and the regression weights."""
        return {
            **prefixed("frame", self.frame.arrays()),
            "cells": self.cells_,
            "weights": self.weights_,
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> SensorForecast:
        """Restore the fitted state from `arrays`; return self."""
        self.frame.restore(within("frame", arrays))
        self.cells_, self.weights_ = arrays["cells"], arrays["weights"]
        return self


class SensorsConfig(ForecasterConfig):
    """Forecast of the field from readings of a few sensors at QR-selected cells.

    Attributes:
        count: number of sensors.
        penalty: of the ridge regression; None is selected by validation.
    """

    title: ClassVar[str] = "field from sensors"
    compared: ClassVar[bool] = False

    name: Literal["sensors"] = "sensors"
    count: PositiveInt = 10
    penalty: float | None = Field(default=None, gt=0)

    def build(self, setting: Setting) -> SensorForecast:
        """Return the unfitted model."""
        return SensorForecast(setting, self.count, self.penalty or 1e-2)

    def refuses(self, setting: Setting) -> str:
        """Return a reason if there are too few cells or too few steps for the readings."""
        if self.count > len(setting.weights):
            return f"{self.count} sensors for {len(setting.weights)} cells"
        readings = self.count * setting.inputs
        enough = readings < setting.rows
        return "" if enough else f"{readings} readings are too many for {setting.rows} steps"

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different penalties."""
        return self.fill(penalty=(1e-4, 1e-2, 1e-1, 1.0))
