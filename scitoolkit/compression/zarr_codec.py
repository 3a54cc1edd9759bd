"""Zarr v3: our interpolation as the serializer of an array (`serializer=`).

It must turn arrays into bytes, as only such codecs see shape, type and fill value. Chunks at the
edge arrive whole, padded with the fill value, which is kept bit for bit and costs next to nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from scitoolkit.compression.native import library
from scitoolkit.core.errors import ConfigError

NAME = "scitoolkit.interpolation"


@dataclass(frozen=True)
class InterpolationSerializer(ArrayBytesCodec):
    """Interpolation within an absolute bound, for float32 and float64.

    Args:
        bound: largest |x - x'|, in the unit of the data.
        fill: a value that is kept bit for bit; the fill value of the array unless given.
    """

    bound: float
    fill: float | None = None
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InterpolationSerializer:
        """Return the codec of an array's metadata."""
        given = data["configuration"]
        if unknown := set(given) - {"bound", "fill"}:
            raise ConfigError(f"{NAME} with {min(unknown)!r}", allowed="bound, fill")
        fill = given.get("fill")
        return cls(float(given["bound"]), None if fill is None else float(fill))

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata of the codec."""
        own = {} if self.fill is None else {"fill": self.fill}
        return {"name": NAME, "configuration": {"bound": self.bound, **own}}

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Refuse other types than float32 and float64 before anything is written."""
        del shape, chunk_grid
        native = dtype.to_native_dtype()
        if native.kind != "f" or native.itemsize not in (4, 8) or not self.bound > 0:
            raise ConfigError(
                f"{NAME} for {native} within {self.bound}",
                allowed="float32 or float64, a positive bound",
            )

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Refuse: the size depends on the values."""
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
        return spec.shape, dtype, library.chunk_parameters(spec.shape, dtype, self.bound, fill)
