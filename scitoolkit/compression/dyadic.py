"""Our own error-bounded codec: CDF 9/7 wavelet, rate-distortion quantiser, context mixing.

SPERR's wavelet leaves its coefficients nearly uncoded and SZ3 codes its residuals without context;
here every decision is coded with a probability mixed from six contexts (magnitudes of neighbours
in the band, in the other bands of the level and of the parent), as image coders do. A coefficient
is rounded down where that saves more bits than its error is worth. The transform has no pointwise
bound, so the points outside the bound are corrected by integers that the same coder writes
(`encode_outliers`); a coarse step and a few corrections are shorter than a fine step.

Transform and coder are C (`native/wavelet.c`, `native/entropy.c`). Integers steer the decoder, and
floating-point contraction is off, so all IEEE machines agree.

Caveat: the coder is sequential, and it needs a C compiler at run time.

Source: Daubechies & Sweldens 1998, doi:10.1007/BF02476026 (lifting); Mahoney 2005 (mixing).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from scitoolkit.compression.kernel_arguments import extents, folded, pointer
from scitoolkit.compression.native.library import call, check

MAX_STEPS = 2**28
RATE_WEIGHT = 0.08
SHRINK_UNIT = 256
# A correction stands for an error of this many bounds, a further unit for this many more.
FIRST_OUTLIER, NEXT_OUTLIER = 1.4, 1.8


@dataclass(frozen=True)
class DyadicStream:
    """What the decoder needs beside dtype and shape.

    Attributes:
        step: width of a quantisation bin of the coefficients.
        offset: mean of the field, taken off before the transform.
        shrink: by how much (in 1/256 steps) coefficients of magnitude 1 and above are drawn in.
        data: the coded integers.
    """

    step: float
    offset: float
    shrink: tuple[int, int]
    data: bytes | memoryview


def encode(values: np.ndarray, step: float) -> tuple[DyadicStream, np.ndarray]:
    """Return the coded field and what it decodes to.

    Args:
        values: finite C-contiguous float32 or float64 array, any dims.
        step: bin width of the coefficients, in the field's unit; the rmse is below 0.29 steps.
    """
    # Any offset will do; one of few digits is short in the header.
    offset = float(f"{np.mean(values, dtype=np.float64):.2g}")
    work = (values - values.dtype.type(offset)).reshape(folded(values.shape))
    _wavelet(work, inverse=False)
    work *= values.dtype.type(1.0 / step)
    integers, data = _scan(work, RATE_WEIGHT)
    shrink = _shrink(work, integers)
    stream = DyadicStream(step, offset, shrink, data)
    return stream, _reconstruct(integers, stream, values.shape, values.dtype)


def decode(stream: DyadicStream, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the field, bit for bit what `encode` said that it decodes to."""
    integers = decode_integers(stream.data, shape)
    return _reconstruct(integers, stream, shape, dtype)


def encode_integers(integers: np.ndarray) -> bytes:
    """Return small integers, mostly zero, as coded by the context coder."""
    return _scan(integers.reshape(folded(integers.shape)).astype(np.float32), 0.0)[1]


def decode_integers(data: bytes | memoryview, shape: tuple[int, ...]) -> np.ndarray:
    """Return the integers (int32) that were coded.

    Raises:
        DataError: the data ends before the last of them.
    """
    dims = folded(shape)
    integers = np.empty(dims, np.int32)
    packed = np.frombuffer(data, np.uint8)
    check(call(
        "sck_scan", np.dtype(np.float32), pointer(extents(dims)), None, pointer(integers),
        ctypes.c_double(0), pointer(packed), ctypes.c_int64(packed.size),
    ))  # fmt: skip
    return integers.reshape(shape)


def outliers(values: np.ndarray, decoded: np.ndarray, bound: float) -> np.ndarray:
    """Return the corrections (int8, 0 within the bound) that bring every point within it.

    Raises:
        OverflowError: an error is beyond what a correction can say.
    """
    error = values.astype(np.float64)
    error -= decoded
    size = np.abs(error)
    away = np.flatnonzero(size.reshape(-1) > bound)
    corrections = np.zeros(values.shape, np.int8)
    if away.size:
        units = np.rint((size.reshape(-1)[away] / bound - FIRST_OUTLIER) / NEXT_OUTLIER) + 1
        if units.max() > 127:
            raise OverflowError
        corrections.reshape(-1)[away] = np.copysign(units, error.reshape(-1)[away])
    return corrections


def correct(decoded: np.ndarray, corrections: np.ndarray, bound: float) -> None:
    """Add corrections to a decoded field, in place."""
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
    call(
        "sck_dequantise", dtype, ctypes.c_int64(out.size), pointer(integers), pointer(out),
        ctypes.c_double(stream.step), ctypes.c_double(one), ctypes.c_double(more),
    )  # fmt: skip
    _wavelet(out, inverse=True)
    out += dtype.type(stream.offset)
    return out.reshape(shape)


def _shrink(wanted: np.ndarray, integers: np.ndarray) -> tuple[int, int]:
    """Return how far below its integer a coefficient lies on average, for 1 and for more."""
    sums = np.zeros(4)
    call(
        "sck_centroids", wanted.dtype, ctypes.c_int64(wanted.size), pointer(wanted),
        pointer(integers), pointer(sums),
    )  # fmt: skip
    found = (round(SHRINK_UNIT * sums[i] / max(sums[i + 1], 1.0)) for i in (0, 2))
    one, more = (min(max(s, -127), 127) for s in found)
    return one, more


def _scan(wanted: np.ndarray, rate_weight: float) -> tuple[np.ndarray, bytes]:
    integers = np.empty(wanted.shape, np.int32)
    buffer = np.empty(1024 + 5 * wanted.size, np.uint8)
    used = call(
        "sck_scan", wanted.dtype, pointer(extents(wanted.shape)), pointer(wanted),
        pointer(integers), ctypes.c_double(rate_weight), pointer(buffer),
        ctypes.c_int64(buffer.size),
    )  # fmt: skip
    check(used)
    return integers, buffer[:used].tobytes()


def _wavelet(values: np.ndarray, *, inverse: bool) -> None:
    call(
        "sck_wavelet", values.dtype, pointer(extents(values.shape)), pointer(values),
        ctypes.c_int64(inverse),
    )  # fmt: skip
