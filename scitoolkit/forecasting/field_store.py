"""Arrays for fields larger than memory, mapped to temporary files above a size limit.

The files are unnamed, are stored in the temporary folder and disappear with the array. The
operating system pages them in and out.
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
    """Return an array of zeros, in memory up to `limit` bytes, else mapped to an unnamed file.

    Raises:
        DataError: the temporary folder has too little free space.

    Example:
        >>> isinstance(allocate((4, 8), np.float64, 100), np.memmap)
        True
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= limit:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="scitoolkit-field-") as file:
        try:
            # Reserve the space now: writing to a full disk through the map would raise SIGBUS.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise DataError(
                f"no space for {size / 2**30:.1f} GiB of the field ({error.strerror})",
                where=tempfile.gettempdir(),
                fix="TMPDIR=another folder, or a larger data.memory",
            ) from None
        return np.memmap(file, dtype, "r+", shape=shape)


def row_blocks(rows: int, row_bytes: int, limit: int) -> Iterator[slice]:
    """Yield slices of rows of at most a quarter of `limit` bytes each, at least one row."""
    size = max(1, limit // 4 // max(1, row_bytes))
    for first in range(0, rows, size):
        yield slice(first, min(first + size, rows))
