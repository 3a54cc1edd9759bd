"""Finite-difference derivatives on a grid: central inside, one-sided at the edges.

The weights are those of `numpy.gradient`; higher-order derivatives apply them repeatedly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from scitoolkit.core.errors import ConfigError


class DerivativeStencil:
    """Derivative of given order along each dim of a grid.

    Args:
        shape: of the grid.
        dims: name of each dim, for messages.
        orders: order of the derivative along each dim.
        coordinates: dim -> strictly monotonic positions; 0, 1, 2, ... by default.

    Raises:
        ConfigError: a derivative along a single point, or positions that are not monotonic.

    Example:
        >>> d = DerivativeStencil((5,), ["x"], (1,), {"x": np.arange(5) * 0.5})
        >>> d(np.arange(5.0) ** 2).tolist()
        [2.0, 4.0, 8.0, 12.0, 14.0]
    """

    def __init__(
        self,
        shape: Sequence[int],
        dims: Sequence[str],
        orders: Sequence[int],
        coordinates: Mapping[str, np.ndarray],
    ) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.bands: list[np.ndarray] = []
        for n, dim, order in zip(shape, dims, orders, strict=True):
            if order and n < 2:
                raise ConfigError(f"a derivative along {dim}, which has {n} point", allowed="2")
            first = _first(np.asarray(coordinates.get(dim, np.arange(n)), np.float64), dim, n)
            band = np.ones((n, 1))
            for _ in range(order):
                band = _product(first, band)
            self.bands.append(band)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the derivative (float64); NaN with zero weight does not propagate."""
        out = np.asarray(values, np.float64)
        for axis, band in enumerate(self.bands):
            if band.shape[1] > 1:
                out = np.moveaxis(_apply(band, np.moveaxis(out, axis, 0)), 0, axis)
        return out

    def terms(self, points: tuple[np.ndarray, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield weights and flat indices of the neighbours in the derivative at given points."""
        for offsets in itertools.product(*(range(band.shape[1]) for band in self.bands)):
            weight, places = np.ones(len(points[0])), []
            for index, band, offset in zip(points, self.bands, offsets, strict=True):
                weight = weight * band[index, offset]
                places.append(np.clip(index + offset - band.shape[1] // 2, 0, len(band) - 1))
            yield weight, np.ravel_multi_index(tuple(places), self.shape)

    def gain(self) -> np.ndarray:
        """Return the largest amplification of an error at each point: the sum of |weights|."""
        out = np.ones(())
        for axis, band in enumerate(self.bands):
            sums = np.abs(band).sum(1)
            out = out * sums.reshape([-1 if i == axis else 1 for i in range(len(self.shape))])
        return np.broadcast_to(out, self.shape)


def _first(x: np.ndarray, dim: str, n: int) -> np.ndarray:
    """Return the weights (n, 3) of the first derivative at positions x."""
    steps = np.diff(x)
    if x.shape != (n,) or not (np.all(steps > 0) or np.all(steps < 0)):
        raise ConfigError(
            f"coordinate {dim} of shape {x.shape} for {n} points",
            allowed="one position per point, strictly monotonic",
        )
    band = np.zeros((n, 3))
    if n < 2:
        return band
    before, after = steps[:-1], steps[1:]
    # Steps that differ by rounding would give the middle point a tiny weight, through which a
    # missing value there would spread to its neighbours.
    if np.allclose(steps, steps[0], rtol=1e-12, atol=0):
        before = after = np.full(n - 2, steps[0])
    band[1:-1, 0] = -after / (before * (before + after))
    band[1:-1, 1] = (after - before) / (before * after)
    band[1:-1, 2] = before / (after * (before + after))
    band[0, 1:] = -1 / steps[0], 1 / steps[0]
    band[-1, :2] = -1 / steps[-1], 1 / steps[-1]
    return band


def _product(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the weights of the composition of two operators, `two` applied first."""
    n, reach = len(one), two.shape[1] // 2
    out = np.zeros((n, two.shape[1] + 2))
    for i, offset in itertools.product(range(n), (-1, 0, 1)):
        if 0 <= i + offset < n and one[i, offset + 1]:
            start = offset + 1
            out[i, start : start + 2 * reach + 1] += one[i, offset + 1] * two[i + offset]
    return out


def _apply(band: np.ndarray, values: np.ndarray) -> np.ndarray:
    n, reach = len(band), band.shape[1] // 2
    out = np.zeros(values.shape)
    for offset in range(-reach, reach + 1):
        low, high = max(0, -offset), min(n, n - offset)
        if low >= high:
            continue
        weight = band[low:high, offset + reach].reshape(-1, *(1,) * (values.ndim - 1))
        if not weight.any():
            continue
        term = weight * values[low + offset : high + offset]
        # NaN and Inf must not propagate through zero weights.
        out[low:high] += np.where(weight == 0, 0.0, term)
    return out
