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


def as_argument(value: object) -> object:
    """Return the argument of a kernel: an address of an array, an int64 or a double of a number.

    Others, such as None (NULL), are returned as they are.

    Example:
        >>> as_argument(3), as_argument(0.5), as_argument(None)
        (c_long(3), c_double(0.5), None)
    """
    if isinstance(value, np.ndarray):
        return pointer(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_int64(int(value)) if isinstance(value, int | np.integer) else value
