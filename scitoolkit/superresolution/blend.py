"""Location of queries on a rectilinear latent grid, and weights that blend the cell's corners.

The field is the sum over the 2^d corners j of w_j(x) f((x - x_j) / h_j, c_j) (Jiang et al., SC20,
eq. 6). With multilinear weights its derivative jumps at cell faces; the quintic weights have two
vanishing derivatives there, so the field is twice continuously differentiable. Coordinates relative
to a node are scaled by the spacing h_j of that node, not of the cell, as the derivative would jump
wherever the spacing changes otherwise. Derivatives are with respect to physical coordinates; all
factors of the chain rule are in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from scitoolkit.ops import taylor
from scitoolkit.superresolution.convolution import corners

Weights = Literal["linear", "smooth"]
# Coefficients of 1, s, s^2, ... of the right node's weight: 10 s^3 - 15 s^4 + 6 s^5, and s.
_SMOOTH = (0.0, 0.0, 0.0, 10.0, -15.0, 6.0)
_LINEAR = (0.0, 1.0)


@dataclass(frozen=True)
class Along:
    """Location of queries along one dim: (B, N) each; pairs are of the left and right node."""

    node: tuple[Tensor, Tensor]
    offset: tuple[Tensor, Tensor]
    scale: tuple[Tensor, Tensor]
    position: Tensor
    width: Tensor


def locate(x: Tensor, nodes: Tensor, period: float | None) -> Along:
    """Locate queries along one dim.

    Args:
        x: (B, N) coordinates, in the unit of `nodes`.
        nodes: (B, n) ascending.
        period: length of a periodic dim, with a cell from the last to the first node; else None.
    """
    count = nodes.shape[1]
    if period is None:
        ends = nodes
    else:
        ends = torch.cat([nodes, nodes[:, :1] + period], 1)
        x = nodes[:, :1] + torch.remainder(x - nodes[:, :1], period)
    left = torch.searchsorted(ends.contiguous(), x.contiguous(), right=True) - 1
    # Queries beyond the ends continue the outermost cell.
    left = left.clamp(0, ends.shape[1] - 2)
    start, stop = ends.gather(1, left), ends.gather(1, left + 1)
    right = left + 1 if period is None else (left + 1) % count
    scales = 1 / _spacing(ends, period is not None)
    width = stop - start
    return Along(
        (left, right),
        (x - start, x - stop),
        (scales.gather(1, left), scales.gather(1, right)),
        (x - start) / width,
        width,
    )


def _spacing(ends: Tensor, periodic: bool) -> Tensor:
    """Return the spacing of each node: the mean width of its cells."""
    width = ends[:, 1:] - ends[:, :-1]
    if periodic:
        return (width + torch.roll(width, 1, 1)) / 2
    inner = (width[:, 1:] + width[:, :-1]) / 2
    return torch.cat([width[:, :1], inner, width[:, -1:]], 1)


def weight_derivative(along: Along, kind: Weights, side: int, order: int) -> Tensor | None:
    """Return d^order w / dx^order of the left (0) or right (1) node; None if it is zero."""
    coefficients = list(_SMOOTH if kind == "smooth" else _LINEAR)
    for _ in range(order):
        coefficients = [k * c for k, c in enumerate(coefficients)][1:]
    if not any(coefficients):
        return None
    s = along.position
    value = torch.full_like(s, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * s + c
    if side == 0:
        # The weights of both nodes sum to 1, their derivatives to 0.
        value = 1 - value if order == 0 else -value
    return value / along.width**order if order else value


def blend(decoded: Tensor, where: Sequence[Along], plan: taylor.Plan, kind: Weights) -> Tensor:
    """Return the derivative streams of the blended field by the product rule.

    Args:
        decoded: (streams, 2^d, B, N, C).
        where: one `Along` per dim.
        plan: which derivatives.
        kind: of the weights.

    Returns:
        (streams, B, N, C).
    """
    # D^a (sum_j w_j f_j) = sum_j sum_b binom(a, b) D^b w_j D^(a - b) f_j; the plan holds the pairs
    # (a, b) with their coefficients. A weight is a product over dims, so that its factors are
    # tabulated.
    tables: dict[tuple[int, int, int], Tensor | None] = {}
    out = []
    for terms in plan.leibniz:
        total: Tensor | None = None
        for term in terms:
            weights = _corner_weights(where, term.weight, kind, tables)
            if weights is None:
                continue
            part = torch.einsum("jbn,jbnc->bnc", weights * term.coefficient, decoded[term.factor])
            total = part if total is None else total + part
        assert total is not None
        out.append(total)
    return torch.stack(out)


def _corner_weights(where, orders, kind: Weights, tables) -> Tensor | None:
    """Return derivatives of the corners' weights, (2^d, B, N); None if all are zero."""
    sides = []
    for dim, (along, order) in enumerate(zip(where, orders, strict=True)):
        pair = []
        for side in (0, 1):
            key = (dim, side, order)
            if key not in tables:
                tables[key] = weight_derivative(along, kind, side, order)
            pair.append(tables[key])
        if pair[0] is None:
            return None
        sides.append(pair)
    weights = []
    for corner in corners(len(sides)):
        product = sides[0][corner[0]]
        for pair, side in zip(sides[1:], corner[1:], strict=True):
            product = product * pair[side]
        weights.append(product)
    return torch.stack(weights)


def gather(latent: Tensor, where: Sequence[Along]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return latent vectors, relative coordinates and scales at the corners.

    Args:
        latent: (B, C, nodes...).
        where: one `Along` per dim.

    Returns:
        vectors (2^d, B, N, C), coordinates (2^d, B, N, d), scales: d of (2^d, B, N).
    """
    batch, channels, *sizes = latent.shape
    table = latent.flatten(2).transpose(1, 2).reshape(-1, channels)
    step = torch.arange(batch, device=latent.device)[:, None]
    numbers, offsets, scales = [], [], []
    for corner in corners(len(where)):
        flat = step
        for along, side, size in zip(where, corner, sizes, strict=True):
            # Row-major number of the corner's node in the table of all nodes of the batch.
            flat = flat * size + along.node[side]
        numbers.append(flat)
        scale = [a.scale[side] for a, side in zip(where, corner, strict=True)]
        offset = [a.offset[side] * h for a, side, h in zip(where, corner, scale, strict=True)]
        offsets.append(torch.stack(offset, -1))
        scales.append(scale)
    vectors = functional.embedding(torch.stack(numbers), table)
    per_dim = [torch.stack(column) for column in zip(*scales, strict=True)]
    return vectors, torch.stack(offsets), per_dim
