"""Interpolation codec as an array serializer of Zarr v3 (`serializer=`).

Only array-to-bytes codecs receive shape, dtype and fill value. Edge chunks arrive padded with the
fill value, which is stored bit for bit at negligible cost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from scitoolkit.compression.native import library
from scitoolkit.core.errors import ConfigError
from scitoolkit.io.compressed import CODEC


@dataclass(frozen=True)
class InterpolationSerializer(ArrayBytesCodec):
    """Interpolation codec with an absolute bound for float32 and float64.

    Args:
        bound: largest |x - x'|, in the unit of the data unless the extras say otherwise.
        fill: a value that is restored bit for bit; by default the fill value of the array.
        extras: relative bound, further fill values, enhancer.
    """

    bound: float
    fill: float | None = None
    extras: library.ChunkExtras = field(default_factory=library.ChunkExtras)
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InterpolationSerializer:
        """Return the codec from an array's metadata."""
        options = data["configuration"]
        if unknown := set(options) - {"bound", "fill", "relative", "fills", "enhancer"}:
            raise ConfigError(
                f"{CODEC} with {min(unknown)!r}", allowed="bound, fill, relative, fills, enhancer"
            )
        fill = options.get("fill")
        fill = None if fill is None else float(fill)
        return cls(float(options["bound"]), fill, library.ChunkExtras.of(options))

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata of the codec."""
        fill = {} if self.fill is None else {"fill": self.fill}
        return {
            "name": CODEC,
            "configuration": {"bound": self.bound, **fill, **self.extras.settings()},
        }

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Raise ConfigError for an unsupported dtype or bound before anything is written."""
        del shape, chunk_grid
        native = dtype.to_native_dtype()
        if native.kind != "f" or native.itemsize not in (4, 8) or not self.bound >= 0:
            raise ConfigError(
                f"{CODEC} for {native} within {self.bound}",
                allowed="float32 or float64, a bound of at least 0",
            )

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Raise NotImplementedError: the size depends on the values."""
        raise NotImplementedError

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        shape, dtype, parameters = self._layout(chunk_spec)
        values = await asyncio.to_thread(
            library.decode_chunk, chunk_data.to_bytes(), shape, dtype, parameters
        )
        return chunk_spec.prototype.nd_buffer.from_numpy_array(values)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        _, dtype, parameters = self._layout(chunk_spec)
        values = np.ascontiguousarray(chunk_data.as_numpy_array(), dtype)
        data = await asyncio.to_thread(library.encode_chunk, values, parameters)
        return chunk_spec.prototype.buffer.from_bytes(data)

    def _layout(self, spec: ArraySpec) -> tuple[tuple[int, ...], np.dtype, np.ndarray]:
        dtype = spec.dtype.to_native_dtype().newbyteorder("<")
        fill = self.fill
        if fill is None and spec.fill_value is not None:
            fill = float(np.asarray(spec.fill_value))
        words = library.chunk_parameters(spec.shape, dtype, self.bound, fill, self.extras)
        return spec.shape, dtype, words
