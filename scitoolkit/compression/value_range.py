"""Range of values for `rel` and `psnr` bounds, with detection of outliers that dominate it."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import NumericalError

# Outliers dominate the range if it exceeds that of the other values by this factor.
MAX_OUTLIER_RATIO = 1e6
QUANTILES = (0.001, 0.999)
SAMPLED_POINTS = 1 << 16
ROW = 1 << 12


class ArrayRange:
    """Range of an array that is read in parts, with and without its extremes.

    Example:
        >>> seen = ArrayRange()
        >>> seen.add(np.linspace(0, 1, 2000))
        >>> seen.extent, round(seen.inner(), 3)
        ((0.0, 1.0), 0.997)
    """

    def __init__(self) -> None:
        self._lowest: list[float] = []
        self._highest: list[float] = []
        self._sample: list[np.ndarray] = []

    def add(self, values: np.ndarray) -> None:
        """Add a part of the array, without missing values."""
        if not values.size:
            return
        lows = _two_lowest(values)
        highs = [-low for low in _two_lowest(values, sign=-1)]
        self._lowest = sorted({*self._lowest, *lows})[:2]
        self._highest = sorted({*self._highest, *highs}, reverse=True)[:2]
        step = max(values.size // SAMPLED_POINTS, 1)
        self._sample.append(values.reshape(-1)[::step].astype(np.float64))

    @property
    def extent(self) -> tuple[float, float] | None:
        """Smallest and largest value; None without values."""
        return (self._lowest[0], self._highest[0]) if self._lowest else None

    def inner(self) -> float:
        """Return the smaller of two ranges: without the two extremes, and of 99.8 % of points.

        A marker of missing data occurs many times, so quantiles alone would not exclude it. The
        result is 0, meaning unknown, if (nearly) all values are equal.
        """
        if len(self._lowest) < 2:
            return 0.0
        (low, second), (high, last) = self._lowest, self._highest
        sample = np.concatenate(self._sample)
        sample = sample[(sample > low) & (sample < high)]
        ranges = [last - second]
        if sample.size:
            ranges.append(float(np.subtract(*np.quantile(sample, QUANTILES[::-1]))))
        return min((r for r in ranges if r > 0), default=0.0)

    def dominated(self) -> str:
        """Return why a bound relative to the range is meaningless, "" if it is not."""
        inner = self.inner()
        if self.extent is None or not inner:
            return ""
        low, high = self.extent
        if high - low <= MAX_OUTLIER_RATIO * inner:
            return ""
        return f"outliers set the range {low:g} to {high:g}: nearly all values span {inner:.3g}"

    def refuse_outliers(self, where: str = "") -> None:
        """Raise if outliers dominate the range.

        Raises:
            NumericalError: the range is more than a million times that of the other values.
        """
        if not (why := self.dominated()):
            return
        assert self.extent is not None
        low, high = self.extent
        suspect = high if abs(high) >= abs(low) else low
        raise NumericalError(
            why,
            where=where,
            allowed=f"a range up to {MAX_OUTLIER_RATIO:g} times that",
            fix=f"name missing values (--missing {suspect:.7g}, missing={suspect:.7g}), or give "
            "--abs or --pw-rel",
        )


def _two_lowest(values: np.ndarray, sign: int = 1) -> list[float]:
    """Return the smallest value and the next larger one, if there is one; of -x for sign -1.

    Of rows without the smallest value, only the minimum is considered.
    """
    flat = values.reshape(-1)
    least, without = (np.min, np.greater) if sign > 0 else (np.max, np.less)
    rows = flat[: flat.size // ROW * ROW].reshape(-1, ROW)
    lowest = least(rows, axis=1, initial=flat[0])
    low = least(np.append(least(lowest, initial=flat[0]), flat[rows.size :]))
    rest = np.concatenate([rows[lowest == low].reshape(-1), flat[rows.size :], lowest])
    rest = rest[without(rest, low)]
    return [sign * float(low), *([sign * float(least(rest))] if rest.size else [])]
