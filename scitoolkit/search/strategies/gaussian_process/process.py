"""Gaussian-process regression with a Matern-5/2 kernel and one weight per feature.

The squared distance is the sum over features of weight x squared difference; for categories, of
weight x [different]. Letters: N observations, F features, P points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

Array = NDArray[np.float64]
_MAX_STEPS = 40
_BAD = 1e10
_SPREAD = 3.0  # variance of the log-normal prior of length scales
_NOISE = -9.0  # mean of the logarithm of the noise variance, of standard deviation 2
_JITTER = 1e-9


class GaussianProcess:
    """Zero-mean Gaussian process with maximum-a-posteriori hyperparameters.

    Length scales have a log-normal prior whose location grows with the number of features. The
    optimisation of hyperparameters starts at a fixed point, so that a fit depends on its data only.

    Args:
        features: (N, F).
        category: (F,) True for features that are compared for equality.
        losses: (N,) with about zero mean and unit variance.

    Source:
        prior of length scales: Hvarfner et al. 2024, arXiv:2402.02229.

    Example:
        >>> x = np.linspace(0, 1, 9)[:, None]
        >>> process = GaussianProcess(x, np.array([False]), np.sin(6 * x[:, 0]))
        >>> mean, deviation = process.posterior(np.array([[0.3]]))
        >>> bool(abs(mean[0] - np.sin(1.8)) < 0.01)
        True
    """

    def __init__(self, features: Array, category: NDArray[np.bool_], losses: Array) -> None:
        self.category = category
        self._levels = [np.unique(column) for column in features[:, category].T]
        self.weights, self.variance, self.noise = fit(features, category, losses)
        self.condition(features, losses)

    def condition(self, features: Array, losses: Array) -> None:
        """Condition on observations, with unchanged hyperparameters."""
        self.features, self.losses = features, losses
        self._levels = [np.unique(column) for column in features[:, self.category].T]
        self._embedded = self.embed(features)
        kernel = self.kernel(self._embedded, self._embedded)
        jitter = _JITTER
        while True:
            kernel.flat[:: len(losses) + 1] = self.variance + self.noise + jitter
            self._factor, failed = lapack.dpotrf(kernel, lower=1)
            if not failed:
                break
            jitter *= 10
        self.alpha = lapack.dpotrs(self._factor, losses[:, None], lower=1)[0][:, 0]

    def add(self, features: Array) -> None:
        """Condition on the predicted losses at points (P, F) (kriging believer)."""
        if len(features):
            losses = np.concatenate([self.losses, self.posterior(features)[0]])
            self.condition(np.concatenate([self.features, features]), losses)

    def embed(self, features: Array) -> Array:
        """Return coordinates whose squared Euclidean distances are those of the kernel."""
        numbers = features[:, ~self.category] * np.sqrt(self.weights[~self.category])
        parts = [numbers]
        columns = zip(
            features[:, self.category].T, self.weights[self.category], self._levels, strict=True
        )
        for column, weight, levels in columns:
            # A level without observations is orthogonal to all observed levels.
            is_level = column[:, None] == levels
            unknown = ~is_level.any(axis=1, keepdims=True)
            parts.append(np.concatenate([is_level, unknown], axis=1) * math.sqrt(weight / 2))
        return np.concatenate(parts, axis=1)

    def kernel(self, a: Array, b: Array) -> Array:
        """Return the covariances (M, N) of embedded points (M, ...) and (N, ...)."""
        squared = a @ (-10 * b.T)
        squared += 5 * (a * a).sum(1)[:, None]
        squared += 5 * (b * b).sum(1)
        np.maximum(squared, 0, out=squared)
        r = np.sqrt(squared)
        squared /= 3
        squared += r
        squared += 1
        np.negative(r, out=r)
        squared *= np.exp(r, out=r)
        squared *= self.variance
        return squared

    def posterior(self, features: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (P,) at points (P, F)."""
        cross = self.kernel(self.embed(features), self._embedded)
        half = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        # Rounding can make the variance at an observation negative; it is clipped below.
        variance = self.variance - (half * half).sum(axis=0)
        return cross @ self.alpha, np.sqrt(np.maximum(variance, 1e-12))

    def slopes(
        self, features: Array, columns: NDArray[np.intp]
    ) -> tuple[float, float, Array, Array]:
        """Return mean, deviation, and their derivatives by numerical `columns` at a point (F,)."""
        embedded = self.embed(features[None])
        cross = self.kernel(embedded, self._embedded)[0]
        squared = ((embedded - self._embedded) ** 2).sum(axis=1)
        r = np.sqrt(5 * squared)
        # With d the squared distance, r = sqrt(5 d) and k = variance (1 + r + r^2 / 3) exp(-r):
        # dk/dd = -5/6 variance (1 + r) exp(-r), without a division by r, 0 at observations.
        shared = -5 / 3 * self.variance * (1 + r) * np.exp(-r)
        offsets = features[columns] - self.features[:, columns]
        slope = shared[:, None] * self.weights[columns] * offsets
        solved = lapack.dpotrs(self._factor, cross[:, None], lower=1)[0][:, 0]
        mean = float(cross @ self.alpha)
        deviation = math.sqrt(max(self.variance - float(cross @ solved), 1e-12))
        return mean, deviation, self.alpha @ slope, -(solved @ slope) / deviation


def fit(features: Array, category: NDArray[np.bool_], losses: Array) -> tuple[Array, float, float]:
    """Return weights (F,), variance and noise variance that maximise the posterior."""
    count = features.shape[1]
    start = np.concatenate([np.full(count, 2 * math.log(2.0)), [0.0, -7.0]])
    # Of the logarithms: outside, the kernel matrix is singular or the identity in float64.
    bounds = [(-9.0, 9.0)] * count + [(-3.0, 4.0), (-14.0, 1.0)]
    objective = NegativeLogPosterior(features, category, losses)
    optimum = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _MAX_STEPS, "ftol": 1e-5},
    )
    values = np.exp(optimum.x)
    return values[:count], float(values[count]), float(values[count + 1])


class NegativeLogPosterior:
    """Negative log posterior of the log hyperparameters, and its gradient.

    Distances are stored per pair of observations (F, N (N - 1) / 2), so that the derivatives with
    respect to all weights are one matrix product; matrices are stored as upper triangles.
    """

    def __init__(self, features: Array, category: NDArray[np.bool_], losses: Array) -> None:
        self.losses = losses
        n, self.count = features.shape
        self.first, self.second = np.triu_indices(n, 1)
        self.pairs: np.ndarray = self.first * n + self.second
        distances = (features[self.first] - features[self.second]).T ** 2
        distances[category] = distances[category] > 0
        self.distances: np.ndarray = np.ascontiguousarray(distances)
        self.mean_scale: float = math.sqrt(2) + 0.5 * math.log(self.count)

    def __call__(self, x: Array) -> tuple[float, Array]:
        n, count, y = len(self.losses), self.count, self.losses
        weights, (variance, noise) = np.exp(x[:count]), np.exp(x[count:])
        r = np.sqrt(5 * (weights @ self.distances))
        # `slope` is part of both the kernel and its derivative by the weights (see `slopes`).
        decayed = variance * np.exp(-r)
        slope = decayed * (1 + r)
        kernel = slope + decayed * (r * r / 3)
        matrix = np.zeros(n * n)
        matrix[self.pairs] = kernel
        matrix[:: n + 1] = variance + noise
        # The transposed row-major matrix is column-major, as LAPACK requires.
        factor, failed = lapack.dpotrf(matrix.reshape(n, n).T, lower=1, overwrite_a=1)
        if failed:
            return _BAD, np.zeros(count + 2)
        logarithm = np.log(np.diag(factor)).sum()
        alpha = lapack.dpotrs(factor, y, lower=1)[0]
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
        inner = inverse.T.ravel()[self.pairs] - alpha[self.first] * alpha[self.second]
        trace = float(np.trace(inverse) - alpha @ alpha)
        value = 0.5 * float(y @ alpha) + logarithm
        # Each pair represents two entries of the symmetric matrix.
        by_weight = self.distances @ (inner * slope) * (-5 / 6)
        by_variance = 0.5 * variance * trace + float(inner @ kernel)
        gradient = np.concatenate([weights * by_weight, [by_variance, 0.5 * noise * trace]])
        prior, prior_slope = self._prior(x)
        return float(value + prior), gradient + prior_slope

    def _prior(self, x: Array) -> tuple[float, Any]:
        scales = -0.5 * x[: self.count] - self.mean_scale
        variance, noise = x[self.count], x[self.count + 1] - _NOISE
        value = (scales**2 / (2 * _SPREAD) + scales).sum() + 0.5 * variance**2 + 0.125 * noise**2
        slope = np.concatenate([-0.5 * (scales / _SPREAD + 1), [variance, 0.25 * noise]])
        return float(value), slope
