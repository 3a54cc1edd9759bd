"""Changes to single decoded values: exact values (patches), and added steps (repairs)."""

from __future__ import annotations

import math

import numpy as np

from scitoolkit.compression import dyadic
from scitoolkit.compression.lossless import decode_array, encode_array
from scitoolkit.core.errors import DataError


def encode_patch(values: np.ndarray, away: np.ndarray) -> bytes:
    """Serialise sorted flat indices and the exact values there."""
    gaps = encode_array(np.diff(away, prepend=0).astype("<u8"))
    little = values.reshape(-1)[away].astype(values.dtype.newbyteorder("<"))
    return b"".join(
        [
            len(away).to_bytes(8, "little"),
            len(gaps).to_bytes(8, "little"),
            gaps,
            encode_array(little),
        ]
    )


def patched_points(data: bytes | memoryview, size: int) -> np.ndarray:
    """Return the sorted flat indices of a patch for an array of `size` values."""
    data = memoryview(data)
    count, length = (int.from_bytes(data[i : i + 8], "little") for i in (0, 8))
    if count > size or 16 + length > len(data):
        raise DataError("damaged stream: the patch does not fit the field")
    gaps = decode_array(data[16 : 16 + length], (count,), np.dtype("<u8"))
    return np.cumsum(gaps.astype(np.int64))


def apply_patch(out: np.ndarray, data: memoryview) -> None:
    """Write the values of a patch into an array in place."""
    away = patched_points(data, out.size)
    length = int.from_bytes(data[8:16], "little")
    values = decode_array(data[16 + length :], away.shape, out.dtype.newbyteorder("<"))
    out.reshape(-1)[away] = values


def apply_repairs(out: np.ndarray, data: bytes | memoryview, step: float) -> None:
    """Add coded integers times a step to an array in place."""
    if not (isinstance(step, float) and math.isfinite(step) and step > 0):
        raise DataError(f"damaged stream: repairs in steps of {step!r}")
    units = dyadic.decode_integers(data, out.shape).reshape(-1)
    places, flat = np.flatnonzero(units), out.reshape(-1)
    flat[places] = moved_by(flat[places], units[places], step)


def moved_by(values: np.ndarray, units: np.ndarray, step: float) -> np.ndarray:
    """Return values + units * step, computed in float64 and rounded to their dtype once."""
    with np.errstate(over="ignore"):
        return (values.astype(np.float64) + units * np.float64(step)).astype(values.dtype)
