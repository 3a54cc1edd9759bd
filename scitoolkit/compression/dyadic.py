"""Wavelet coder of the codec `dyadic`: CDF 9/7, rate-distortion quantiser, context mixing.

As in image coders, every binary decision is coded with a probability mixed from six contexts:
magnitudes of neighbours in the band, in the other bands of the level and in the parent band. (SPERR
codes its coefficients almost without entropy coding, SZ3 its residuals without contexts.) A
coefficient is rounded down if that saves more bits than its error is worth. The transform has no
pointwise bound, so points outside the bound are corrected by integers coded with the same coder
(`outliers`, `encode_integers`): a coarse step with a few corrections is shorter than a fine step.

Transform and coder are written in C (`native/wavelet.c`, `native/entropy.c`). The coder's contexts
depend on integers only and floating-point contraction is off, so all IEEE machines decode alike.

Caveat: the coder is sequential and requires a C compiler at run time.

Source: Daubechies & Sweldens 1998, doi:10.1007/BF02476026 (lifting); Mahoney 2005 (mixing).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scitoolkit.compression.kernel_arguments import extents, folded
from scitoolkit.compression.native.library import call, check

MAX_STEPS = 2**28
RATE_WEIGHT = 0.08
SHRINK_UNIT = 256
# Error, in bounds, that a correction of 1 represents, and the increment of each further unit.
# Errors from 1 to 2.3 bounds round to the first unit and keep at most 0.9 of the bound; further
# units are 1.8 apart, which leaves 0.9 as well. The tenth that remains is for rounding.
FIRST_OUTLIER, NEXT_OUTLIER = 1.4, 1.8


@dataclass(frozen=True)
class DyadicStream:
    """Coded field; the decoder requires dtype and shape in addition.

    Attributes:
        step: width of a quantisation bin of the coefficients.
        offset: mean of the field, subtracted before the transform.
        shrink: reduction of coefficients of magnitude 1, and of larger ones, in 1/256 steps.
        data: the coded integers.
    """

    step: float
    offset: float
    shrink: tuple[int, int]
    data: bytes | memoryview


def encode(values: np.ndarray, step: float) -> tuple[DyadicStream, np.ndarray]:
    """Return the coded field and its decoded values.

    Args:
        values: finite C-contiguous float32 or float64 array, any dims.
        step: bin width of the coefficients, in the field's unit; the rmse is below 0.29 steps.
    """
    # The offset need not be exact; few digits keep the header short.
    offset = float(f"{np.mean(values, dtype=np.float64):.2g}")
    work = (values - values.dtype.type(offset)).reshape(folded(values.shape))
    _wavelet(work, inverse=False)
    work *= values.dtype.type(1.0 / step)
    integers, data = _scan(work, RATE_WEIGHT)
    shrink = _shrink(work, integers)
    stream = DyadicStream(step, offset, shrink, data)
    return stream, _reconstruct(integers, stream, values.shape, values.dtype)


def decode(stream: DyadicStream, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the decoded field, bit for bit as `encode` returned it."""
    integers = decode_integers(stream.data, shape)
    return _reconstruct(integers, stream, shape, dtype)


def encode_integers(integers: np.ndarray) -> bytes:
    """Code small integers, most of them zero, with the context coder."""
    return _scan(integers.reshape(folded(integers.shape)).astype(np.float32), 0.0)[1]


def decode_integers(data: bytes | memoryview, shape: tuple[int, ...]) -> np.ndarray:
    """Decode the integers (int32) of `encode_integers`.

    Raises:
        DataError: the data are truncated.
    """
    dims, packed = extents(folded(shape)), np.frombuffer(data, np.uint8)
    integers, kind = np.empty(dims, np.int32), np.dtype(np.float32)
    check(call("sck_scan", kind, dims, None, integers, 0.0, packed, packed.size))
    return integers.reshape(shape)


def outliers(values: np.ndarray, decoded: np.ndarray, bound: float) -> np.ndarray:
    """Return the corrections (int8, 0 within the bound) that bring every point within the bound.

    Raises:
        OverflowError: an error exceeds the largest correction.
    """
    error = values.astype(np.float64)
    error -= decoded
    size = np.abs(error)
    away = np.flatnonzero(~(size.reshape(-1) <= bound))  # a NaN is away
    corrections = np.zeros(values.shape, np.int8)
    if away.size:
        units = np.rint((size.reshape(-1)[away] / bound - FIRST_OUTLIER) / NEXT_OUTLIER) + 1
        # Corrections are int8. Written so that a NaN, of a decoded value that is not finite,
        # raises.
        if not units.max() <= 127:
            raise OverflowError
        corrections.reshape(-1)[away] = np.copysign(units, error.reshape(-1)[away])
    return corrections


def correct(decoded: np.ndarray, corrections: np.ndarray, bound: float) -> None:
    """Add corrections to a decoded field in place."""
    flat = corrections.reshape(-1)
    away = np.flatnonzero(flat)
    units = flat[away].astype(np.float64)
    size = (FIRST_OUTLIER + NEXT_OUTLIER * (np.abs(units) - 1)) * bound
    target = decoded.reshape(-1)
    target[away] = target[away].astype(np.float64) + np.copysign(size, units)


def _reconstruct(
    integers: np.ndarray, stream: DyadicStream, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    out = np.empty(folded(shape), dtype)
    one, more = (s / SHRINK_UNIT for s in stream.shrink)
    call("sck_dequantise", dtype, out.size, integers, out, float(stream.step), one, more)
    _wavelet(out, inverse=True)
    out += dtype.type(stream.offset)
    return out.reshape(shape)


def _shrink(wanted: np.ndarray, integers: np.ndarray) -> tuple[int, int]:
    """Return the mean reduction of a coefficient below its integer, for magnitude 1 and above."""
    sums = np.zeros(4)
    call("sck_centroids", wanted.dtype, wanted.size, wanted, integers, sums)
    units = (round(SHRINK_UNIT * sums[i] / max(sums[i + 1], 1.0)) for i in (0, 2))
    one, more = (min(max(s, -127), 127) for s in units)
    return one, more


def _scan(wanted: np.ndarray, rate_weight: float) -> tuple[np.ndarray, bytes]:
    integers = np.empty(wanted.shape, np.int32)
    buffer = np.empty(1024 + 5 * wanted.size, np.uint8)
    dims, weight = extents(wanted.shape), float(rate_weight)
    used = call("sck_scan", wanted.dtype, dims, wanted, integers, weight, buffer, buffer.size)
    check(used)
    return integers, buffer[:used].tobytes()


def _wavelet(values: np.ndarray, *, inverse: bool) -> None:
    call("sck_wavelet", values.dtype, extents(values.shape), values, inverse)
