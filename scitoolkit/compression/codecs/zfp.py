"""ZFP codec, through zfpy."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression.codecs.base import ErrorBoundedCodec, Shape, fold
from scitoolkit.core.errors import missing_extra


class Zfp(ErrorBoundedCodec):
    """ZFP: block transform in fixed-accuracy mode (Lindstrom 2014).

    Source:
        doi:10.1109/TVCG.2014.2346458
    """

    name: Literal["zfp"] = "zfp"
    requires: ClassVar[tuple[str, ...]] = ("zfpy",)
    automatic: ClassVar[bool] = True

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with an absolute tolerance."""
        folded = values.reshape(fold(values.shape, self.dims[1]))
        return _library().compress_numpy(folded, tolerance=error_bound, write_header=False)

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        zfpy = _library()
        kind = zfpy.type_float if dtype == np.float32 else zfpy.type_double
        folded = fold(shape, self.dims[1])
        return zfpy._decompress(data, kind, folded, tolerance=error_bound).reshape(shape)


def _library() -> Any:
    try:
        import zfpy
    except ImportError:
        raise missing_extra("zfpy", "compression", "the codec zfp") from None
    return zfpy
