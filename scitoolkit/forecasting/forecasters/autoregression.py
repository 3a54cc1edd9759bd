"""Seasonal autoregression of anomalies with memory, and averages of forecasters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from scitoolkit.core.config import refuse_unused
from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.forecasters.average import Average
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Memo,
    Setting,
    prefixed,
    within,
)
from scitoolkit.forecasting.forecasters.climatology import (
    NO_CALENDAR,
    Climatology,
    cross_fitted_anomalies,
)
from scitoolkit.forecasting.forecasters.frames import InFrame, Modes
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows, all_windows

HARMONICS = (2, 3, 4, 5)
ALPHAS = (100.0, 300.0, 1000.0, 3000.0)


class AnomalyAutoregression(Forecaster):
    """Ridge regression between anomalies with seasonally varying coefficients.

    The coefficients are shrunk towards the damped anomaly of each channel. The regression adds
    coupling between channels, memory (means of the last inputs) and seasonal modulation; with
    `alpha` -> inf it equals the damped anomaly.

    Args:
        harmonics: of the climatology.
        leads: number of leads.
        alpha: ridge penalty on standardised anomalies.
        memory: lengths of means over the last inputs, used in addition to the last input.
        seasonal: whether the products of the last anomaly with cos and sin of the season are used.
        folds: see `cross_fitted_anomalies`.
    """

    def __init__(
        self,
        harmonics: int = 3,
        leads: int = 8,
        alpha: float = 300.0,
        memory: Sequence[int] = (3, 8),
        seasonal: bool = True,
        folds: int = 4,
    ) -> None:
        self.climatology: Climatology = Climatology(harmonics)
        self.leads: int = leads
        self.alpha: float = alpha
        self.memory: tuple[int, ...] = tuple(memory)
        self.seasonal: bool = seasonal
        self.folds: int = folds

    def fit(
        self, segments: Sequence[TimeSeries], memo: Memo | None = None
    ) -> AnomalyAutoregression:
        """Fit the climatology, then one regression per lead on cross-fitted anomalies."""
        self.climatology.fit(segments)
        anomalies = cross_fitted_anomalies(segments, self.climatology, self.folds)
        spread = np.concatenate([a.values for a in anomalies]).std(axis=0)
        self.scale_: np.ndarray = np.where(spread > 0, spread, 1.0)
        scaled = [TimeSeries(a.values / self.scale_, a.years) for a in anomalies]
        self.weights_: np.ndarray = np.stack(
            [self._regress(scaled, j) for j in range(1, self.leads + 1)]
        )
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the climatology, scales and regression weights."""
        climatology = prefixed("climatology", self.climatology.arrays())
        return {**climatology, "scale": self.scale_, "weights": self.weights_}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> AnomalyAutoregression:
        """Restore the fitted state from `arrays`; return self."""
        self.climatology.restore(within("climatology", arrays))
        self.scale_, self.weights_ = arrays["scale"], arrays["weights"]
        return self

    def _regress(self, anomalies: Sequence[TimeSeries], lead: int) -> Array:
        inputs = max(self.memory, default=1)
        parts = [a for a in anomalies if len(a.values) >= inputs + lead]
        if not parts:
            raise DataError(
                "the training part is too short for an autoregression",
                allowed=f"an unbroken stretch of at least {self.folds * (inputs + lead)} steps",
            )
        windows = [all_windows(a, inputs, lead) for a in parts]
        x = np.concatenate([self._features(_season(w), w.input_values()) for w in windows])
        y = np.concatenate([w.series.values[w.starts + inputs + lead - 1] for w in windows])
        channels = y.shape[1]
        weights = np.zeros((x.shape[1], channels))
        diagonal = np.arange(channels)
        own = x[:, :channels]
        weights[diagonal, diagonal] = (own * y).sum(0) / np.maximum((own * own).sum(0), 1e-300)
        gram = x.T @ x + self.alpha * np.eye(x.shape[1])
        return weights + np.linalg.solve(gram, x.T @ (y - x @ weights))

    def _features(self, season: Array, anomalies: Array) -> Array:
        """Return (window, feature) from (window,) radians and (window, inputs, channel)."""
        last = anomalies[:, -1]
        columns = [last, *(anomalies[:, -k:].mean(axis=1) for k in self.memory)]
        if self.seasonal and not np.isnan(season).any():
            columns += [last * np.cos(season)[:, None], last * np.sin(season)[:, None]]
        return np.concatenate(columns, axis=1)

    def predict(self, windows: Windows) -> Array:
        """Return climatology plus regressed anomaly, (window, lead, channel)."""
        anomalies = windows.input_values() - self.climatology.at(windows.input_years())
        x = self._features(_season(windows), anomalies / self.scale_)
        out = np.einsum("wf,lfc->wlc", x, self.weights_[: windows.leads]) * self.scale_
        return out + self.climatology.predict(windows)


def _season(windows: Windows) -> Array:
    return 2 * np.pi * windows.input_years()[:, -1]


class AutoregressionConfig(ForecasterConfig):
    """Ridge regression of mode anomalies with memory and seasonally varying coefficients.

    Attributes:
        average: whether the forecast is the mean over harmonics 2 to 5 and four penalties.
        harmonics: of the climatology; None is selected by validation.
        alpha: ridge penalty on standardised anomalies; None is selected by validation.
    """

    title: ClassVar[str] = "seasonal autoregression"
    in_title: ClassVar[tuple[str, ...]] = ("average",)

    name: Literal["autoregression"] = "autoregression"
    average: bool = False
    harmonics: NonNegativeInt | None = None
    alpha: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _read(self) -> AutoregressionConfig:
        if self.average:
            refuse_unused(self, "average", "harmonics", "alpha")
        return self

    def build(self, setting: Setting) -> InFrame:
        """Return the unfitted model in the POD modes."""
        if not self.average:
            return InFrame(_frame(setting), self.build_inner(setting))
        members = [
            AutoregressionConfig(harmonics=n, alpha=alpha).build_inner(setting)
            for n in HARMONICS
            for alpha in ALPHAS
        ]
        return InFrame(_frame(setting), Average(members))

    def build_inner(self, setting: Setting) -> AnomalyAutoregression:
        """Return the unfitted model of mode coefficients."""
        memory = tuple(sorted({min(3, setting.inputs), setting.inputs} - {1}))
        return AnomalyAutoregression(
            setting.harmonics if self.harmonics is None else self.harmonics,
            setting.leads,
            self.alpha or ALPHAS[1],
            memory,
        )

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the autoregression with selected settings, and the average."""
        return [cls(), cls(average=True)]

    def titled(self) -> str:
        """Return the name in tables."""
        return f"average of {self.title}s" if self.average else self.title

    def refuses(self, setting: Setting) -> str:
        """Return a reason if the record has no calendar."""
        return "" if setting.harmonics else NO_CALENDAR

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different harmonics and penalties."""
        if self.average:
            return [self]
        harmonics = [setting.harmonics, *(n for n in HARMONICS if n != setting.harmonics)]
        return self.fill(harmonics=harmonics, alpha=ALPHAS)


def _frame(setting: Setting) -> Modes:
    """Return modes of deviations from the mean, so that the coefficients contain the season."""
    return Modes(setting, seasonal=False)
