"""Arrays for fields that may be larger than memory: beyond a limit, in a file.

Such a file is in the temporary folder, has no name, and goes with the array. The system keeps of
it in memory what there is room for, and writes the rest back.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from scitoolkit.core.errors import DataError


def allocate(shape: tuple[int, ...], dtype: DTypeLike, limit: int) -> np.ndarray:
    """Return an array of zeros, in memory up to `limit` bytes, else mapped to a nameless file.

    Raises:
        DataError: the temporary folder has no room for it.

    Example:
        >>> isinstance(allocate((4, 8), np.float64, 100), np.memmap)
        True
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= limit:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="scitoolkit-field-") as file:
        try:
            # Reserved at once: a full disk is an error here, and would be a SIGBUS later.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise DataError(
                f"no room for {size / 2**30:.1f} GiB of the field ({error.strerror})",
                where=tempfile.gettempdir(), fix="TMPDIR=another folder, or a larger data.memory",
            ) from None  # fmt: skip
        return np.memmap(file, dtype, "r+", shape=shape)


def row_blocks(rows: int, row_bytes: int, limit: int) -> Iterator[slice]:
    """Yield slices of rows, each of at most a quarter of `limit` bytes, or one row."""
    size = max(1, limit // 4 // max(1, row_bytes))
    for first in range(0, rows, size):
        yield slice(first, min(first + size, rows))
