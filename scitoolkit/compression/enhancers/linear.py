"""Linear enhancer: class-wise Wiener filters with ten symmetric taps, in closed form.

The correction of a point is a linear combination of second differences of the decoded field at
that point. The taps are the least-squares solution of the point's class, so the mean square error
cannot increase. Classes are computed from the decoded field, by value (as GWLZ's groups) or by
local activity (as in the adaptive loop filter of video codecs), so only their limits are stored.

Source: Jia et al. 2024, arXiv:2404.13470 (groups by value range); Tsai et al. 2013,
doi:10.1109/JSTSP.2013.2271974 (class-wise Wiener filter).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from scitoolkit.compression.enhancers.base import Enhancer
from scitoolkit.compression.kernel_arguments import extents, folded
from scitoolkit.compression.limits import refuse_falling
from scitoolkit.compression.native.library import call, check, unavailable
from scitoolkit.core.errors import DataError

NUM_TAPS, _WIDE = 10, 12
# Taps are integers in units of 2^-e, with the smallest e that retains KEPT_GAIN of the gain.
EXPONENTS, KEPT_GAIN = range(7, 14), 0.999
MAX_CLASSES = 16
# Kinds 0 and 1 have 16-bit taps in units of 2^-13; kinds 2 and 3 store exponent and width.
_PACKED = 2
_SAMPLE = 1 << 16
# Points used for the normal equations of a large field: enough for ten unknowns per class.
_FIT_POINTS = 1 << 17


class Linear(Enhancer):
    """Class-wise Wiener filter with ten symmetric taps per class, fitted in closed form."""

    name: Literal["linear"] = "linear"
    num_behind: ClassVar[int] = 2

    @classmethod
    def unavailable(cls) -> str:
        """Return why the kernels cannot be compiled, "" if they can."""
        return unavailable()

    def sizes(self, num_points: int) -> Sequence[int]:
        """Return numbers of classes."""
        return (1, 4) if num_points < 1 << 18 else (4, 8)

    def fit(
        self,
        values: np.ndarray,
        decoded: np.ndarray,
        error_bound: float,
        size: Hashable,
        seconds: float,
    ) -> bytes:
        """Return the serialised taps and limits of the least-squares solution."""
        return fit(values, decoded, error_bound, cast(int, size))[0].to_bytes()

    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the field plus the linear correction of each point."""
        return LinearTaps.from_bytes(data, 1.0 / error_bound).apply(decoded, clip)


@dataclass(frozen=True)
class LinearTaps:
    """Quantised taps of each class, and the limits between classes.

    Attributes:
        activity: whether classes are defined by local activity instead of value.
        scale: reciprocal of the error bound; differences are in units of the bound.
        limits: (G - 1,) ascending, float32.
        taps: (G, 10) int16.
        exponent: e in the unit 2^-e of the taps.
    """

    activity: bool
    scale: float
    limits: np.ndarray
    taps: np.ndarray
    exponent: int = EXPONENTS[-1]

    def apply(self, decoded: np.ndarray, clip: float) -> np.ndarray:
        """Return the enhanced field; no point changes by more than `clip`."""
        shape = folded(decoded.shape)
        out = np.empty_like(decoded)
        limits, taps = self._in(decoded.dtype)
        enhancer = (float(self.scale), self.activity, limits, limits.size, taps, float(clip))
        check(call("linear_apply", decoded.dtype, extents(shape), decoded, *enhancer, out))
        return out

    def to_bytes(self) -> bytes:
        """Serialise as number of classes, kind, exponent, bits per tap, limits and taps."""
        width = max(int(np.abs(self.taps.astype(np.int32)).max(initial=0)).bit_length() + 1, 2)
        head = struct.pack("<BBBB", len(self.taps), _PACKED + self.activity, self.exponent, width)
        bits = (self.taps.reshape(-1, 1).astype(np.int64) + (1 << width - 1)) >> np.arange(width)
        packed = np.packbits((bits & 1).astype(np.uint8), bitorder="little")
        return head + self.limits.astype("<f4").tobytes() + packed.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, scale: float) -> LinearTaps:
        """Deserialise what `to_bytes` writes, or wrote when taps had 16 bits.

        Raises:
            DataError: the length of the data does not match its first bytes, or limits do not rise.
        """
        data = bytes(data)
        num, kind = (data[0], data[1]) if len(data) > 3 else (0, 0)
        packed = kind >= _PACKED
        exponent, width = (data[2], data[3]) if packed else (EXPONENTS[-1], 16)
        start = 4 if packed else 2
        size = start + 4 * (num - 1) + -(-NUM_TAPS * num * width // 8)
        fits = kind < 2 * _PACKED and exponent <= EXPONENTS[-1] and 2 <= width <= 16
        if not (1 <= num <= MAX_CLASSES and fits and len(data) == size):
            raise DataError("damaged stream: the length of the linear enhancer does not match")
        limits = np.frombuffer(data, "<f4", num - 1, start)
        refuse_falling(limits, "linear")
        rest = data[start + 4 * (num - 1) :]
        if packed:
            bits = np.unpackbits(
                np.frombuffer(rest, np.uint8), count=NUM_TAPS * num * width, bitorder="little"
            )
            numbers = bits.reshape(-1, width).astype(np.int64) << np.arange(width)
            taps = (numbers.sum(axis=1) - (1 << width - 1)).astype(np.int16)
        else:
            taps = np.frombuffer(rest, "<i2")
        return cls(bool(kind % 2), scale, limits, taps.reshape(num, NUM_TAPS), exponent)

    def _in(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        taps = (self.taps * 2.0**-self.exponent).astype(dtype)
        return self.limits.astype(dtype), np.ascontiguousarray(taps)


def fit(
    original: np.ndarray, decoded: np.ndarray, bound: float, num_classes: int
) -> tuple[LinearTaps, float]:
    """Return the enhancer with the least square error, and its change of that error (<= 0).

    Args:
        original: finite C-contiguous float32 or float64 field.
        decoded: the base codec's decoded values, same shape and dtype.
        bound: the absolute error bound, the unit of differences.
        num_classes: 1 to 16.
    """
    scale = 1.0 / bound
    choices = [_fit_kind(original, decoded, scale, False, num_classes)]
    if num_classes > 1:
        choices.append(_fit_kind(original, decoded, scale, True, num_classes))
    return min(choices, key=lambda choice: choice[1])


def largest_error(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return the largest |original - decoded| in float64 of two contiguous float fields.

    A NaN difference counts as infinite. Equals `bounds.max_error`, in one pass.
    """
    largest = ctypes.c_double()
    size, errors = ctypes.c_int64(decoded.size), ctypes.byref(largest)
    call("linear_max_error", decoded.dtype, size, original, decoded, errors)
    return largest.value


def _fit_kind(
    original: np.ndarray, decoded: np.ndarray, scale: float, activity: bool, num_classes: int
) -> tuple[LinearTaps, float]:
    limits = _limits(decoded, scale, activity, num_classes)
    sums = np.zeros((len(limits) + 1, NUM_TAPS, _WIDE))
    shape = folded(decoded.shape)
    stride = max(decoded.size // _FIT_POINTS, 1)
    # A stride that divides the number of rows would sample the same rows of every slice.
    stride += stride > 1 and shape[1] % stride == 0
    as_dtype = limits.astype(decoded.dtype)
    kind = (float(scale), activity, as_dtype, limits.size, stride)
    fields = (extents(shape), decoded, original)
    check(call("linear_accumulate", decoded.dtype, *fields, *kind, sums))
    gram, target = sums[:, :, :NUM_TAPS], sums[:, :, NUM_TAPS]
    rounded = [_rounded(gram, target, exponent) for exponent in EXPONENTS]
    best = max(gain for _, gain in rounded)
    pairs = zip(EXPONENTS, rounded, strict=True)
    exponent, (taps, gain) = next(pair for pair in pairs if pair[1][1] >= KEPT_GAIN * best)
    return LinearTaps(activity, scale, limits, taps, exponent), -gain


def _rounded(gram: np.ndarray, target: np.ndarray, exponent: int) -> tuple[np.ndarray, float]:
    """Return taps in units of 2^-exponent, and their reduction of the sum of squares."""
    taps, gain, unit = np.zeros(target.shape, np.int16), 0.0, 2.0**-exponent
    for k, (a, b) in enumerate(zip(gram, target, strict=True)):
        if not (np.isfinite(a).all() and np.isfinite(b).all()) or not a.any():
            continue
        # Classes of few points, or of fields that vary along one dim, have singular normal
        # equations.
        ridge = 1e-6 * np.trace(a) / NUM_TAPS * np.eye(NUM_TAPS)
        solved = np.clip(np.rint(np.linalg.solve(a + ridge, b) / unit), -32767, 32767)
        rounded = solved * unit
        # The decrease of the sum of squares with the rounded taps and without the ridge, which is
        # no part of the error. A class whose rounded taps would lose keeps zeros.
        won = 2 * rounded @ b - rounded @ a @ rounded
        if won > 0:
            taps[k], gain = solved, gain + won
    return taps, gain


def _limits(decoded: np.ndarray, scale: float, activity: bool, num_classes: int) -> np.ndarray:
    """Return ascending quantiles (float32) of value or activity over a sample of points."""
    if num_classes == 1:
        return np.empty(0, np.float32)
    field = decoded.reshape(folded(decoded.shape))
    step = max(round((field.size / _SAMPLE) ** (1 / 3)), 1)
    if activity:
        sample = _activity_sample(field, scale, step)
    else:
        sample = field[::step, ::step, ::step].reshape(-1)
    shares = np.arange(1, num_classes) / num_classes
    # Rounded before the fit: points are classified with the limits that are stored. Equal quantiles
    # are joined, because readers refuse limits that do not rise.
    return np.unique(np.quantile(sample, shares).astype(np.float32))


def _activity_sample(field: np.ndarray, scale: float, step: int) -> np.ndarray:
    """Return sums of absolute second differences at every `step`-th inner point."""
    inner = tuple(slice(1, -1) if n > 2 else slice(None) for n in field.shape)
    total = np.zeros_like(field[inner][::step, ::step, ::step], dtype=np.float64)
    for axis, n in enumerate(field.shape):
        if n < 3:
            continue
        rows = list(inner)
        parts = []
        for window in (slice(0, n - 2), slice(1, n - 1), slice(2, n)):
            rows[axis] = window
            parts.append(field[tuple(rows)][::step, ::step, ::step].astype(np.float64))
        total += np.abs(parts[0] - 2 * parts[1] + parts[2]) * scale
    return total.reshape(-1)
