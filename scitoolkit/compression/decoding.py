"""Decompression of streams: of whole arrays, of their first bytes, and of their headers.

A stream is bytes from elsewhere: what its header says is checked before anything is allocated for
it, and decoded values are compared with the checksum that was stored when the bound was verified.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from scitoolkit.compression import field
from scitoolkit.compression.arrays import masked_array, working_dtype
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.codecs.interpolation import PART
from scitoolkit.compression.container import VALUES_CRC, read_header, unpack
from scitoolkit.compression.lossless import decode_array, stretch
from scitoolkit.compression.mask import restore_mask
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.patches import apply_patch, apply_repairs
from scitoolkit.compression.pointwise import LogField
from scitoolkit.core.errors import DataError, ScitoolkitError


def decompress(stream: bytes | memoryview, *, max_bytes: int | None = None) -> np.ndarray:
    """Decompress a stream of `compress`.

    Args:
        stream: bytes returned by `compress`.
        max_bytes: size limit of the array; half of the machine's memory by default.

    Returns:
        The array within its bound, of the original shape and dtype.

    Raises:
        DataError: the stream is damaged, in another format or version, or the array too large.

    Example:
        >>> from scitoolkit.compression import compress
        >>> decompress(compress(np.arange(5), abs=0))
        array([0, 1, 2, 3, 4])
    """
    header, sections = unpack(stream)
    with contradictions_named():
        shape, dtype = _checked_size(header, max_bytes)
        if "slabs" in header:
            return _join(header, sections, shape, dtype, max_bytes)
        return _decode(header, sections, shape, dtype)


@contextlib.contextmanager
def contradictions_named() -> Iterator[None]:
    """Raise DataError for errors that follow from a header which contradicts its sections."""
    try:
        yield
    except ScitoolkitError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"damaged stream: the header contradicts itself ({error!r})") from None


def inspect_stream(stream: bytes | memoryview) -> dict[str, Any]:
    """Return the header of a stream, its size, compression ratio and section sizes (bytes)."""
    header = dict(read_header(stream))
    _, sections = unpack(stream)
    shape, dtype = _checked_size(header, 1 << 62)
    size = math.prod(shape) * dtype.itemsize
    header["sections"] = {name: len(data) for name, data in sections.items()}
    total = len(memoryview(stream).cast("B"))
    if "range" in header:
        header["error_bound"] = error_bound_of(header)
    return {**header, "bytes": total, "ratio": size / total}


def error_bound_of(header: dict[str, Any]) -> float:
    """Return the absolute bound on the codec's input (log|x| for pw_rel) from a header."""
    if "error_bound" in header:
        return float(header["error_bound"])
    low, high = header["range"]
    return Bound(header["bound"]["mode"], header["bound"]["value"]).absolute(low, high)


def max_error_of(stream: bytes) -> float:
    """Return the largest error of a stream, as measured when it was written."""
    return float(read_header(stream)["max_error"])


def decode_part(
    header: dict[str, Any], sections: Mapping[str, Any], data: memoryview
) -> np.ndarray:
    """Return the array of the first bytes of its coded field, without corrections and patches.

    Args:
        header: of a progressive stream.
        sections: those in front of the coded field are used.
        data: the first bytes of the coded field.

    Raises:
        DataError: the bytes are too few, or damaged.
    """
    shape, dtype = _checked_size(header, None)
    coarse = {key: value for key, value in header.items() if key != "enhancer"}
    coarse["base"] = {**header["base"], PART: True}
    before = itertools.takewhile(lambda name: name != "base", sections)
    parts = {name: memoryview(sections[name]) for name in before} | {"base": data}
    values, _ = decode_values(coarse, parts, shape, dtype, with_crc=False)
    return _masked(values, header, parts)


def _decode(
    header: dict[str, Any], sections: dict[str, memoryview], shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    # Streams of format version 1 have no checksum of decoded values; `blocks` has one per block.
    wanted = header.get(VALUES_CRC)
    values, crc = decode_values(header, sections, shape, dtype, with_crc=wanted is not None)
    if wanted is not None and wanted != crc:
        base = header["base"]
        raise DataError(
            f"codec {base['name']} decodes to other values than when the bound was verified",
            allowed=f"{base['name']} in version {base.get('version', 'of the writer')}",
        )
    return _masked(values, header, sections)


def decode_values(
    header: dict[str, Any],
    sections: dict[str, memoryview],
    shape: tuple[int, ...],
    dtype: np.dtype,
    *,
    with_crc: bool = True,
) -> tuple[np.ndarray, int]:
    """Return the array, and the CRC of the values decoded by its codec, or 0 without `with_crc`.

    For `pw_rel` the CRC is that of log|x|, because math libraries round exponentials differently.
    """
    if header["base"]["name"] == "lossless":
        exact = decode_array(sections["base"], shape, dtype)
        return exact, checksum(exact)
    native = dtype.newbyteorder("=")
    log_domain = header["bound"]["mode"] == "pw_rel"
    work = np.dtype(np.float64) if log_domain else working_dtype(native)
    exponent = header.get("exponent", 0)
    bound = math.ldexp(error_bound_of(header), exponent)
    values = times_power(field.decode_field(header, sections, shape, work, bound), -exponent)
    crc = checksum(values) if with_crc else 0
    if log_domain:
        values = LogField.restore(values, sections)
    with np.errstate(over="ignore"):
        out = values.astype(native, copy=False)
    if "repairs" in sections:
        apply_repairs(out, sections["repairs"], header["repair_step"])
    if "valid" in header:
        out = MissingValues.from_header(header).clip(out)
    if "patch" in sections:
        apply_patch(out, sections["patch"])
    if "mask" in sections:
        restore_mask(sections["mask"], out)
    return out.astype(dtype, copy=False), crc


def times_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return the values times two to the power `exponent`, which is exact for normal numbers."""
    if not exponent:
        return values
    # Decoded values may round to Inf or zero; verification finds them.
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(values, exponent)


def _masked(
    values: np.ndarray, header: dict[str, Any], sections: dict[str, memoryview]
) -> np.ndarray:
    """Return `values` as a masked array if the header has a mask."""
    if "masked" not in header:
        return values
    packed = np.frombuffer(stretch(sections["masked"], -(-values.size // 8)), np.uint8)
    mask = np.unpackbits(packed, count=values.size).astype(bool).reshape(values.shape)
    return masked_array(values, mask, header["masked"])


def checksum(values: np.ndarray) -> int:
    """Return the CRC of values, the same on machines of either byte order."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return zlib.crc32(little.reshape(-1).view(np.uint8).data)


def _checked_size(
    header: dict[str, Any], max_bytes: int | None
) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a header, validated before anything is allocated for them."""
    shape, dtype = tuple(header["shape"]), np.dtype(str(header["dtype"]))
    if dtype.kind not in "fiub" or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"damaged stream: shape {shape}, dtype {dtype}")
    if len(shape) > 32:
        raise DataError(f"damaged stream: {len(shape)} dims")
    limit = max_bytes if max_bytes is not None else _half_of_memory()
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise DataError(
            f"the array would take {size} bytes",
            allowed=f"{limit} bytes",
            fix="decompress(stream, max_bytes=...)",
        )
    return shape, dtype


def _half_of_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 1 << 33


def _join(header, sections, shape, dtype, max_bytes: int | None) -> np.ndarray:
    """Return the array of a stream of slabs along its first dim."""
    out = np.empty(shape, dtype)
    if "masked" in header:
        out = masked_array(out, np.ma.nomask, header["masked"])
    start = 0
    for data in sections.values():
        part = decompress(data, max_bytes=max_bytes)
        if part.shape[1:] != shape[1:] or start + len(part) > shape[0] or part.dtype != dtype:
            raise DataError("damaged stream: a slab does not fit the array")
        out[start : start + len(part)] = part
        start += len(part)
    if start != shape[0]:
        raise DataError("damaged stream: slabs are missing")
    return out
