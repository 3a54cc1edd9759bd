"""Baselines of super-resolution: linear, cubic and spectral interpolation of the coarse nodes.

Interpolation is in node numbers, in which clustered nodes are evenly spaced; on the shipped flow
its error is smaller than that of interpolation in physical coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.interpolate import CubicSpline

Array = np.ndarray


def interpolate(
    coarse: Array, every: Sequence[int], periodic: Sequence[bool], kind: str = "linear"
) -> Array:
    """Interpolate coarse fields to the fine nodes, dim by dim.

    Args:
        coarse: (fields, *n).
        every: fine nodes per coarse node, for each dim.
        periodic: for each dim; periodic dims have n * every fine nodes, others
            (n - 1) * every + 1.
        kind: `linear`, `cubic` (splines, not-a-knot or periodic), or `spectral`: trigonometric
            polynomials along periodic dims, cubic splines along others.

    Example:
        >>> interpolate(np.array([[0.0, 2.0]]), [2], [False]).tolist()
        [[0.0, 1.0, 2.0]]
        >>> interpolate(np.array([[0.0, 2.0]]), [2], [True]).tolist()
        [[0.0, 1.0, 2.0, 1.0]]
    """
    out = coarse.astype(np.float64)
    for axis, (step, wraps) in enumerate(zip(every, periodic, strict=True), 1):
        if step == 1:
            continue
        if wraps and kind == "spectral":
            out = _trigonometric(out, step, axis)
            continue
        if wraps:
            out = np.concatenate([out, out.take([0], axis)], axis)
        nodes = np.arange(out.shape[axis]) * step
        fine = np.arange(nodes[-1] + (not wraps))
        if kind != "linear" and len(nodes) > 3:
            spline = CubicSpline(nodes, out, axis, "periodic" if wraps else "not-a-knot")
            out = spline(fine)
        else:
            left = np.minimum(fine // step, len(nodes) - 2)
            shape = [1] * out.ndim
            shape[axis] = -1
            share = ((fine - left * step) / step).reshape(shape)
            out = out.take(left, axis) * (1 - share) + out.take(left + 1, axis) * share
    return out.astype(coarse.dtype)


def _trigonometric(values: Array, step: int, axis: int) -> Array:
    """Interpolate along a periodic dim to `step` times as many nodes by a Fourier series."""
    count = values.shape[axis]
    waves = np.moveaxis(np.fft.rfft(values, axis=axis), axis, -1)
    if count % 2 == 0:
        waves[..., -1] *= 0.5  # the highest coarse wave is split between two fine ones
    return np.moveaxis(np.fft.irfft(waves, count * step, axis=-1) * step, -1, axis)
