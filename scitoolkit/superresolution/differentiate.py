"""Derivatives of gridded data along one dim by the most accurate rule for its nodes.

Even periodic nodes: Fourier series; Chebyshev nodes: derivative of the interpolating polynomial
(Berrut, Trefethen, SIAM Review 46 (2004), eq. 9.4); all others: finite differences with weights for
uneven nodes (Fornberg, Math. Comp. 51 (1988)).
"""

from __future__ import annotations

import numpy as np
import torch

from scitoolkit.core.errors import DataError

Array = np.ndarray
STENCIL = 7


def is_even(nodes: Array, tolerance: float = 1e-4) -> bool:
    """Return whether the nodes are evenly spaced to a relative tolerance."""
    steps = np.diff(nodes)
    return bool(np.abs(steps - steps.mean()).max() <= tolerance * steps.mean())


def chebyshev_kind(nodes: Array, tolerance: float = 1e-5) -> str | None:
    """Return `gauss` or `lobatto` for scaled and shifted Chebyshev nodes, else None.

    Example:
        >>> chebyshev_kind(2 + np.cos(np.pi * (np.arange(8) + 0.5) / 8)[::-1])
        'gauss'
    """
    count = len(nodes)
    if count < 8:
        return None
    angles = {
        "gauss": np.pi * (np.arange(count) + 0.5) / count,
        "lobatto": np.pi * np.arange(count) / (count - 1),
    }
    for kind, angle in angles.items():
        reference = -np.cos(angle)
        # Nodes of any interval are an affine map of the reference ones.
        slope, offset = np.polyfit(reference, nodes, 1)
        if np.abs(slope * reference + offset - nodes).max() <= tolerance * abs(slope):
            return kind
    return None


def barycentric_matrix(nodes: Array) -> Array:
    """Return the derivative matrix of polynomial interpolation on the nodes."""
    # An interval of capacity 1, so that products of distances neither overflow nor underflow.
    nodes = (nodes - nodes.mean()) / np.ptp(nodes) * 4
    scale = 4.0
    difference = nodes[:, None] - nodes
    np.fill_diagonal(difference, 1.0)
    log = np.log(np.abs(difference)).sum(1)
    weights = np.sign(difference).prod(1) * np.exp(log.mean() - log)
    # D_ij = (w_j / w_i) / (x_i - x_j), w_j = 1 / prod_k (x_j - x_k); the rows sum to zero, as the
    # derivative of a constant does, which gives the diagonal.
    matrix = weights[None] / weights[:, None] / difference
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(1))
    return matrix * scale


def fornberg_weights(at: float, nodes: Array, order: int) -> Array:
    """Return the finite-difference weights of a derivative at a point, (nodes,).

    Example:
        >>> fornberg_weights(0.0, np.array([-1.0, 0.0, 1.0]), 2).tolist()
        [1.0, -2.0, 1.0]
    """
    count = len(nodes)
    table = np.zeros((count, order + 1))
    table[0, 0] = 1.0
    # c1 to c5 are those of Fornberg's algorithm; column k of the table holds the weights of the
    # k-th derivative for the nodes up to i.
    c1, c4 = 1.0, nodes[0] - at
    for i in range(1, count):
        c2, c5, c4 = 1.0, c4, nodes[i] - at
        for j in range(i):
            c3 = nodes[i] - nodes[j]
            c2 *= c3
            if j == i - 1:
                for k in range(min(i, order), 0, -1):
                    table[i, k] = c1 * (k * table[i - 1, k - 1] - c5 * table[i - 1, k]) / c2
                table[i, 0] = -c1 * c5 * table[i - 1, 0] / c2
            for k in range(min(i, order), 0, -1):
                table[j, k] = (c4 * table[j, k] - k * table[j, k - 1]) / c3
            table[j, 0] = c4 * table[j, 0] / c3
        c1 = c2
    return table[:, order]


def finite_difference_matrix(nodes: Array, order: int, stencil: int = STENCIL) -> Array:
    """Return the finite-difference matrix of a derivative, with one-sided stencils at the ends."""
    count = len(nodes)
    width = min(stencil, count)
    matrix = np.zeros((count, count))
    for i in range(count):
        start = int(np.clip(i - width // 2, 0, count - width))
        part = slice(start, start + width)
        matrix[i, part] = fornberg_weights(nodes[i], nodes[part], order)
    return matrix


def differentiate(
    values: Array,
    nodes: Array,
    axis: int,
    order: int = 1,
    *,
    period: float | None = None,
    stencil: int = STENCIL,
) -> Array:
    """Return the derivative of gridded values along an axis, float64.

    Args:
        values: array of any shape.
        nodes: ascending coordinates along the axis.
        axis: index of the dim.
        order: of the derivative.
        period: length of a periodic dim; None for others.
        stencil: number of points of finite differences.

    Raises:
        DataError: too few nodes.

    Example:
        >>> x = np.linspace(0, 1, 16, endpoint=False)
        >>> wave = differentiate(np.sin(2 * np.pi * x), x, 0, period=1.0)
        >>> bool(np.allclose(wave, 2 * np.pi * np.cos(2 * np.pi * x)))
        True
    """
    if len(nodes) <= order + 1:
        raise DataError(
            f"{len(nodes)} nodes are too few for a derivative of order {order}",
            allowed=f"{order + 2} or more",
        )
    if period is not None and is_even(np.append(nodes, nodes[0] + period)):
        return _fourier(values, axis, order, period)
    if period is not None:
        # Three periods: stencils of the middle one reach into its neighbours, whose columns are
        # then added to those of the same nodes.
        extended = np.concatenate([nodes - period, nodes, nodes + period])
        matrix = finite_difference_matrix(extended, order, stencil)
        count = len(nodes)
        matrix = matrix[count : 2 * count].reshape(count, 3, count).sum(1)
    elif chebyshev_kind(nodes):
        matrix = np.linalg.matrix_power(barycentric_matrix(nodes) / np.ptp(nodes), order)
    else:
        matrix = finite_difference_matrix(nodes, order, stencil)
    return _apply(matrix, values, axis)


def is_spectral(nodes: Array, period: float | None) -> bool:
    """Return whether `differentiate` uses a spectral rule on these nodes."""
    if period is not None:
        return is_even(np.append(nodes, nodes[0] + period))
    return chebyshev_kind(nodes) is not None


def _fourier(values: Array, axis: int, order: int, period: float) -> Array:
    count = values.shape[axis]
    wave = 2j * np.pi * np.fft.rfftfreq(count, period / count)
    if count % 2 == 0 and order % 2:
        wave[-1] = 0  # odd derivatives of the highest cosine vanish on the grid
    shape = [1] * values.ndim
    shape[axis] = -1
    spectrum = np.fft.rfft(values.astype(np.float64), axis=axis) * (wave**order).reshape(shape)
    return np.fft.irfft(spectrum, n=count, axis=axis)


def _apply(matrix: Array, values: Array, axis: int) -> Array:
    moved = np.moveaxis(values.astype(np.float64), axis, 0)
    out = torch.from_numpy(matrix) @ torch.from_numpy(
        np.ascontiguousarray(moved).reshape(len(moved), -1)
    )
    return np.moveaxis(out.numpy().reshape(moved.shape), 0, axis)
