"""Conversion of arrays to arguments of C kernels: three extents, address and C type name."""

from __future__ import annotations

import ctypes

import numpy as np

from scitoolkit.compression.codecs.base import fold


def folded(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape as three extents: longer ones folded, shorter ones padded with leading ones.

    Example:
        >>> folded((4, 5)), folded((2, 3, 4, 5))
        ((1, 4, 5), (6, 4, 5))
    """
    sizes = fold(shape, 3)
    one, two, three = (1,) * (3 - len(sizes)) + sizes
    return one, two, three


def extents(shape: tuple[int, ...]) -> np.ndarray:
    """Return a shape as an int64 array, as kernels expect it."""
    return np.array(shape, np.int64)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Return the address of an array's first element; the result keeps the array alive."""
    address = ctypes.c_void_p(array.ctypes.data)
    address.array = array  # type: ignore[attr-defined]
    return address
