"""Lossless coding of fixed-size dtypes: byte shuffle followed by deflate or LZMA."""

from __future__ import annotations

import lzma
import math
import zlib

import numpy as np

from scitoolkit.core.errors import DataError

_PLAIN, _DEFLATE, _LZMA = 0, 1, 2
_LZMA_DICTIONARY, _LZMA_LIMIT = 1 << 24, 1 << 22


def squeeze(data: bytes) -> bytes:
    """Compress bytes with the best of none, deflate and (up to 4 MiB) LZMA, after a method byte.

    Example:
        >>> stretch(squeeze(b"a" * 999), 999) == b"a" * 999
        True
    """
    candidates = [bytes([_PLAIN]) + data, bytes([_DEFLATE]) + zlib.compress(data, 6)]
    if len(data) <= _LZMA_LIMIT:
        # The dictionary is no larger than the data: clearing one of 16 MiB takes 20 ms.
        size = min(max(1 << len(data).bit_length(), 1 << 12), _LZMA_DICTIONARY)
        packed = lzma.compress(data, format=lzma.FORMAT_RAW, filters=_lzma(size))
        candidates.append(bytes([_LZMA]) + packed)
    return min(candidates, key=len)


def _lzma(dictionary: int) -> list[dict[str, int]]:
    return [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": dictionary}]


def stretch(packed: bytes | memoryview, size: int) -> bytes:
    """Decompress `size` bytes packed by `squeeze`; the output never exceeds `size` + 1 bytes.

    Raises:
        DataError: the data are damaged or have another size.
    """
    packed = bytes(packed)
    kind, body = packed[:1], packed[1:]
    try:
        if kind == bytes([_PLAIN]):
            data = body
        elif kind == bytes([_DEFLATE]):
            data = zlib.decompressobj().decompress(body, size + 1)
        else:
            reader = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_lzma(_LZMA_DICTIONARY))
            data = reader.decompress(body, size + 1)
    except (zlib.error, lzma.LZMAError, EOFError):
        data = b""
    if len(data) != size:
        raise DataError(f"damaged stream: {len(data)} bytes where {size} were expected")
    return data


def encode_array(values: np.ndarray) -> bytes:
    """Code an array of any fixed-size dtype losslessly."""
    raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8)
    return squeeze(raw.reshape(-1, values.dtype.itemsize).T.tobytes())


def decode_array(data: bytes | memoryview, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Decode an array of `encode_array`."""
    count = math.prod(shape)
    raw = np.frombuffer(stretch(data, count * dtype.itemsize), dtype=np.uint8)
    planes = raw.reshape(dtype.itemsize, count)
    return np.frombuffer(planes.T.tobytes(), dtype=dtype).reshape(shape).copy()
