"""Forecasts that any surrogate must beat: closed-form, fitted in milliseconds.

All have `fit(segments)` and `predict(windows) -> (window, lead, channel)`, and work on POD
coefficients and on whole fields alike. What they learn beyond a climatology is estimated on
anomalies from a climatology that has not seen them (cross-fitting): a climatology that is used
after its training years is wrong by its own sampling error and by drift, and damping factors
estimated in-sample would not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.windows import Array, Series, Windows, all_windows, blocked_folds


class Forecaster(Protocol):
    """What a baseline and a surrogate have in common."""

    def fit(self, segments: Sequence[Series]) -> Forecaster:
        """Learn from unbroken stretches of a record; return self."""

    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, channel)."""


class Persistence:
    """The last input, held."""

    def fit(self, segments: Sequence[Series]) -> Persistence:
        """Nothing to learn."""
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the last input at every lead."""
        return np.repeat(windows.lagged(0)[:, None], windows.leads, axis=1)


class Climatology:
    """Mean, annual harmonics of the true calendar, and (optionally) a linear trend.

    Args:
        harmonics: number of annual harmonics; fewer are used when the steps of the record
            cannot resolve them, none when it spans less than two years or has no calendar.
        trend: whether a linear trend is fitted too. Off by default: a trend of a few years
            extrapolates badly.

    Example:
        >>> years = 2000 + np.arange(48) / 12
        >>> values = 15 + 3 * np.cos(2 * np.pi * years)[:, None]
        >>> model = Climatology(harmonics=2).fit([Series(values, years)])
        >>> float(np.abs(model.at(years) - values).max().round(6))
        0.0
    """

    def __init__(self, harmonics: int = 3, trend: bool = False) -> None:
        self.harmonics: int = harmonics
        self.trend: bool = trend

    def fit(self, segments: Sequence[Series]) -> Climatology:
        """Fit by least squares over all segments."""
        values = np.concatenate([s.values for s in segments])
        years = np.concatenate([s.years for s in segments])
        self.used_: int = min(self.harmonics, resolvable_harmonics(years))
        self.origin_: float = 0.0 if np.isnan(years).any() else float(years.mean())
        design = self._design(years)
        self.coefficients_: np.ndarray = np.linalg.lstsq(design, values, rcond=None)[0]
        return self

    def at(self, years: Array) -> Array:
        """Return (..., channel) for (...) decimal years."""
        return self._design(years) @ self.coefficients_

    def anomalies(self, series: Series) -> Series:
        """Return the series minus its climatology."""
        return Series(series.values - self.at(series.years), series.years)

    def predict(self, windows: Windows) -> Array:
        """Return the climatology of the times to forecast."""
        return self.at(windows.output_years())

    def _design(self, years: Array) -> Array:
        years = np.asarray(years)
        columns = [np.ones(years.shape)]
        for order in range(1, self.used_ + 1):
            angle = 2 * np.pi * order * years
            columns += [np.cos(angle), np.sin(angle)]
        if self.trend and not np.isnan(years).any():
            columns.append(years - self.origin_)
        return np.stack(columns, axis=-1)


def resolvable_harmonics(years: Array) -> int:
    """Return how many annual harmonics a record can tell apart from noise and from aliases."""
    if np.isnan(years).any() or len(years) < 3 or np.ptp(years) < 1.9:
        return 0
    step = float(np.median(np.diff(np.sort(years))))
    return int(round(1 / step, 3) // 2) if step > 0 else 0


def cross_fitted_anomalies(
    segments: Sequence[Series], climatology: Climatology, folds: int
) -> list[Series]:
    """Return anomalies, each block's from a climatology fitted to all other blocks.

    Args:
        segments: stretches of the record.
        climatology: settings to copy; it is not changed.
        folds: blocks the longest stretch is cut into; 1 means in-sample anomalies.
    """
    pieces = [piece for s in segments for piece in _cut(s, _share(s, segments, folds))]
    out = []
    for i, piece in enumerate(pieces):
        others = [p for j, p in enumerate(pieces) if j != i]
        model = Climatology(climatology.harmonics, climatology.trend)
        all_years = np.concatenate([p.years for p in others]) if others else piece.years
        short = np.isfinite(piece.years).all() and resolvable_harmonics(all_years) < min(
            climatology.harmonics, resolvable_harmonics(np.concatenate([p.years for p in pieces]))
        )
        out.append(model.fit(pieces if short or not others else others).anomalies(piece))
    return out


def _share(series: Series, segments: Sequence[Series], folds: int) -> int:
    total = sum(len(s.values) for s in segments)
    return max(1, round(folds * len(series.values) / total))


def _cut(series: Series, count: int) -> list[Series]:
    edges = np.linspace(0, len(series.values), count + 1).astype(int)
    return [Series(series.values[a:b], series.years[a:b]) for a, b in pairwise(edges)]


class AnomalyPersistence:
    """Climatology plus the last anomaly, held."""

    def __init__(self, harmonics: int = 3) -> None:
        self.climatology: Climatology = Climatology(harmonics)

    def fit(self, segments: Sequence[Series]) -> AnomalyPersistence:
        """Fit the climatology."""
        self.climatology.fit(segments)
        return self

    def predict(self, windows: Windows) -> Array:
        """Return climatology + last anomaly."""
        return self.climatology.predict(windows) + last_anomaly(self.climatology, windows)[:, None]


def last_anomaly(climatology: Climatology, windows: Windows, lag: int = 0) -> Array:
    """Return (window, channel): the anomaly `lag` steps before the last input."""
    return windows.lagged(lag) - climatology.at(windows.input_years()[:, -1 - lag])


class DampedAnomaly:
    """Climatology plus a damped anomaly: factors per lead and channel, pulled to common ones.

    Args:
        harmonics: of the climatology.
        leads: number of leads to estimate damping for.
        shrinkage: pull of every channel's factors towards those common to all, in units of the
            record's own weight: 0 = each channel alone (few modes), inf = common factors only
            (many noisy cells).
        folds: see `cross_fitted_anomalies`.
        memory: lengths of the means of the last inputs that are damped beside the last input.
        patterns: largest number of spatial patterns by which factors differ between channels;
            more channels than that have their factors' differences truncated by SVD.
        weights: (channel,) area weights for the common factors.

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
    ) -> None:
        self.climatology: Climatology = Climatology(harmonics)
        self.leads: int = leads
        self.shrinkage: float = shrinkage
        self.folds: int = folds
        self.memory: tuple[int, ...] = tuple(memory)
        self.patterns: int | None = patterns
        self.weights: Array | None = weights

    def fit(self, segments: Sequence[Series]) -> DampedAnomaly:
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

    def without_anomaly(self) -> DampedAnomaly:
        """Return self, fitted, as the climatology alone."""
        self.common_[:] = 0.0
        self.loadings_[:] = 0.0
        return self

    def with_held_anomaly(self) -> DampedAnomaly:
        """Return self, fitted, with the last anomaly held at every lead."""
        self.common_[:] = 1.0
        return self

    @property
    def _reach(self) -> int:
        return max(self.memory, default=1)

    def _factors(self, anomalies: Sequence[Series], lead: int) -> tuple[Array, Array]:
        """Return the common factors (feature,) and each channel's departure (feature, channel)."""
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
                f"no stretch of the training part holds {self._reach} steps and lead {lead}",
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
        """Return [(time, channel)]: the anomaly, and its means over the last inputs."""
        total = np.concatenate([np.zeros((1, anomalies.shape[1])), np.cumsum(anomalies, axis=0)])
        out = [anomalies]
        for length in self.memory:
            mean = np.zeros_like(anomalies)
            mean[length - 1 :] = (total[length:] - total[:-length]) / length
            out.append(mean)
        return out

    def predict(self, windows: Windows) -> Array:
        """Return climatology + damping x anomalies."""
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


class AnomalyAutoregression:
    """Ridge regression between anomalies whose coefficients follow the season.

    The damped anomaly of each channel is the prior, and what ridge adds is the departure from it:
    coupling between channels, memory (means of the last inputs), and its seasonal modulation.
    With `alpha` -> inf it *is* the damped anomaly.

    Args:
        harmonics: of the climatology.
        leads: number of leads.
        alpha: ridge penalty on standardised anomalies.
        memory: lengths of the means of the last inputs that are used beside the last one.
        seasonal: whether the last anomaly also enters multiplied by cos and sin of the season.
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

    def fit(self, segments: Sequence[Series]) -> AnomalyAutoregression:
        """Fit the climatology, then one regression per lead on cross-fitted anomalies."""
        self.climatology.fit(segments)
        anomalies = cross_fitted_anomalies(segments, self.climatology, self.folds)
        spread = np.concatenate([a.values for a in anomalies]).std(axis=0)
        self.scale_: np.ndarray = np.where(spread > 0, spread, 1.0)
        scaled = [Series(a.values / self.scale_, a.years) for a in anomalies]
        self.weights_: np.ndarray = np.stack(
            [self._regress(scaled, j) for j in range(1, self.leads + 1)]
        )
        return self

    def _regress(self, anomalies: Sequence[Series], lead: int) -> Array:
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
        """Return climatology + regressed anomaly."""
        anomalies = windows.input_values() - self.climatology.at(windows.input_years())
        x = self._features(_season(windows), anomalies / self.scale_)
        out = np.einsum("wf,lfc->wlc", x, self.weights_[: windows.leads]) * self.scale_
        return out + self.climatology.predict(windows)


class Average:
    """Mean of several forecasters: steadier outside the training years than the best of them."""

    def __init__(self, members: Sequence[Forecaster]) -> None:
        self.members: list[Forecaster] = list(members)

    def fit(self, segments: Sequence[Series]) -> Average:
        """Fit every member."""
        for member in self.members:
            member.fit(segments)
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the mean forecast."""
        return np.mean([member.predict(windows) for member in self.members], axis=0)


def _season(windows: Windows) -> Array:
    return 2 * np.pi * windows.input_years()[:, -1]


class RidgeAutoregression:
    """Linear map of all inputs to all outputs, `alpha` chosen by blocked validation.

    Args:
        inputs: input steps.
        leads: output steps.
        alphas: penalties to choose from, on standardised channels.
        folds: blocks of the validation.
    """

    alphas_default: ClassVar[tuple[float, ...]] = (0.1, 1.0, 10.0, 100.0, 1000.0)

    def __init__(
        self, inputs: int = 8, leads: int = 8, alphas: Sequence[float] = (), folds: int = 4
    ) -> None:
        self.inputs: int = inputs
        self.leads: int = leads
        self.folds: int = folds
        self.alphas: tuple[float, ...] = tuple(alphas) or self.alphas_default

    def fit(self, segments: Sequence[Series]) -> RidgeAutoregression:
        """Choose `alpha_`, then fit on all segments."""
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

    def _table(self, segments: Sequence[Series]) -> tuple[Array, Array]:
        windows = [
            all_windows(Series((s.values - self.mean_) / self.scale_, s.years),
                        self.inputs, self.leads)
            for s in segments if len(s.values) >= self.inputs + self.leads
        ]  # fmt: skip
        x = np.concatenate([_with_one(w.input_values()) for w in windows])
        return x, np.concatenate([w.targets().reshape(len(w), -1) for w in windows])

    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, channel)."""
        return self.forecast(windows.input_values())[:, : windows.leads]

    def forecast(self, inputs: Array) -> Array:
        """Return (window, lead, channel) of (window, inputs, channel)."""
        x = _with_one((inputs - self.mean_) / self.scale_)
        out = (x @ self.weights_).reshape(len(inputs), self.leads, -1)
        return out * self.scale_ + self.mean_


def _with_one(inputs: Array) -> Array:
    flat = inputs.reshape(len(inputs), -1)
    return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)


def _ridge(x: Array, y: Array, alphas: Sequence[float]) -> Any:
    gram, cross = x.T @ x, x.T @ y
    for alpha in alphas:
        penalty = alpha * np.eye(len(gram))
        penalty[-1, -1] = 1e-9  # the intercept is free
        yield np.linalg.solve(gram + penalty, cross)
