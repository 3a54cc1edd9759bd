"""Interpolation codec for numcodecs (Zarr v2 and kerchunk)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numcodecs.abc import Codec

from scitoolkit.compression.native import library
from scitoolkit.core.errors import ConfigError, DataError

_TYPES = ("<f4", "<f8")


class InterpolationCodec(Codec):
    """Interpolation codec with an absolute bound.

    numcodecs does not pass an array's fill value to codecs, so it is a setting.

    Args:
        bound: largest |x - x'|, in the unit of the data.
        fill: a value that is restored bit for bit, as NaN and Inf always are.
        relative: the bound is a fraction of every value.
        fills: further values that are restored bit for bit.
        enhancer: name and hexadecimal bytes of the enhancer of all chunks.

    Example:
        >>> codec = InterpolationCodec(1e-2)
        >>> x = np.linspace(0, 1, 500, dtype=np.float32)
        >>> bool(np.abs(codec.decode(codec.encode(x)) - x).max() <= 1e-2)
        True
    """

    codec_id: ClassVar[str] = "scitoolkit.interpolation"

    def __init__(
        self,
        bound: float,
        fill: float | None = None,
        relative: bool = False,
        fills: Sequence[float] = (),
        enhancer: Sequence[str] | None = None,
    ) -> None:
        self.bound, self.fill = float(bound), fill
        settings = {"relative": relative, "fills": fills, "enhancer": enhancer}
        self._extras = library.ChunkExtras.of(settings)

    def get_config(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, and the codec's name."""
        config = {"id": self.codec_id, "bound": self.bound, "fill": self.fill}
        return config | self._extras.settings()

    def encode(self, buf: Any) -> bytes:
        """Return dtype, number of dims and extents, followed by the framed chunk."""
        values = np.asarray(buf)
        if values.dtype.kind != "f" or values.dtype.itemsize not in (4, 8):
            raise ConfigError(f"an array of {values.dtype}", allowed="float32 or float64")
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        kind, shape = _TYPES.index(little.dtype.str), values.shape or (1,)
        head = struct.pack(f"<BB{len(shape)}I", kind, len(shape), *shape)
        parameters = library.chunk_parameters(
            shape, little.dtype, self.bound, self.fill, self._extras
        )
        return head + library.encode_chunk(little, parameters)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the values, written to `out` if it is given."""
        data = bytes(buf)
        if len(data) < 2 or data[0] >= len(_TYPES) or len(data) < 2 + 4 * data[1]:
            raise DataError("damaged chunk: its header is truncated")
        shape = struct.unpack_from(f"<{data[1]}I", data, 2)
        dtype = np.dtype(_TYPES[data[0]])
        _check_size(data, shape, dtype)
        parameters = library.chunk_parameters(shape, dtype, self.bound, self.fill, self._extras)
        values = library.decode_chunk(data[2 + 4 * data[1] :], shape, dtype, parameters)
        if out is None:
            return values
        np.copyto(np.asarray(out).reshape(shape), values)
        return out


def _check_size(data: bytes, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise if the extents do not match the size in the frame, before allocating for them."""
    said = data[2 + 4 * len(shape) + 8 :][:4]
    size = dtype.itemsize
    for n in shape:
        size *= n
    if len(said) < 4 or int.from_bytes(said, "little") != size:
        raise DataError("damaged chunk: its extents do not match its size")
