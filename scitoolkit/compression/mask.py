"""Storage of special values (NaN, Inf, missing and masked values), restored bit for bit."""

from __future__ import annotations

import numpy as np

from scitoolkit.compression.lossless import squeeze, stretch
from scitoolkit.compression.missing import MissingValues
from scitoolkit.core.errors import DataError

MAX_PATTERNS = 255


def special_values(
    values: np.ndarray, missing: MissingValues, mask: np.ndarray | None = None
) -> np.ndarray | None:
    """Return True where values are not finite, missing or masked; None if they are nowhere."""
    special = missing.where(values)
    if mask is not None:
        special |= mask
    return special if special.any() else None


def encode_mask(values: np.ndarray, special: np.ndarray) -> bytes:
    """Return positions and bit patterns of the special values as bytes.

    Positions are stored as alternating run lengths over the flattened array or as a bitmap,
    whichever is shorter.
    """
    bits = bits_of(values)[special]
    patterns, codes = np.unique(bits, return_inverse=True)
    if len(patterns) > MAX_PATTERNS:
        patterns = patterns[:0]
    edges = np.flatnonzero(np.diff(special.ravel(), prepend=False))
    runs = squeeze(np.diff(edges, prepend=0).astype("<u4").tobytes())
    bitmap = squeeze(np.packbits(special).tobytes())
    as_runs = len(runs) <= len(bitmap) and special.size < 1 << 32
    place = runs if as_runs else bitmap
    head = np.array([as_runs, len(edges), len(patterns), len(place)], "<u8")
    content = codes.astype(np.uint8).tobytes() if len(patterns) > 1 else b""
    content = content if len(patterns) else bits.tobytes()
    return head.tobytes() + place + patterns.tobytes() + squeeze(content)


def restore_mask(data: bytes | memoryview, values: np.ndarray) -> None:
    """Write special values into `values` in place.

    Raises:
        DataError: the data are damaged.
    """
    data = bytes(data)
    if len(data) < 32:
        raise DataError("damaged stream: the mask is truncated")
    as_runs, edges, num_patterns, size = map(int, np.frombuffer(data, "<u8", 4))
    if edges > values.size or num_patterns > MAX_PATTERNS:
        raise DataError("damaged stream: the mask does not fit the field")
    if as_runs:
        runs = np.frombuffer(stretch(data[32 : 32 + size], 4 * edges), "<u4").astype(np.int64)
        flips = np.zeros(values.size + 1, np.int8)
        places = np.cumsum(runs)
        if edges and places[-1] >= values.size:
            raise DataError("damaged stream: the mask does not fit the field")
        flips[places] = 1
        special = (np.cumsum(flips[:-1], dtype=np.int64) & 1).astype(bool)
    else:
        packed = np.frombuffer(stretch(data[32 : 32 + size], -(-values.size // 8)), np.uint8)
        special = np.unpackbits(packed, count=values.size).astype(bool)
    word, count = bits_of(values).dtype, int(special.sum())
    after = 32 + size
    content = data[after + num_patterns * word.itemsize :]
    if num_patterns == 0:
        bits = np.frombuffer(stretch(content, count * word.itemsize), word)
    else:
        patterns = np.frombuffer(data, word, num_patterns, after)
        codes = np.zeros(count, np.uint8)
        if num_patterns > 1:
            codes = np.frombuffer(stretch(content, count), np.uint8)
        if count and codes.max() >= num_patterns:
            raise DataError("damaged stream: the mask names an unknown value")
        bits = patterns[codes]
    bits_of(values).reshape(-1)[special] = bits


def bits_of(values: np.ndarray) -> np.ndarray:
    """Return the bit patterns of an array as unsigned integers of the same size (a view)."""
    return values.view(f"u{values.dtype.itemsize}")
