"""Base class of the codecs in the C library `native`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scitoolkit.compression.codecs.base import ErrorBoundedCodec
from scitoolkit.compression.native import library


class NativeCodec(ErrorBoundedCodec):
    """Base of a codec in the C library: up to three dims after folding, no package required."""

    dims: ClassVar[tuple[int, int]] = (1, 3)
    reference: ClassVar[bool] = False

    @classmethod
    def unavailable(cls) -> str:
        """Return why the library cannot be compiled, "" if it can."""
        return library.unavailable()

    def refusal(self, values: np.ndarray, error_bound: float) -> str:
        """Return why the codec does not accept these values, "" if it does."""
        return self.unavailable() or super().refusal(values, error_bound)
