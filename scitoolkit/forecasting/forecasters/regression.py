"""Polynomial features, and ridge regression for many penalties."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from scitoolkit.forecasting.windows import Array


@cache
def exponents(channels: int, degree: int) -> tuple[np.ndarray, ...]:
    """Return the channel indices (monomial, order) of all monomials, per order up to `degree`."""
    return tuple(
        np.array(list(combinations_with_replacement(range(channels), order)))
        for order in range(1, degree + 1)
    )


def num_monomials(channels: int, degree: int) -> int:
    """Return the number of monomials up to a degree, including the constant.

    Example:
        >>> num_monomials(3, 2)
        10
    """
    count, total = 1, 1
    for order in range(1, degree + 1):
        count = count * (channels + order - 1) // order
        total += count
    return total


def monomials(values: Array, degree: int) -> Array:
    """Return all monomials (..., monomial) of values (..., channel): 1, channels, products.

    Example:
        >>> monomials(np.array([2.0, 3.0]), 2)
        array([1., 2., 3., 4., 6., 9.])
    """
    parts = [np.ones((*values.shape[:-1], 1))]
    for factors in exponents(values.shape[-1], degree):
        product = values[..., factors[:, 0]]
        for column in factors.T[1:]:
            product = product * values[..., column]
        parts.append(product)
    return np.concatenate(parts, axis=-1)


class RidgePath:
    """Ridge regression with one design and any penalty, from a single eigendecomposition.

    Columns are scaled to mean square 1, so that the penalty acts equally on all of them.

    Args:
        design: (row, feature).
    """

    def __init__(self, design: Array) -> None:
        self.scale: Array = np.sqrt((design * design).mean(axis=0)) + 1e-12
        self.design: Array = design / self.scale
        gram = self.design.T @ self.design / len(design)
        variance, self.vectors = np.linalg.eigh(gram)
        self.variance: Array = np.maximum(variance, 0.0)

    def rotate(self, targets: Array) -> Array:
        """Return targets (row, output) projected on the eigenvectors, for use in `solve`."""
        return self.vectors.T @ (self.design.T @ targets / len(targets))

    def solve(self, rotated: Array, penalty: float) -> Array:
        """Return the coefficients (feature, output) for a penalty."""
        shrunk = rotated / (self.variance + penalty)[:, None]
        return self.vectors @ shrunk / self.scale[:, None]
