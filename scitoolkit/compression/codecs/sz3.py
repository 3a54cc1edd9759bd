"""SZ3 codec, through pysz."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression.codecs.base import ErrorBoundedCodec, Shape, fold
from scitoolkit.core.errors import missing_extra

# The size of an SZ3 stream is not monotone in the bound: a tighter bound may give fewer bytes.
FACTORS = (1.0, 0.985, 0.97, 0.955, 0.94, 0.92, 0.9)
FINE_FACTORS = tuple(round(1 - 0.01 * i, 2) for i in range(21))
SEARCHED_POINTS, SMALL_POINTS = 1 << 21, 1 << 16


class Sz3(ErrorBoundedCodec):
    """SZ3: interpolation and Lorenzo prediction (Liang et al. 2023).

    Source:
        doi:10.1109/TBDATA.2022.3201176
    """

    name: Literal["sz3"] = "sz3"
    requires: ClassVar[tuple[str, ...]] = ("pysz",)
    automatic: ClassVar[bool] = True

    def factors(self, num_points: int) -> Sequence[float]:
        """Return multiples of the bound, more of them for a field that is coded in milliseconds."""
        if num_points > SEARCHED_POINTS:
            return (1.0,)
        return FINE_FACTORS if num_points <= SMALL_POINTS else FACTORS

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with SZ3's interpolation-Lorenzo algorithm in absolute mode."""
        sz, config, mode = _library()
        config.errorBoundMode, config.absErrorBound = mode, error_bound
        packed, _ = sz.compress(values.reshape(fold(values.shape, self.dims[1])), config)
        return packed.tobytes()

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        sz, _, _ = _library()
        packed = np.frombuffer(data, dtype=np.uint8)
        return sz.decompress(packed, dtype.type, fold(shape, self.dims[1]))[0].reshape(shape)


def _library() -> tuple[Any, Any, Any]:
    try:
        from pysz import sz, szConfig, szErrorBoundMode
    except ImportError:
        raise missing_extra("pysz", "compression", "the codec sz3") from None
    return sz, szConfig(), szErrorBoundMode.ABS
