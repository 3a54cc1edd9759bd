"""Compensated rounding: the rounding error of each column is compensated by later columns.

GPTQ (Frantar et al. 2023, arXiv:2210.17323, algorithm 1) with the columns in their order, and
scales of a group computed from the values corrected so far.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.deploy.bits.codes import Uniform, best_scales, group_of, nearest, rounded, zero

DAMPING = 0.01
"""Damping of the diagonal of the second moments of the inputs, relative to its mean."""


def compensated(matrix: np.ndarray, inputs: np.ndarray, bits: int, group: int = 0) -> Uniform:
    """Quantise a matrix so that its products with typical inputs change little.

    Args:
        matrix: (outputs, inputs) float32.
        inputs: (samples, inputs) typical inputs of the layer.
        bits: 8, 4 or 2.
        group: number of inputs that share a scale.

    Example:
        >>> w = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
        >>> compensated(w, np.eye(32), 4).codes.shape
        (4, 32)
    """
    count = matrix.shape[1]
    group = group_of(count, bits, group)
    moments = inputs.T.astype(np.float64) @ inputs
    moments[np.diag_indices(count)] += DAMPING * max(np.diag(moments).mean(), 1e-30)
    upper = np.linalg.cholesky(np.linalg.inv(moments)).T
    left = matrix.astype(np.float64).copy()
    codes = np.empty(matrix.shape, np.int16)
    scales = []
    for first in range(0, count, group):
        last = min(first + group, count)
        scale = best_scales(left[:, first:last], bits, np.ones(last - first))
        scales.append(scale)
        errors = np.empty((len(matrix), last - first))
        for k in range(first, last):
            codes[:, k] = nearest(left[:, k], scale, bits)
            errors[:, k - first] = (left[:, k] - (codes[:, k] - zero(bits)) * scale) / upper[k, k]
            left[:, k + 1 : last] -= np.outer(errors[:, k - first], upper[k, k + 1 : last])
        left[:, last:] -= errors @ upper[first:last, last:]
    return Uniform(bits, group, codes, np.stack(scales, 1))


def best_rounding(
    matrix: np.ndarray, inputs: np.ndarray, held_out: np.ndarray, bits: int, group: int = 0
) -> Uniform:
    """Quantise by nearest or compensated rounding, whichever changes held-out outputs less.

    Args:
        matrix: (outputs, inputs).
        inputs: (samples, inputs) for the compensation.
        held_out: (samples, inputs) other inputs, for the comparison.
        bits: 8, 4 or 2.
        group: number of inputs that share a scale.
    """
    plain = rounded(matrix, bits, group, (inputs.astype(np.float64) ** 2).mean(0) + 1e-30)
    candidates = [plain, compensated(matrix, inputs, bits, group)]
    return min(candidates, key=lambda c: float((((c.matrix() - matrix) @ held_out.T) ** 2).sum()))
