"""A codec in one file: values rounded to bins of twice the error bound, then deflated."""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np
from pydantic import Field

from scitoolkit.compression.codecs import ErrorBoundedCodec
from scitoolkit.core.errors import DataError

# Share of the bound that is left for the rounding of float32 and float64 values themselves.
SHARE = 0.99


class UniformBins(ErrorBoundedCodec):
    """Uniform quantisation with differences along the last dim.

    Attributes:
        level: effort of deflate, 1 (fast) to 9 (small).
    """

    name: Literal["uniform_bins"] = "uniform_bins"
    level: int = Field(default=6, ge=1, le=9)

    def refusal(self, values: np.ndarray, error_bound: float) -> str:
        """Bins must be wider than the rounding of the largest value, and fit into int64."""
        rounding = float(np.spacing(np.abs(values).max()))
        if error_bound < 1000 * rounding:
            return f"uniform_bins needs a bound above {1000 * rounding:g}, got {error_bound:g}"
        return super().refusal(values, error_bound)

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Return the deflated differences of bin numbers."""
        bins = np.rint(values.astype(np.float64) / (2 * SHARE * error_bound)).astype("<i8")
        return zlib.compress(np.diff(bins, axis=-1, prepend=0).tobytes(), self.level)

    def decode(
        self, data: bytes, shape: tuple[int, ...], dtype: np.dtype, error_bound: float
    ) -> np.ndarray:
        """Return the centres of the bins."""
        try:
            differences = np.frombuffer(zlib.decompress(data), "<i8").reshape(shape)
        except (zlib.error, ValueError) as error:
            raise DataError(f"damaged stream: {error}") from None
        return (np.cumsum(differences, axis=-1) * (2 * SHARE * error_bound)).astype(dtype)
