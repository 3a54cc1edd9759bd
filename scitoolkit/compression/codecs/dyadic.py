"""Wavelet codec `dyadic` as a plug-in; the coder is in `compression.dyadic`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression import dyadic
from scitoolkit.compression.codecs.base import CodedField, Shape
from scitoolkit.compression.codecs.native_codec import NativeCodec
from scitoolkit.core.errors import DataError

# Bin widths in units of the bound: wider bins need more corrections.
STEPS = (1.5, 1.0)
# Small fields are coded in milliseconds, so more bin widths are tried.
FINE_STEPS, SMALL_POINTS = (*STEPS, 1.35, 1.2, 1.1, 0.92, 0.85), 1 << 16
# Wide bins require many corrections but give fewer bytes in total when only the bound matters.
WIDE_STEPS = (2.0, 2.3)
_HEAD = struct.Struct("<dhh")


class Dyadic(NativeCodec):
    """CDF 9/7 wavelet codec with rate-distortion quantisation; the bound is its bin width."""

    name: Literal["dyadic"] = "dyadic"
    pointwise: ClassVar[bool] = False
    automatic: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def refusal(self, values: np.ndarray, error_bound: float) -> str:
        """Return why values or bound are not supported: too narrow bins overflow the integers."""
        if why := super().refusal(values, error_bound):
            return why
        if float(np.abs(values).max()) / error_bound > dyadic.MAX_STEPS:
            return f"dyadic needs a bound above 1/{dyadic.MAX_STEPS} of the largest value"
        return ""

    def factors(self, num_points: int) -> Sequence[float]:
        """Return bin widths in units of the bound."""
        return FINE_STEPS if num_points <= SMALL_POINTS else STEPS

    def size_factors(self, num_points: int) -> Sequence[float]:
        """Return bin widths in units of the bound, including wide bins."""
        return (*self.factors(num_points), *WIDE_STEPS)

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Return offset, shrinkage and coded integers of bins `error_bound` wide."""
        stream, _ = dyadic.encode(values, error_bound)
        return _HEAD.pack(stream.offset, *stream.shrink) + bytes(stream.data)

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        if len(data) < _HEAD.size:
            raise DataError("damaged stream: the wavelet's header is truncated")
        offset, one, more = _HEAD.unpack_from(data)
        stream = dyadic.DyadicStream(error_bound, offset, (one, more), data[_HEAD.size :])
        return dyadic.decode(stream, shape, dtype)

    def code(self, values: np.ndarray, error_bound: float, factor: float = 1.0) -> CodedField:
        """Return the coded field; offset and shrinkage are stored in the header."""
        stream, decoded = dyadic.encode(values, error_bound * factor)
        header = {
            "name": self.name,
            "steps": factor,
            "offset": stream.offset,
            "shrink": stream.shrink,
        }
        return CodedField(bytes(stream.data), decoded, header)

    def restore(
        self, header: dict[str, Any], data: memoryview, shape: Shape, dtype: np.dtype, bound: float
    ) -> np.ndarray:
        """Decode a `CodedField`."""
        one, more = header["shrink"]
        step = bound * header["steps"]
        stream = dyadic.DyadicStream(step, header["offset"], (one, more), data)
        return dyadic.decode(stream, shape, dtype)
