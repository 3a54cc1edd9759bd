"""Moments of fields that can be merged reproducibly, and detection of undeclared fill values."""

from __future__ import annotations

import numpy as np

FILL_VALUES = (-9999.0, -999.0, -99999.0, 1e20, 1e30, 1e36, 9.969209968386869e36)
_FAR = 10.0
_MARK, _ABOVE = 1e19, 1e10
"""A value of at least this size and so many times as large as all others is a mark."""
_GAP = {-1: 0.5, 1: 2.0}
"""Distance of a code of nines, by its sign, from the other values in ranges of these.

Counters that saturate reach 999; nothing ends exactly at -99.9 again and again.
"""
_EQUAL = 1e-7
"""Deviation, relative to the mean, up to which values count as equal."""


class Moments:
    """Mean, variance and mean square of a field over all cells, or of each value of a vector.

    Merging is exact up to rounding, and bit-identical for a fixed order.

    Source:
        Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance".

    Attributes:
        count: number of values: samples times cells for a field, samples for a vector.

    Example:
        >>> a, b = Moments(), Moments()
        >>> a.add(np.array([[1.0, 2.0]]), True)
        >>> b.add(np.array([[3.0, 6.0]]), True)
        >>> mean, scale = a.merge(b).result()
        >>> float(mean[0]), round(float(scale[0]) ** 2, 12)
        (3.0, 3.5)
    """

    def __init__(self) -> None:
        self.count = 0
        self._sum: np.ndarray | float = 0.0
        self._square: np.ndarray | float = 0.0
        self._shift: np.ndarray | float = 0.0
        self._merged: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def add(self, values: np.ndarray, is_field: bool) -> None:
        """Add samples, (samples, ...) float64."""
        flat = values.reshape(-1, 1) if is_field else values.reshape(len(values), -1)
        if not self.count:
            # Moments about the first value avoid cancellation if the mean is large.
            self._shift = flat[0].copy()
        flat = flat - self._shift
        self.count += len(flat)
        self._sum = self._sum + flat.sum(0)
        self._square = self._square + (flat**2).sum(0)

    @classmethod
    def of(cls, count: int, parts: np.ndarray) -> Moments:
        """Return moments with the given count and `parts`."""
        out = cls()
        out.count, out._merged = count, (parts[0], parts[1], parts[2])
        return out

    @property
    def parts(self) -> np.ndarray:
        """Mean, variance and mean square, (3, values)."""
        return np.stack([np.atleast_1d(p) for p in self._parts()])

    def repeated(self, times: int) -> Moments:
        """Return the moments of the values repeated `times` times."""
        return Moments.of(self.count * times, self.parts)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the values of both."""
        (a, va, sa), (b, vb, sb) = self._parts(), other._parts()
        out = Moments()
        out.count = self.count + other.count
        share, gap = other.count / out.count, b - a
        # From the distance of the means, as differences of sums of squares would cancel.
        variance = va + share * (vb - va) + gap * gap * share * (1 - share)
        out._merged = (a + share * gap, variance, sa + share * (sb - sa))
        return out

    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean, variance and mean square."""
        if self._merged is not None:
            return self._merged
        mean = np.asarray(self._sum) / self.count
        second = np.asarray(self._square) / self.count
        # Rounding can make the difference negative.
        variance = np.maximum(second - mean**2, 0.0)
        return mean + self._shift, variance, second + self._shift * (2 * mean + self._shift)

    @property
    def is_constant(self) -> np.ndarray:
        """Whether all values are equal up to rounding, for each component."""
        mean, variance, _ = self._parts()
        return np.asarray(np.sqrt(variance) <= _EQUAL * np.maximum(np.abs(mean), 1e-30))

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation; the latter is 1 for constant values."""
        mean, variance, _ = self._parts()
        scale = np.sqrt(variance)
        size = np.maximum(np.abs(mean), 1e-30)
        return mean, np.where(scale > _EQUAL * size, scale, 1.0)

    def root_mean_square(self) -> np.ndarray:
        """Return the root mean square; exactly 0 for values that are all 0."""
        square: np.ndarray = np.sqrt(np.maximum(self._parts()[2], 0.0))
        return square


def fill_value_in(values: np.ndarray) -> float | None:
    """Return a common fill value far outside the range of all other values; None without one.

    Numbers of nines (-99.9, -999) that repeat are fill values too, also if they are less than ten
    times as large as the others; and so is any number, such as -1e34, that no quantity beside such
    others has.

    Example:
        >>> fill_value_in(np.array([1.0, -9999.0, 3.0]))
        -9999.0
        >>> fill_value_in(np.array([-9000.0, -9999.0, 3.0])) is None
        True
        >>> fill_value_in(np.array([12.0, -99.9, 15.5, -99.9]))
        -99.9
    """
    low, high = float(values.min()), float(values.max())
    for edge in (low, high):
        listed = any(abs(edge - fill) <= 1e-6 * abs(fill) for fill in FILL_VALUES)
        if not listed and abs(edge) < _MARK:
            continue
        rest = values[values != edge]
        times = _FAR if listed else _ABOVE
        if len(rest) and abs(edge) > times * max(abs(float(rest.min())), abs(float(rest.max()))):
            return edge
    return next((edge for edge in (low, high) if _is_code_of_nines(edge, values)), None)


def mark_in(values: np.ndarray) -> tuple[float, str] | None:
    """Return `fill_value_in` with a text that says how many values it is; None without one."""
    if (fill := fill_value_in(values)) is None:
        return None
    rest = values[values != fill]
    return fill, (
        f"{values.size - rest.size} values are {fill:g}, the others between {rest.min():g} and "
        f"{rest.max():g}: possibly a fill value that the file does not declare"
    )


def _is_code_of_nines(edge: float, values: np.ndarray) -> bool:
    digits = f"{abs(edge):.6g}".replace(".", "")
    if len(digits) < 2 or set(digits) != {"9"}:
        return False
    rest = values[values != edge]
    if not len(rest) or rest.size > values.size - 2:
        return False
    gap = min(abs(edge - float(rest.min())), abs(edge - float(rest.max())))
    return gap > _GAP[int(np.sign(edge))] * float(np.ptp(rest))
