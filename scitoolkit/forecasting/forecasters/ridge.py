"""Linear map from all inputs to all leads in the modes, with a forecast outside the modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.plugins import Choice
from scitoolkit.forecasting.forecasters.average import Average
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Memo,
    Setting,
    forecasters,
)
from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomalyConfig
from scitoolkit.forecasting.forecasters.frames import InFrame, Modes
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows, all_windows, blocked_folds


class RidgeAutoregression(Forecaster):
    """Linear map from all inputs to all outputs, with `alpha` selected by blocked validation.

    Args:
        inputs: number of input steps.
        leads: number of output steps.
        alphas: candidate penalties on standardised channels; empty for `alphas_default`.
        folds: number of validation blocks.
        increments: whether inputs and outputs are differences from the last input, so that the
            forecast follows a level or a trend that leaves the range of the record.
        season: steps of a season: outputs, and inputs if `increments`, are differences from the
            means of the same phases over the whole seasons of the inputs, so that the forecast
            follows a season that changes. 0 for none.
    """

    alphas_default: ClassVar[tuple[float, ...]] = (0.1, 1.0, 10.0, 100.0, 1000.0)

    def __init__(
        self,
        inputs: int = 8,
        leads: int = 8,
        alphas: Sequence[float] = (),
        folds: int = 4,
        increments: bool = False,
        season: int = 0,
    ) -> None:
        self.inputs: int = inputs
        self.leads: int = leads
        self.folds: int = folds
        self.increments: bool = increments
        self.season: int = season
        self.alphas: tuple[float, ...] = tuple(alphas) or self.alphas_default

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> RidgeAutoregression:
        """Select `alpha_` by validation, then fit to all segments."""
        values = np.concatenate([s.values for s in segments])
        self.mean_: Any = values.mean(axis=0)
        spread = values.std(axis=0)
        self.scale_: np.ndarray = np.where(spread > 0, spread, 1.0)
        length = self.inputs + self.leads
        errors = np.zeros(len(self.alphas))
        longest = max(len(s.values) for s in segments)
        folds = min(self.folds, longest // (2 * length))
        if len(self.alphas) > 1 and folds > 1:
            for train, block in blocked_folds(segments, folds, self.leads, length):
                x, y = self._table(train)
                xv, yv = self._table([block])
                errors += [((yv - xv @ w) ** 2).sum() for w in _ridge(x, y, self.alphas)]
        self.alpha_: float = float(self.alphas[int(np.argmin(errors))])
        self.weights_: Any = next(_ridge(*self._table(segments), [self.alpha_]))
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """Return mean, scale and weights."""
        return {"mean": self.mean_, "scale": self.scale_, "weights": self.weights_}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> RidgeAutoregression:
        """Restore the fitted state from `arrays`; return self."""
        self.mean_, self.scale_ = arrays["mean"], arrays["scale"]
        self.weights_ = arrays["weights"]
        return self

    def _table(self, segments: Sequence[TimeSeries]) -> tuple[Array, Array]:
        long = [s for s in segments if len(s.values) >= self.inputs + self.leads]
        if not long:
            raise DataError(
                "no stretch without gaps has a window", fix="a longer file, or fewer steps"
            )
        windows = [
            all_windows(
                TimeSeries((s.values - self.mean_) / self.scale_, s.years), self.inputs, self.leads
            )
            for s in long
        ]
        x, y = [], []
        for w in windows:
            before, after = self._references(w.input_values())
            x.append(_with_one(w.input_values() - before))
            y.append((w.targets() - after).reshape(len(w), -1))
        return np.concatenate(x), np.concatenate(y)

    def _references(self, inputs: Array) -> tuple[Array | float, Array | float]:
        """Return what inputs (window, inputs, channel) and outputs are differences from."""
        if not self.season:
            last = inputs[:, -1:] if self.increments else 0.0
            return last, last
        whole = self.inputs // self.season * self.season
        periods = inputs[:, -whole:].reshape(len(inputs), -1, self.season, inputs.shape[2])
        phases = periods.mean(axis=1)
        before = phases[:, np.arange(-self.inputs, 0) % self.season]
        return before if self.increments else 0.0, phases[:, np.arange(self.leads) % self.season]

    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, channel)."""
        return self.forecast(windows.input_values())[:, : windows.leads]

    def forecast(self, inputs: Array) -> Array:
        """Return the forecast (window, lead, channel) of inputs (window, inputs, channel)."""
        scaled = (inputs - self.mean_) / self.scale_
        before, after = self._references(scaled)
        out = (_with_one(scaled - before) @ self.weights_).reshape(len(inputs), self.leads, -1)
        return (out + after) * self.scale_ + self.mean_


def _with_one(inputs: Array) -> Array:
    flat = inputs.reshape(len(inputs), -1)
    return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)


def _ridge(x: Array, y: Array, alphas: Sequence[float]) -> Any:
    gram, cross = x.T @ x, x.T @ y
    for alpha in alphas:
        penalty = alpha * np.eye(len(gram))
        penalty[-1, -1] = 1e-9  # the intercept is not penalised
        yield np.linalg.solve(gram + penalty, cross)


class PodRidgeConfig(ForecasterConfig):
    """Ridge autoregression of mode coefficients, with another forecast outside the modes.

    Attributes:
        base: forecaster outside the modes; None for the climatology.
        increments: whether changes from the last input are forecast instead of values, for a few
            series whose level wanders. `season`: changes from the means of the same phases of the
            season in the inputs, for a few series whose season changes, as the mean of two
            regressions, on the inputs and on their differences from these means.
    """

    title: ClassVar[str] = "POD ridge"

    in_title: ClassVar[tuple[str, ...]] = ("increments",)

    name: Literal["pod_ridge"] = "pod_ridge"
    base: Annotated[ForecasterConfig, Choice(forecasters)] | None = None
    increments: bool | Literal["season"] = False

    def build(self, setting: Setting) -> InFrame:
        """Return the unfitted model."""
        kinds, season = [bool(self.increments)], 0
        if self.increments == "season":
            kinds, season = [False, True], setting.season
        size = setting.inputs, setting.leads
        ridges = [RidgeAutoregression(*size, increments=kind, season=season) for kind in kinds]
        inner = Average(ridges) if season else ridges[0]
        return InFrame(Modes(setting), inner, self.base.build(setting) if self.base else None)

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the climatology and the damped anomaly outside the modes."""
        with_base = cls(base=DampedAnomalyConfig.tuned())
        return [with_base, cls(), cls(increments=True), cls(increments="season")]

    def compares(self, setting: Setting) -> bool:
        """Return whether there are few cells, if increments are forecast."""
        return not self.increments or setting.few_series

    def refuses(self, setting: Setting) -> str:
        """Return a reason if the inputs hold no season, or that of the base."""
        if self.increments == "season" and not 2 <= setting.season <= setting.inputs:
            return f"the {setting.inputs} input steps hold no season of whole steps"
        return self.base.refuses(setting) if self.base else ""

    def titled(self) -> str:
        """Return the name in tables."""
        kind = {False: "", True: " of increments", "season": " of seasonal increments"}
        ridge = f"{self.title}{kind[self.increments]}"
        return f"{self.base.titled() if self.base else 'climatology'} + {ridge}"
