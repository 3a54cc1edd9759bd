"""Acquisition function: log expected improvement, maximised globally or in a trust region."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import erfcx, log_ndtr

from scitoolkit.search.strategies.gaussian_process.embedding import Array, Embedding
from scitoolkit.search.strategies.gaussian_process.priors import Priors
from scitoolkit.search.strategies.gaussian_process.process import GaussianProcess

# Symbols: z = (best - mean) / deviation, phi and Phi the normal density and distribution;
# EI = deviation * (phi(z) + z Phi(z)) is the expected improvement, and its logarithm is maximised
# because EI itself, and with it the gradient, is 0 in float64 far from the best trials.
# Numbers: candidates drawn uniformly and around good trials, sizes of the perturbations of the
# following rounds, parents kept in a round, and children of each.
_UNIFORM, _NEAR = 512, 48
_SPREADS = (0.12, 0.04, 0.015)
_KEPT, _CHILDREN = 6, 32
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def log_improvement(z: Array) -> Array:
    """Return log(phi(z) + z Phi(z)), numerically stable for very negative z.

    Source:
        Ament et al. 2023, arXiv:2310.20708, eq. 9.

    Example:
        >>> log_improvement(np.array([0.0, -50.0])).round(3).tolist()
        [-0.919, -1258.744]
    """
    density = -0.5 * z * z - _HALF_LOG_TAU
    # Every branch is evaluated for all z: arguments outside its range are clipped, not selected.
    below = np.minimum(z, -1.0)
    ratio = math.sqrt(math.pi / 2) * erfcx(-below / math.sqrt(2))
    middle = density + np.log(np.maximum(1 + below * ratio, 1e-300))
    # For z -> -inf, 1 + z Phi / phi tends to 1 / z^2, which cancellation would lose.
    far = density - 2 * np.log(np.maximum(-z, 1.0))
    near = np.log(np.maximum(np.exp(density) + z * np.exp(log_ndtr(z)), 1e-300))
    return np.where(z > -1, near, np.where(z > -100, middle, far))


@dataclass(frozen=True)
class Region:
    """Search box: lower and upper bounds (V,) of the ordered variables."""

    low: Array
    high: Array


def whole(embedding: Embedding) -> Region:
    """Return the region that covers the whole space."""
    return Region(np.zeros(len(embedding.axes)), np.ones(len(embedding.axes)))


def trust_region(
    embedding: Embedding, process: GaussianProcess, centre: Array, side: float
) -> Region:
    """Return a box around a row (V,) with sides proportional to the length scales.

    Args:
        embedding: of the space.
        process: fitted process, for its length scales.
        centre: (V,) row at the centre.
        side: geometric mean of the side lengths.
    """
    low, high = np.zeros(len(centre)), np.ones(len(centre))
    at = embedding.columns[embedding.ordered[embedding.columns]]
    scales = 1 / np.sqrt(process.weights[: len(embedding.columns)])
    scales = scales[embedding.ordered[embedding.columns]]
    if len(at):
        # Division by the geometric mean: `side` alone sets the volume, the scales only the shape.
        half = side / 2 * scales / np.exp(np.log(scales).mean())
        half = np.where(np.isnan(centre[at]), 1.0, half)
        middle = np.where(np.isnan(centre[at]), 0.5, centre[at])
        low[at], high[at] = np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
    return Region(low, high)


def region_side(losses: Array, num_variables: int, start: int) -> float:
    """Return the side of the trust region after losses (N,), in the order of their observation.

    The side doubles after three consecutive improvements, halves after as many consecutive
    failures as there are variables (at least four), and is reset when it falls below 2^-7. It is
    recomputed from all losses, so that no state has to be restored.

    Source:
        TuRBO, Eriksson et al. 2019, arXiv:1910.01739, section 2.

    Example:
        >>> region_side(np.array([3.0, 3.0, 2.0, 1.0, 0.5]), 2, 2)
        1.6
    """
    side, better, worse, best = 0.8, 0, 0, losses[:start].min()
    for loss in losses[start:].tolist():
        # Improvements below a thousandth are noise of the trials, not a reason for larger steps.
        improved = loss < best - 1e-3 * abs(best)
        better, worse = (better + 1, 0) if improved else (0, worse + 1)
        best = min(best, loss)
        if better == 3:
            side, better = min(2 * side, 1.6), 0
        if worse == max(4, num_variables):
            side, worse = side / 2, 0
        if side < 2**-7:
            side = 0.8
    return side


class Acquisition:
    """Logarithm of the expected improvement over the best loss, and its maximisation.

    Args:
        embedding: of the space.
        process: of the losses, with predictions assumed for running trials.
        best: lowest loss.
        region: search box.
        rng: of the candidates.
        priors: expected values of parameters.
        exponent: of their density, by which the expected improvement is multiplied.
    """

    def __init__(
        self,
        embedding: Embedding,
        process: GaussianProcess,
        best: float,
        region: Region,
        rng: np.random.Generator,
        priors: Priors,
        exponent: float,
    ) -> None:
        self.priors, self.exponent = priors, exponent
        self.embedding, self.process, self.best = embedding, process, best
        self.region, self.rng = region, rng

    def __call__(self, rows: Array) -> Array:
        """Return the acquisition function (M,) at rows (M, V)."""
        mean, deviation = self.process.posterior(self.embedding.features(rows))
        value = log_improvement((self.best - mean) / deviation) + np.log(deviation)
        return value + self.exponent * self.priors.log_density(rows) if self.priors.at else value

    def candidates(self, around: Array) -> Iterator[Array]:
        """Yield rows (V,), best first, from uniform samples and perturbations of `around` (K, V).

        The best candidates are perturbed in rounds of decreasing size; the best one is then
        improved by gradient ascent.
        """
        rows = np.concatenate([self._uniform(_UNIFORM), self._perturbed(around, 0.1, _NEAR)])
        values = self(rows)
        for spread in _SPREADS:
            parents = np.argsort(-values, kind="stable")[:_KEPT]
            children = self._perturbed(rows[parents], spread, _CHILDREN)
            rest = np.argsort(-values, kind="stable")[_KEPT:][:_CHILDREN]
            rows = np.concatenate([rows[parents], rows[rest], children])
            values = np.concatenate([values[parents], values[rest], self(children)])
        order = np.argsort(-values, kind="stable")
        yield self._polished(rows[order[0]], float(values[order[0]]))
        yield from rows[order]

    def _uniform(self, count: int) -> Array:
        uniform = self.rng.random((count, len(self.embedding.axes)))
        span = self.region.high - self.region.low
        return self.embedding.lift(self.region.low + uniform * span)

    def _perturbed(self, rows: Array, spread: float, count: int) -> Array:
        """Return `count` perturbations of each row, in about a third of the variables."""
        embedding, rng = self.embedding, self.rng
        free = np.flatnonzero(embedding.free)
        shape = len(rows) * count, len(free)
        # Changes of all variables at once rarely improve a good trial.
        changed = rng.random(shape) < max(2 / len(free), 0.35)
        changed[np.arange(shape[0]), rng.integers(0, len(free), shape[0])] = True
        uniform = rng.random((shape[0], len(embedding.axes)))
        steps = rng.standard_normal(shape) * np.maximum(spread, embedding.steps[free])
        parents = np.repeat(rows, count, axis=0)
        moved = parents.copy()
        moved[:, free] += np.where(changed, steps, 0.0)
        moved = np.clip(moved, self.region.low, self.region.high, out=moved)
        for j in np.flatnonzero(~embedding.ordered & embedding.free):
            redrawn = changed[:, np.searchsorted(free, j)] & (rng.random(shape[0]) < 0.6)
            redrawn &= ~np.isnan(parents[:, j])
            moved[:, j] = np.where(redrawn, embedding.axes[j].lift(uniform[:, j]), parents[:, j])
        for j in np.flatnonzero(embedding.steps > 0):
            moved[:, j] = embedding.axes[j].lift(moved[:, j])
        return embedding.switch(moved, uniform)

    def _polished(self, row: Array, value: float) -> Array:
        """Return the row after L-BFGS ascent in its real variables, if that improves `value`."""
        embedding = self.embedding
        at = np.flatnonzero(embedding.real & embedding.free & ~np.isnan(row))
        if not len(at):
            return row
        columns = np.searchsorted(embedding.columns, at)
        features = embedding.features(row[None])[0]
        # Features of conditional variables are centred, entries are not: a constant difference.
        shift = row[at] - features[columns]

        def negative(x: Array) -> tuple[float, Array]:
            features[columns] = x - shift
            mean, deviation, by_mean, by_deviation = self.process.slopes(features, columns)
            z = (self.best - mean) / deviation
            log_value = float(log_improvement(np.array([z]))[0])
            density = -0.5 * z * z - _HALF_LOG_TAU
            # With h = phi + z Phi, d log EI / d mean = -Phi / (deviation h) and
            # d log EI / d deviation = phi / (deviation h), as differences of
            # logarithms, which neither overflow nor divide by 0.
            below = math.exp(min(max(log_ndtr(z) - log_value, -60), 60)) / deviation
            wide = math.exp(min(max(density - log_value, -60), 60)) / deviation
            value, slope = log_value + math.log(deviation), below * by_mean - wide * by_deviation
            if not self.priors.at:
                return -value, slope
            moved = row.copy()
            moved[at] = x
            expected = self.exponent * float(self.priors.log_density(moved[None])[0])
            by_entry: Array = slope - self.exponent * self.priors.slopes(x, at)
            return -value - expected, by_entry

        bounds = list(zip(self.region.low[at], self.region.high[at], strict=True))
        start = np.clip(row[at], self.region.low[at], self.region.high[at])
        optimum = minimize(
            negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 15}
        )
        if not (np.isfinite(optimum.fun) and -optimum.fun >= value):
            return row
        out = row.copy()
        out[at] = np.clip(optimum.x, self.region.low[at], self.region.high[at])
        return out
