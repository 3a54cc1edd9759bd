"""Decoding of HDF5 filters outside of HDF5's global lock.

Deflate, shuffle and Fletcher-32 cover the filters that h5py and NetCDF4 use by default; other
filters are decoded by HDF5. Callers verify a first chunk against HDF5.

Source: HDF5 File Format Specification 3.0, IV.A.2.l "Data Storage - Filter Pipeline Message".
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_inflate: Any
_ERRORS: Any = (zlib.error,)
try:  # isal inflates 1.5 times as fast as zlib
    from isal import isal_zlib

    _inflate, _ERRORS = isal_zlib.decompress, (zlib.error, isal_zlib.error)
except ImportError:
    _inflate = zlib.decompress

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
# The weighted sum of this many 16-bit words is below 2^64.
_EXACT_WORDS = 1 << 23
KNOWN = frozenset({DEFLATE, SHUFFLE, FLETCHER32})


def undo(
    data: np.ndarray, filters: Sequence[int], skipped: int, itemsize: int, nbytes: int
) -> np.ndarray:
    """Decode a chunk by undoing its filters.

    Args:
        data: stored bytes, uint8.
        filters: filter identifiers in the order of writing.
        skipped: the chunk's filter mask; bit i is set if filter i was not applied.
        itemsize: bytes of a value.
        nbytes: expected size of the decoded chunk.

    Returns:
        (nbytes,) uint8.

    Raises:
        ValueError: a checksum differs, or the data are damaged.

    Example:
        >>> values = np.arange(4, dtype="<i2").view(np.uint8)
        >>> stored = np.frombuffer(zlib.compress(shuffle(values, 2).tobytes()), np.uint8)
        >>> undo(stored, [SHUFFLE, DEFLATE], 0, 2, 8).view("<i2").tolist()
        [0, 1, 2, 3]
    """
    for position in range(len(filters) - 1, -1, -1):
        if skipped >> position & 1:
            continue
        if filters[position] == FLETCHER32:
            data = _checked(data)
        elif filters[position] == DEFLATE:
            try:
                data = np.frombuffer(_inflate(data.data, bufsize=nbytes), np.uint8)
            except _ERRORS as error:
                raise ValueError(f"deflate: {error}") from None
        else:
            data = unshuffle(data, itemsize)
    if len(data) != nbytes:
        raise ValueError(f"decoded to {len(data)} bytes, expected {nbytes}")
    return data


def shuffle(data: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the first bytes of all values, then all second bytes, and so on, then the rest."""
    whole = len(data) // itemsize * itemsize
    return np.concatenate([data[:whole].reshape(-1, itemsize).T.ravel(), data[whole:]])


def unshuffle(data: np.ndarray, itemsize: int) -> np.ndarray:
    """Undo `shuffle`."""
    count = len(data) // itemsize
    if itemsize == 1 or count < 2:
        return data
    out = np.empty(len(data), np.uint8)
    whole = count * itemsize
    planes = data[:whole].reshape(itemsize, count)
    values = out[:whole].reshape(count, itemsize)
    for byte in range(itemsize):
        values[:, byte] = planes[byte]
    out[whole:] = data[whole:]
    return out


def fletcher32(data: np.ndarray) -> tuple[int, int]:
    """Return the two sums of Fletcher's checksum over big-endian 16-bit words, mod 65535."""
    even = len(data) // 2 * 2
    words = data[:even].view(">u2").astype(np.uint64)
    if len(data) % 2:
        words = np.append(words, np.uint64(data[-1]) << np.uint64(8))
    # The second sum accumulates the first, so each word is weighted by its distance to the end.
    weights = np.arange(len(words), 0, -1, dtype=np.uint64)
    if len(words) > _EXACT_WORDS:
        weights %= np.uint64(65535)
    return int(words.sum() % 65535), int(np.dot(words, weights) % 65535)


def _checked(data: np.ndarray) -> np.ndarray:
    if len(data) < 4:
        raise ValueError("too short for a Fletcher-32 checksum")
    stored = int.from_bytes(data[-4:].tobytes(), "little")
    first, second = fletcher32(data[:-4])
    # 0 and 65535 are equal modulo 65535, and writers store either.
    if (stored & 0xFFFF) % 65535 != first or (stored >> 16) % 65535 != second:
        raise ValueError("the Fletcher-32 checksum differs")
    return data[:-4]
