"""Closed-loop interpolation codec with fitted weights; the coder is the C library `native`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression.codecs.base import CodedField, Shape
from scitoolkit.compression.codecs.native_codec import NativeCodec
from scitoolkit.compression.native import library

# Fields up to this size are coded with every method; larger ones with the best one on a block.
THOROUGH_POINTS = 1 << 18
PART = "part"
"""Entry of a codec's header with which `restore` decodes the first bytes of a coded field."""


class Interpolation(NativeCodec):
    """Coarse-to-fine interpolation with weights fitted to the field, and context mixing.

    Every point is predicted from decoded points and the residual is quantised in steps of twice
    the bound, so that the bound holds without corrections; see docs/format/interpolation.md.

    Attributes:
        progressive: the stream states the errors of its first bytes, from which `preview` decodes
            a coarse picture; it is then coded from coarse to fine also where a line of
            differences takes fewer bytes.

    Source:
        doi:10.1109/ICDE51399.2021.00145 (closed-loop interpolation); weights are fitted by least
        squares to decoded values, and predictions averaged over axes as in doi:10.1145/3617327.
    """

    name: Literal["interpolation"] = "interpolation"
    progressive: bool = False
    automatic: ClassVar[bool] = True
    fills_bound: ClassVar[bool] = True
    adaptive: ClassVar[bool] = True

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Return the coded field."""
        return self.code(values, error_bound).data

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        return library.decode(data, shape, dtype, error_bound)

    def code(self, values: np.ndarray, error_bound: float, factor: float = 1.0) -> CodedField:
        """Return the coded field; decoding requires only the bound of the stream."""
        thorough = values.size <= THOROUGH_POINTS
        data, decoded, error = library.encode(
            values, error_bound * factor, thorough=thorough, levels=self.progressive
        )
        return CodedField(data, decoded, {"name": self.name, **_other_bound(factor)}, error)

    def restore(
        self, header: dict[str, Any], data: memoryview, shape: Shape, dtype: np.dtype, bound: float
    ) -> np.ndarray:
        """Decode a `CodedField`, or its first bytes if the header says that it is a part."""
        bound *= header.get("factor", 1.0)
        return library.decode(data, shape, dtype, bound, part=PART in header)


def _other_bound(factor: float) -> dict[str, float]:
    return {} if factor == 1.0 else {"factor": factor}
