"""Compact storage of fitted arrays: 16-bit integers over cells, deduplication of equal arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.forecasting.windows import Array

_SCALE = ".row_scale"


def pack(
    arrays: Mapping[str, np.ndarray], cells: int
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays to store, and a mapping from duplicates to the stored array.

    Args:
        arrays: fitted arrays by name.
        cells: length of the last dim of the float64 matrices to round, if larger than 100.
    """
    stored: dict[str, np.ndarray] = {}
    shared: dict[str, str] = {}
    seen: dict[tuple, str] = {}
    for name, values in arrays.items():
        values = np.asarray(values)
        key = (values.shape, str(values.dtype), values.tobytes())
        if values.nbytes > 1000 and key in seen:
            shared[name] = seen[key]
            continue
        seen[key] = name
        if values.dtype == np.float64 and values.ndim == 2 and values.shape[1] == cells > 100:
            stored[name], stored[name + _SCALE] = _to_int16(values)
        else:
            stored[name] = values
    return stored, shared


def unpack(stored: Mapping[str, np.ndarray], shared: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the (rounded) arrays from the result of `pack`."""
    arrays = {
        name: _from_int16(values, stored[name + _SCALE]) if name + _SCALE in stored else values
        for name, values in stored.items()
        if not name.endswith(_SCALE)
    }
    return {**arrays, **{name: arrays[original] for name, original in shared.items()}}


def _to_int16(values: Array) -> tuple[np.ndarray, Array]:
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    step = np.where(high > low, (high - low) / 65534, 1.0)
    return np.round((values - low) / step - 32767).astype(np.int16), np.stack([low, step])


def _from_int16(stored: np.ndarray, scale: Array) -> Array:
    low, step = scale
    return (stored.astype(np.float64) + 32767) * step + low
