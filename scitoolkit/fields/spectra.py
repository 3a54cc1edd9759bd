"""Power spectra along one dim of a field, and how far two of them are apart."""

from __future__ import annotations

import numpy as np

LEAST = 1e-24
"""Smallest power that counts, over the largest: far below rounding, so that the logarithm of a wave
without power is finite, in any unit."""


def line_power(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the power of each wave along a periodic dim, for every line of a field.

    Args:
        values: (..., size, ...) real.
        axis: of the dim.

    Returns:
        (..., size // 2 + 1, ...) float64 at wave numbers 0, 1, ...; the sum over waves is the mean
        square of a line (Parseval).

    Example:
        >>> x = np.arange(8) * 2 * np.pi / 8
        >>> line_power(np.sin(2 * x), 0).round(3).tolist()
        [0.0, 0.0, 0.5, 0.0, 0.0]
    """
    size = values.shape[axis]
    power: np.ndarray = np.abs(np.fft.rfft(np.asarray(values, np.float64), axis=axis) / size) ** 2
    # Waves k and -k are one entry, except the mean and, for an even size, the shortest wave.
    both = np.full(power.shape[axis], 2.0)
    both[0] = 1.0
    if size % 2 == 0:
        both[-1] = 1.0
    shape = [1] * power.ndim
    shape[axis] = -1
    return power * both.reshape(shape)


def decades_apart(truth: np.ndarray, other: np.ndarray, part: slice = slice(1, None)) -> float:
    """Return the root mean square of log10 of the ratio of two spectra; 0.3 is a factor of two.

    Powers below `LEAST` of the largest wave of the truth count as that much, so that the result
    does not depend on the unit of the field.

    Args:
        truth: (waves,) powers at wave numbers 0, 1, ...
        other: (waves,) likewise.
        part: waves to compare; by default all but the mean.

    Example:
        >>> decades_apart(np.array([9.0, 4.0, 1.0]), np.array([9.0, 0.4, 10.0]))
        1.0
    """
    least = max(LEAST * truth[1:].max(initial=0.0), np.finfo(np.float64).tiny)
    ratio = np.log10((other[part] + least) / (truth[part] + least))
    return float(np.sqrt((ratio**2).mean()))
