"""How arrays go to compiled code: as three dims, by address, with the C name of their dtype."""

from __future__ import annotations

import ctypes

import numpy as np

from scitoolkit.compression.codecs.base import fold


def folded(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape as three dims: longer ones folded, shorter ones led by ones.

    Example:
        >>> folded((4, 5)), folded((2, 3, 4, 5))
        ((1, 4, 5), (6, 4, 5))
    """
    kept = fold(shape, 3)
    one, two, three = (1,) * (3 - len(kept)) + kept
    return one, two, three


def extents(shape: tuple[int, ...]) -> np.ndarray:
    """Return a shape as int64, the way kernels take it."""
    return np.array(shape, np.int64)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Return the address of an array's first element; the array lives as long as the result."""
    address = ctypes.c_void_p(array.ctypes.data)
    address.array = array  # type: ignore[attr-defined]
    return address


def real(dtype: np.dtype) -> str:
    """Return the name in C of float32 or float64."""
    return {"f4": "float", "f8": "double"}[dtype.str[1:]]
