"""Pointwise relative bounds: log|x| is coded, signs and zeros are stored separately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scitoolkit.compression.lossless import squeeze, stretch


@dataclass(frozen=True)
class LogField:
    """Field as log|x| (float64) with masks of negative values and zeros (bool)."""

    logarithm: np.ndarray
    negative: np.ndarray
    zero: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> LogField:
        """Split a finite field; zeros get the logarithm of the smallest nonzero magnitude."""
        zero = values == 0
        size = np.abs(values.astype(np.float64))
        least = size[~zero].min() if not zero.all() else 1.0
        return cls(np.log(np.where(zero, least, size)), np.signbit(values), zero)

    def sections(self) -> dict[str, bytes]:
        """Return the sections of signs and zeros, if there are any."""
        marked = {"signs": self.negative, "zeros": self.zero}
        return {k: squeeze(np.packbits(v).tobytes()) for k, v in marked.items() if v.any()}

    @staticmethod
    def restore(logarithm: np.ndarray, sections: Mapping[str, memoryview]) -> np.ndarray:
        """Return the field (float64) of a decoded logarithm."""
        with np.errstate(over="ignore"):
            values = np.exp(logarithm)
        size = -(-values.size // 8)
        for name in ("zeros", "signs"):
            if name not in sections:
                continue
            packed = np.frombuffer(stretch(sections[name], size), np.uint8)
            marked = np.unpackbits(packed, count=values.size).astype(bool).reshape(values.shape)
            if name == "zeros":
                values[marked] = 0.0
            else:
                values[marked] *= -1.0
        return values


def exceeds(original: np.ndarray, decoded: np.ndarray, value: float) -> tuple[np.ndarray, float]:
    """Return the flat indices where |x - x'| > value |x|, and the largest |x - x'| / |x| elsewhere.

    Args:
        original: x, float array.
        decoded: x', of the same shape.
        value: the pointwise relative bound.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        x = original.astype(np.float64).reshape(-1)
        error = np.abs(x - decoded.astype(np.float64).reshape(-1))
        good = (error <= value * np.abs(x)) | ~np.isfinite(x)
        share = np.where(good & (x != 0) & np.isfinite(x), error / np.abs(x), 0.0)
    return np.flatnonzero(~good), float(share.max(initial=0.0))
