"""Limits between the classes of points of an enhancer, which have to rise.

They are read from streams, from the settings of codecs and from the parameters of the HDF5 filter;
the C library refuses the same ones.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import DataError

# Where the limits begin in the bytes of an enhancer of chunks; docs/format/chunk.md.
_BEGIN = {"linear": 4, "network": 14}


def limits_of(name: str, data: bytes) -> np.ndarray:
    """Return the limits (float32) in the bytes of an enhancer of chunks; none if they are cut off.

    Args:
        name: `linear` or `network`.
        data: as stored in settings and parameters; the first byte is the number of classes.

    Example:
        >>> limits_of("linear", bytes([3, 2, 9, 8]) + np.float32([1, 2]).tobytes()).tolist()
        [1.0, 2.0]
    """
    begin = _BEGIN[name]
    count = data[0] - 1 if data else 0
    if count < 1 or len(data) < begin + 4 * count:
        return np.empty(0, np.float32)
    return np.frombuffer(data, "<f4", count, begin)


def refuse_falling(limits: np.ndarray, name: str) -> None:
    """Raise DataError if limits do not rise; NaN does not.

    Args:
        limits: (G - 1,) as read from a stream or a file.
        name: of the enhancer.
    """
    if np.isnan(limits).any() or not (limits[1:] > limits[:-1]).all():
        raise DataError(
            f"damaged stream: the limits of the enhancer {name} do not rise ({limits.tolist()})",
            fix="compress the original again, or restore the file from a backup",
        )
