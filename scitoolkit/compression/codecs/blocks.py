"""Fast codec: interpolation in independent blocks with rANS; see `native/blocks.c`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression.codecs.base import CodedField, Shape, WindowedCodec
from scitoolkit.compression.codecs.native_codec import NativeCodec
from scitoolkit.compression.native import blocks


class Blocks(NativeCodec, WindowedCodec):
    """Interpolation codec on blocks of about 64 x 64 x 128 points with table-based entropy coding.

    Blocks are coded in parallel ($OMP_NUM_THREADS threads) and can be decoded separately; the
    interpolation weights are fitted once for all blocks. See docs/format/blocks.md.

    Source:
        Duda 2013, arXiv:1311.2540 (rANS).
    """

    name: Literal["blocks"] = "blocks"
    fast: ClassVar[bool] = True

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Return the coded field."""
        return blocks.encode(values, error_bound)[0]

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        coded = blocks.CodedBlocks.read(data, shape, dtype, error_bound)
        return coded.decode(np.empty(shape, dtype))

    def code(self, values: np.ndarray, error_bound: float, factor: float = 1.0) -> CodedField:
        """Return the coded field; decoding requires only the bound of the stream."""
        if factor != 1.0:
            raise ValueError(f"blocks supports the factor 1, got {factor}")
        data, decoded, error = blocks.encode(values, error_bound)
        return CodedField(data, decoded, {"name": self.name}, error)

    def restore(
        self, header: dict[str, Any], data: memoryview, shape: Shape, dtype: np.dtype, bound: float
    ) -> np.ndarray:
        """Decode a `CodedField`."""
        coded = blocks.CodedBlocks.read(data, shape, dtype, bound)
        return coded.decode(np.empty(shape, dtype))

    def restore_window(
        self,
        header: dict[str, Any],
        data: memoryview,
        shape: Shape,
        dtype: np.dtype,
        bound: float,
        window: blocks.Window,
    ) -> np.ndarray:
        """Decode a window of the field; only the blocks that overlap it are decoded."""
        return blocks.CodedBlocks.read(data, shape, dtype, bound).window(window)
