"""Partial decompression of an array.

Only slabs that overlap the region are decoded, and of slabs coded with `blocks` only the
overlapping blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scitoolkit.compression.arrays import masked_array
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.codecs.base import WindowedCodec
from scitoolkit.compression.container import read_header, unpack
from scitoolkit.compression.decoding import decompress, error_bound_of, times_power
from scitoolkit.core.errors import ConfigError, DataError

Spans = tuple[tuple[int, int], ...]


def decompress_region(stream: bytes | memoryview, *slices: slice) -> np.ndarray:
    """Decompress a region of an array.

    Args:
        stream: bytes returned by `compress` or `compress_slabs`; of a memory map only the required
            parts are read.
        slices: one per leading dim, without steps; other dims are unrestricted.

    Raises:
        ConfigError: too many slices, or one with a step.
        DataError: the stream is damaged in the parts that were read.

    Example:
        >>> from scitoolkit.compression import compress
        >>> x = np.sin(np.linspace(0, 9, 1 << 15, dtype=np.float32)).reshape(32, 32, 32)
        >>> stream = compress(x, abs=1e-3, objective="speed")
        >>> part = decompress_region(stream, slice(3, 5), slice(7))
        >>> part.shape, bool(np.abs(part - x[3:5, :7]).max() <= 1e-3)
        ((2, 7, 32), True)
    """
    header, sections = unpack(stream, verified=False)
    spans = _spans(tuple(header["shape"]), slices)
    if "slabs" not in header:
        return _part(stream, spans)
    out = np.empty([e - b for b, e in spans], np.dtype(header["dtype"]))
    if "masked" in header:
        out = masked_array(out, np.ma.nomask, header["masked"])
    (first, last), start = spans[0], 0
    for data in sections.values():
        rows = int(read_header(data)["shape"][0])
        begin, end = max(first, start), min(last, start + rows)
        if begin < end:
            inner = ((begin - start, end - start), *spans[1:])
            out[begin - first : end - first] = _part(data, inner)
        start += rows
    if start != header["shape"][0]:
        raise DataError("damaged stream: slabs are missing")
    return out


def _spans(shape: tuple[int, ...], slices: tuple[slice, ...]) -> Spans:
    fits = (isinstance(s, slice) and s.step in (None, 1) for s in slices)
    if len(slices) > len(shape) or not all(fits):
        raise ConfigError(
            f"region {slices} of an array of shape {shape}",
            allowed="at most one slice per dim, without steps",
        )
    whole = (*slices, *(slice(None),) * (len(shape) - len(slices)))
    limits = (s.indices(n)[:2] for s, n in zip(whole, shape, strict=True))
    return tuple((begin, max(begin, end)) for begin, end in limits)


def _part(stream: bytes | memoryview, spans: Spans) -> np.ndarray:
    """Decompress a region of a stream without slabs."""
    header, sections = unpack(stream, verified=False)
    window = _window(header, sections, spans)
    if window is None:
        return decompress(stream)[tuple(slice(b, e) for b, e in spans)]
    shape, dtype = tuple(header["shape"]), np.dtype(header["dtype"])
    codec = codecs.get(header["base"]["name"])()
    assert isinstance(codec, WindowedCodec)
    native = dtype.newbyteorder("=")
    bound = math.ldexp(error_bound_of(header), header.get("exponent", 0))
    part = codec.restore_window(header["base"], sections["base"], shape, native, bound, window)
    part = times_power(part, -header.get("exponent", 0))
    return part.reshape([e - b for b, e in spans]).astype(dtype, copy=False)


def _window(header: dict[str, Any], sections: dict[str, memoryview], spans: Spans) -> Any:
    """Return the region as a window of a `WindowedCodec`; None if all must be decoded."""
    name = header["base"]["name"]
    simple = list(sections) == ["base"] and "valid" not in header
    longer = [span for span, n in zip(spans, header["shape"], strict=True) if n != 1]
    working = np.dtype(header["dtype"]).itemsize in (4, 8) and header["bound"]["mode"] != "pw_rel"
    if not (
        simple
        and working
        and len(longer) <= 3
        and name in codecs
        and issubclass(codecs.get(name), WindowedCodec)
    ):
        return None
    if any(b >= e for b, e in spans):
        return None
    return (*((0, 1),) * (3 - len(longer)), *longer)
