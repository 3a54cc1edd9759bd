"""Error bounds, and their conversion to the absolute bound that is passed to codecs.

`abs`: |x - x'| <= value. `rel`: |x - x'| <= value * (max - min) of the finite values. `pw_rel`:
|x - x'| <= value * |x| at every point; log|x| is coded, signs and zeros are stored separately.
`psnr`: 20 log10(range / rmse) is at least that many dB, without a pointwise bound.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from scitoolkit.core.errors import ConfigError

MODES = ("abs", "rel", "pw_rel", "psnr")


@dataclass(frozen=True)
class Bound:
    """Error bound requested by the user.

    Args:
        mode: abs, rel, pw_rel or psnr.
        value: in the data's unit (abs), as a fraction (rel, pw_rel), or in dB (psnr).

    Raises:
        ConfigError: unknown mode, or a value outside the range of the mode.
    """

    mode: str
    value: float

    def __post_init__(self) -> None:
        """Validate mode and value."""
        if self.mode not in MODES:
            raise ConfigError(f"bound mode {self.mode!r}", allowed=", ".join(MODES))
        if not math.isfinite(self.value) or self.value < 0:
            raise ConfigError(f"bound {self.mode}={self.value!r}", allowed="a finite number >= 0")
        if self.mode == "pw_rel" and self.value >= 1:
            raise ConfigError(f"bound pw_rel={self.value!r}", allowed="a fraction below 1")

    @classmethod
    def choose(cls, **asked: float | None) -> Bound:
        """Return the one bound that is not None.

        Raises:
            ConfigError: none or several were given.

        Example:
            >>> Bound.choose(abs=None, rel=1e-3)
            Bound(mode='rel', value=0.001)
        """
        bounds = {mode: value for mode, value in asked.items() if value is not None}
        if len(bounds) != 1:
            raise ConfigError(
                f"{len(bounds)} bounds given ({', '.join(bounds) or 'none'})",
                allowed="exactly one of " + ", ".join(MODES),
                fix="rel=1e-3",
            )
        mode, value = next(iter(bounds.items()))
        return cls(mode, _number(mode, value))

    @property
    def of_range(self) -> bool:
        """Whether the bound refers to the range of the values."""
        return self.mode in ("rel", "psnr")

    def absolute(self, low: float, high: float) -> float:
        """Return the absolute bound for finite values between `low` and `high`."""
        if self.mode == "abs":
            return self.value
        if self.mode == "rel":
            bound = self.value * (high - low)
            # A denormal product may have been rounded up by much of itself.
            return bound if bound >= sys.float_info.min else math.nextafter(bound, 0.0)
        if self.mode == "pw_rel":
            return math.log1p(self.value) * (1 - 1e-9)
        # Quantisation errors of a bin of half-width e are uniform, with rmse e / sqrt(3).
        return math.sqrt(3.0) * (high - low) * 10.0 ** (-self.value / 20.0)


def _number(mode: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigError(f"bound {mode}={value!r}", allowed="a number") from None


def psnr(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return 20 log10(range / rmse) in dB over the finite original values; inf for equal arrays.

    Example:
        >>> psnr(np.array([0.0, 1.0]), np.array([0.1, 0.9]))
        20.0
    """
    valid = np.isfinite(original)
    x = original[valid].astype(np.float64)
    error = x - decoded[valid]
    largest = float(np.abs(error).max(initial=0.0))
    if largest == 0:
        return math.inf
    low, high = float(x.min()), float(x.max())
    if low == high or not math.isfinite(largest):
        return -math.inf
    # Powers of two change no digit, and squares of 1e-200 or 1e200 are representable.
    exponent = -math.frexp(largest)[1]
    rmse = float(np.sqrt(np.mean(np.ldexp(error, exponent) ** 2)))
    logarithm = math.log10((0.5 * high - 0.5 * low) / rmse)
    return round(20 * (logarithm + (exponent + 1) * math.log10(2)), 9)


def max_error(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return the largest |original - decoded| over the finite original values, in float64.

    A decoded value that is not finite counts as an infinite error.
    """
    largest = 0.0
    x, y = original.reshape(-1), decoded.reshape(-1)
    for start in range(0, x.size, 1 << 20):
        part = x[start : start + (1 << 20)].astype(np.float64)
        other = y[start : start + (1 << 20)].astype(np.float64)
        valid = np.isfinite(part)
        difference = np.abs(part[valid] - other[valid])
        if difference.size:
            worst = float(difference.max())
            largest = max(largest, worst if worst == worst else math.inf)
    return largest
