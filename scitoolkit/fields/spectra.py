"""Power spectra along one dim of a field."""

from __future__ import annotations

import numpy as np


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
