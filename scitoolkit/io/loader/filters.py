"""The HDF5 filters that are undone here, outside the lock under which HDF5 does everything.

Deflate, shuffle and Fletcher-32 cover what h5py and NetCDF4 write by default; every other filter
is left to HDF5 itself. Whoever uses these compares a first chunk with what HDF5 says.

Source: HDF5 File Format Specification 3.0, IV.A.2.l "Data Storage - Filter Pipeline Message".
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_inflate: Any
_ERRORS: Any = (zlib.error,)
try:  # inflates the same format half as fast again
    from isal import isal_zlib

    _inflate, _ERRORS = isal_zlib.decompress, (zlib.error, isal_zlib.error)
except ImportError:
    _inflate = zlib.decompress

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
# So many 16-bit words, weighted by their number, add up to less than 2^64.
_EXACT_WORDS = 1 << 23
KNOWN = frozenset({DEFLATE, SHUFFLE, FLETCHER32})


def undo(
    data: np.ndarray, filters: Sequence[int], skipped: int, itemsize: int, nbytes: int
) -> np.ndarray:
    """Return the bytes of a chunk before its filters were applied.

    Args:
        data: stored bytes, uint8.
        filters: filter identifiers in the order in which they were applied when writing.
        skipped: the chunk's filter mask: bit i set means that filter i was not applied.
        itemsize: bytes of a value.
        nbytes: bytes that must come out.

    Returns:
        uint8, shape (nbytes,).

    Raises:
        ValueError: a checksum differs, or the data cannot be what the filters made.

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
        raise ValueError(f"{len(data)} bytes came out, not {nbytes}")
    return data


def shuffle(data: np.ndarray, itemsize: int) -> np.ndarray:
    """Return all first bytes of the values, then all second bytes, and so on; the rest as it is."""
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
    """Return the two sums of Fletcher's checksum over big-endian 16-bit words, modulo 65535."""
    even = len(data) // 2 * 2
    words = data[:even].view(">u2").astype(np.uint64)
    if len(data) % 2:
        words = np.append(words, np.uint64(data[-1]) << np.uint64(8))
    # The second sum adds up the first after every word: a word counts as often as it is seen.
    weights = np.arange(len(words), 0, -1, dtype=np.uint64)
    if len(words) > _EXACT_WORDS:
        weights %= np.uint64(65535)
    return int(words.sum() % 65535), int(np.dot(words, weights) % 65535)


def _checked(data: np.ndarray) -> np.ndarray:
    if len(data) < 4:
        raise ValueError("no room for a Fletcher-32 checksum")
    stored = int.from_bytes(data[-4:].tobytes(), "little")
    first, second = fletcher32(data[:-4])
    # 0 and 65535 are the same remainder, and writers differ in which they store.
    if (stored & 0xFFFF) % 65535 != first or (stored >> 16) % 65535 != second:
        raise ValueError("the Fletcher-32 checksum differs")
    return data[:-4]
