"""Damped anomalies: climatology plus lead-dependent fractions of recent anomalies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

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
    last_anomaly,
)
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

PATTERNS = 3
SHRINKAGES = (3.0, 10.0)
CROSS_FITS = (1, 3)
TREND_CROSS_FIT = 2
"""Halves, so that every anomaly is that of a trend extrapolated from the other half, as those of
forecasts are. A trend interpolated between other blocks is surer than the one that is forecast,
and its anomalies return to it sooner: where the trend changes, forecasts would miss the level."""


class DampedAnomaly(Forecaster):
    """Climatology plus damped anomaly, with factors per lead and channel shrunk to common ones.

    Args:
        harmonics: of the climatology.
        leads: number of leads.
        shrinkage: weight of the common factors relative to the record: 0 for independent channels
            (few modes), inf for common factors only (many noisy cells).
        folds: see `cross_fitted_anomalies`.
        memory: lengths of means over the last inputs, used in addition to the last input.
        patterns: largest number of spatial patterns in which factors differ between channels, by
            a truncated SVD; None for no truncation.
        weights: (channel,) area weights for the common factors; None for equal weights.
        trend: whether the climatology has a linear trend.

    Raises:
        DataError: (by `fit`) no stretch is long enough.

    Source:
        Damped persistence as in seasonal forecasting (Lorenz 1973; van den Dool 2007, ch. 8).
    """

    loadings_: Array
    patterns_: Array

    def __init__(
        self,
        harmonics: int = 3,
        leads: int = 8,
        shrinkage: float = 0.0,
        folds: int = 4,
        memory: Sequence[int] = (),
        patterns: int | None = None,
        weights: Array | None = None,
        trend: bool = False,
    ) -> None:
        self.climatology: Climatology = Climatology(harmonics, trend)
        self.leads: int = leads
        self.shrinkage: float = shrinkage
        self.folds: int = folds
        self.memory: tuple[int, ...] = tuple(memory)
        self.patterns: int | None = patterns
        self.weights: Array | None = weights

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> DampedAnomaly:
        """Fit the climatology, then the damping on cross-fitted anomalies."""
        self.climatology.fit(segments)
        anomalies = cross_fitted_anomalies(segments, self.climatology, self.folds)
        if not any(len(a.values) >= self._reach + self.leads for a in anomalies):
            anomalies = cross_fitted_anomalies(segments, self.climatology, 1)
        factors = [self._factors(anomalies, lead) for lead in range(1, self.leads + 1)]
        self.common_: np.ndarray = np.stack([common for common, _ in factors])
        own = np.stack([departure for _, departure in factors])
        self.loadings_, self.patterns_ = _low_rank(own, self.patterns)
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the climatology and the damping factors."""
        return {
            **prefixed("climatology", self.climatology.arrays()),
            "common": self.common_,
            "loadings": self.loadings_,
            "patterns": self.patterns_,
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> DampedAnomaly:
        """Restore the fitted state from `arrays`; return self."""
        self.climatology.restore(within("climatology", arrays))
        self.common_, self.loadings_ = arrays["common"], arrays["loadings"]
        self.patterns_ = arrays["patterns"]
        return self

    @property
    def _reach(self) -> int:
        return max(self.memory, default=1)

    def _factors(self, anomalies: Sequence[TimeSeries], lead: int) -> tuple[Array, Array]:
        """Return the common factors (feature,) and the channels' deviations (feature, channel)."""
        gram: Any = 0.0
        cross: Any = 0.0
        first = self._reach - 1
        for values in (a.values for a in anomalies if len(a.values) >= self._reach + lead):
            features = [f[first : len(values) - lead] for f in self._features(values)]
            target = values[first + lead :]
            gram = gram + np.array([[(p * q).sum(0) for q in features] for p in features])
            cross = cross + np.array([(p * target).sum(0) for p in features])
        if np.isscalar(gram):
            raise DataError(
                f"no training stretch is long enough for {self._reach} steps and lead {lead}",
                fix="fewer leads, or a longer file",
            )
        weights = np.ones(gram.shape[2]) if self.weights is None else self.weights
        weights = weights / weights.mean()
        common = np.linalg.lstsq(gram @ weights, cross @ weights, rcond=None)[0]
        if not self.memory:
            common = np.clip(common, 0.0, 1.0)
        if np.isinf(self.shrinkage):
            return common, np.zeros_like(cross)
        own_power = np.einsum("iic->i", gram) / gram.shape[2]
        prior = self.shrinkage * np.diag(own_power) + np.finfo(float).tiny * np.eye(len(common))
        missing = cross - np.einsum("ijc,j->ic", gram, common)
        matrices = gram.transpose(2, 0, 1) + prior
        dead = ~(np.einsum("cii->c", gram.transpose(2, 0, 1)) > 0)
        matrices[dead] += np.eye(len(common))
        departure = np.linalg.solve(matrices, missing.T[..., None])[..., 0].T
        if not self.memory:
            departure = np.clip(common[:, None] + departure, 0.0, 1.0) - common[:, None]
        return common, departure

    def _features(self, anomalies: Array) -> list[Array]:
        """Return a list of (time, channel): the anomaly and its means over the last inputs."""
        total = np.concatenate([np.zeros((1, anomalies.shape[1])), np.cumsum(anomalies, axis=0)])
        out = [anomalies]
        for length in self.memory:
            mean = np.zeros_like(anomalies)
            mean[length - 1 :] = (total[length:] - total[:-length]) / length
            out.append(mean)
        return out

    def predict(self, windows: Windows) -> Array:
        """Return climatology plus damped anomalies, (window, lead, channel)."""
        anomalies = [last_anomaly(self.climatology, windows, k) for k in range(self._reach)]
        features = [anomalies[0], *(np.mean(anomalies[:k], axis=0) for k in self.memory)]
        out = self.climatology.predict(windows)
        for lead in range(windows.leads):
            for position, feature in enumerate(features):
                own = self.loadings_[lead, position] @ self.patterns_
                out[:, lead] += feature * (self.common_[lead, position] + own)
        return out


def _low_rank(departures: Array, limit: int | None) -> tuple[Array, Array]:
    """Return loadings (lead, feature, pattern) and patterns (pattern, channel)."""
    leads, features, channels = departures.shape
    if limit is None or channels <= limit:
        return np.moveaxis(departures, 2, -1), np.eye(channels)
    left, size, right = np.linalg.svd(departures.reshape(-1, channels), full_matrices=False)
    loadings = (left[:, :limit] * size[:limit]).reshape(leads, features, -1)
    return loadings, right[:limit]


class DampedAnomalyConfig(ForecasterConfig):
    """Climatology plus damped anomalies of the last input and of means over the last inputs.

    By default one factor per lead damps the last anomaly of all cells. Settings that are None
    (null) are selected by validation.

    Attributes:
        average: whether the forecast is the mean over the selected number of harmonics and one
            less, with memory and two shrinkages, usually more robust than the best of them.
        harmonics: of the climatology; None uses the number selected by validation.
        memory: lengths of the means over the last inputs.
        folds: number of blocks for cross-fitting the climatology.
        shrinkage: of every cell's factors towards the common ones; `common` for these alone.
        trend: whether the climatology has a linear trend.
    """

    title: ClassVar[str] = "damped anomaly"
    in_title: ClassVar[tuple[str, ...]] = ("average", "trend")

    name: Literal["damped_anomaly"] = "damped_anomaly"
    average: bool = False
    harmonics: NonNegativeInt | None = None
    memory: tuple[PositiveInt, ...] | None = ()
    folds: PositiveInt | None = 1
    shrinkage: Annotated[float, Field(ge=0)] | Literal["common"] | None = "common"
    trend: bool = False

    @model_validator(mode="after")
    def _read(self) -> DampedAnomalyConfig:
        if self.average:
            refuse_unused(self, "average", "harmonics", "memory", "folds", "shrinkage", "trend")
        return self

    def build(self, setting: Setting) -> DampedAnomaly | Average:
        """Return the unfitted model, with defaults for settings that are None."""
        if self.average:
            return self._mean(setting)
        harmonics = setting.harmonics if self.harmonics is None else self.harmonics
        common = isinstance(self.shrinkage, str)
        shrinkage = SHRINKAGES[-1] if self.shrinkage is None else self.shrinkage_value
        patterns = None if common else PATTERNS
        return DampedAnomaly(
            harmonics,
            setting.leads,
            shrinkage,
            self.folds or 1,
            self.memory or (),
            patterns,
            setting.weights,
            self.trend,
        )

    def _mean(self, setting: Setting) -> Average:
        members = [
            DampedAnomalyConfig(
                harmonics=n, memory=_memory(setting.inputs), folds=3, shrinkage=shrinkage
            )
            for n in sorted({max(0, setting.harmonics - 1), setting.harmonics})
            for shrinkage in SHRINKAGES
        ]
        return Average([member.build(setting) for member in members])

    @classmethod
    def tuned(cls, trend: bool = False) -> DampedAnomalyConfig:
        """Return the configuration whose settings are all selected by validation."""
        return cls(memory=None, folds=None, shrinkage=None, trend=trend)

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the last anomaly with common factors, the average, and the tuned settings."""
        return [cls(), cls(average=True), cls.tuned(), cls.tuned(trend=True)]

    def compares(self, setting: Setting) -> bool:
        """Return whether there are few cells, if there is a trend."""
        return not self.trend or setting.few_series

    def refuses(self, setting: Setting) -> str:
        """Return a reason if there is a trend and the record has no calendar."""
        return NO_CALENDAR if self.trend and not setting.harmonics else ""

    @property
    def shrinkage_value(self) -> float:
        """The shrinkage as a number, infinite for common factors."""
        return float(self.shrinkage) if isinstance(self.shrinkage, (int, float)) else np.inf

    @property
    def has_memory(self) -> bool:
        """Whether factors differ between cells, or means over the last inputs may be used."""
        return not self.average and (self.shrinkage != "common" or self.memory != ())

    def titled(self) -> str:
        """Return the name in tables."""
        if self.average:
            return "average of damped anomalies with memory"
        trend = " about a trend" if self.trend else ""
        if self.has_memory:
            return f"{self.title} with memory{trend}"
        return f"climatology + {self.title}{trend}"

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different memories, cross-fits and shrinkages."""
        memories = dict.fromkeys([(), _memory(setting.inputs)])
        folds = (TREND_CROSS_FIT,) if self.trend else CROSS_FITS
        return self.fill(memory=list(memories), folds=folds, shrinkage=SHRINKAGES)

    def tune_harmonics(
        self, options: Sequence[int], error: Callable[[ForecasterConfig], float]
    ) -> int:
        """Return the number of annual harmonics with the least validation error."""
        if self.harmonics is not None:
            return self.harmonics
        if len(options) == 1:
            return options[0]
        return min(options, key=lambda n: error(self.model_copy(update={"harmonics": n})))

    def label(self) -> str:
        """Return the title and the settings, for tables."""
        settings = []
        if self.has_memory:
            if self.memory is not None:
                settings.append(f"memory {'+'.join(map(str, (1, *self.memory)))}")
            if self.folds is not None:
                settings.append(f"folds {self.folds}")
            if self.shrinkage is not None:
                number = isinstance(self.shrinkage, float)
                settings.append(f"shrinkage {self.shrinkage:{'g' if number else ''}}")
        return f"{self.titled()} ({', '.join(settings)})" if settings else self.titled()


def _memory(inputs: int) -> tuple[int, ...]:
    return tuple(sorted({min(3, inputs), inputs} - {1}))
