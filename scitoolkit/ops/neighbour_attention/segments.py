"""Attention among neighbours on GPUs: products of torch's libraries around the Triton kernels.

No table of neighbours is padded and no attention matrix is stored. Differentiable once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.ops.codegen import eager, on_device, refusing
from scitoolkit.ops.neighbour_attention import reference, triton_source
from scitoolkit.ops.neighbour_attention.spec import (
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)
from scitoolkit.ops.neighbour_attention.triton_source import OTHER, OWN, PARTS, WARPS

LEAST_LANES = 32  # of a matrix product, above OWN


def _lanes(width: int) -> int:
    return max(LEAST_LANES, 1 << (width - 1).bit_length())


def _launch(
    name: str, spec: NeighbourAttentionSpec, inputs: Sequence[Tensor], *others: Tensor
) -> None:
    q, k, v, fade, directions, pointer = inputs
    scale, sel = q.new_full((1,), spec.scale), q.new_full((1,), spec.sel)
    if len(pointer) > 1:
        with on_device(q):
            getattr(triton_source.gpu_kernels(spec, q.dtype), name)[(len(pointer) - 1, PARTS)](
                *(pointer, q, k, v, fade, directions, scale, sel, *others),
                **{"H": q.shape[1], "LANES": _lanes(q.shape[1]), "OWN": OWN, "OTHER": OTHER},
                **{"PARTS": PARTS, "SMOOTH": spec.smooth, "ANGULAR": spec.angular},
                num_warps=WARPS,
                num_stages=1,
            )


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    fade: Tensor,
    directions: Tensor,
    pointer: Tensor,
    spec: NeighbourAttentionSpec,
) -> tuple[Tensor, Tensor]:
    """Return attended values (E, H), and the logarithm of each row's sum of exponentials."""
    out, norm = torch.empty_like(q), torch.empty_like(fade)
    _launch("forward", spec, (q, k, v, fade, directions, pointer), out, norm)
    return out, norm


def _attend_gradients(
    grad: Tensor, out: Tensor, norm: Tensor, spec: NeighbourAttentionSpec, *inputs: Tensor
) -> tuple[Tensor, ...]:
    q, k, v, fade, directions, _ = inputs
    mean = (grad * out).sum(1)
    by_q, by_k, by_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    by_fade, by_directions = fade.new_empty(2, len(fade)), directions.new_empty(2, len(fade), 3)
    for_queries = (by_q, by_fade[0], by_directions[0])
    _launch("queries", spec, inputs, norm, mean, grad, *for_queries)
    for_keys = (by_k, by_v, by_fade[1], by_directions[1])
    _launch("keys", spec, inputs, norm, mean, grad, *for_keys)
    return by_q, by_k, by_v, by_fade.sum(0), by_directions.sum(0)


def _save_attend(ctx, inputs, output) -> None:
    *tensors, ctx.spec = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward_of_attend(ctx, grad, _):
    *inputs, out, norm = ctx.saved_tensors
    return *_attend_once(grad.contiguous(), out, norm, ctx.spec, *inputs), None, None


def _moments(basis: Tensor, rows: Tensor, pointer: Tensor) -> Tensor:
    """Return the sums over each atom's edges of basis functions (E, M) times rows (E, 4)."""
    out = basis.new_empty(len(pointer) - 1, basis.shape[1], 4)
    _launch_moments("moments", pointer, basis, rows, out)
    return out


def _moments_gradients(
    grad: Tensor, basis: Tensor, rows: Tensor, pointer: Tensor
) -> tuple[Tensor, Tensor]:
    by_basis, by_rows = torch.empty_like(basis), torch.empty_like(rows)
    _launch_moments("edges", pointer, basis, rows, grad, by_basis, by_rows)
    return by_basis, by_rows


def _launch_moments(name: str, pointer: Tensor, basis: Tensor, *others: Tensor) -> None:
    if len(pointer) > 1:
        sizes = {"H": basis.shape[1], "LANES": _lanes(basis.shape[1]), "OWN": OWN}
        with on_device(basis):
            getattr(triton_source.module(), name)[(len(pointer) - 1,)](
                pointer, basis, *others, **sizes, num_warps=WARPS
            )


def _save_moments(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward_of_moments(ctx, grad):
    return *_moments_once(grad.contiguous(), *ctx.saved_tensors), None


_attend_once = refusing("neighbour_attention with respect to its inputs, twice", _attend_gradients)
_moments_once = refusing("moments of neighbour_attention, twice", _moments_gradients)
attend = eager(_attend, _save_attend, _backward_of_attend)
moments_of_edges = eager(_moments, _save_moments, _backward_of_moments)


def refined_moments(
    spec: NeighbourAttentionSpec,
    layers: Sequence[LayerWeights],
    basis: Tensor,
    rows: Tensor,
    fade: Tensor,
    directions: Tensor,
    pointer: Tensor,
) -> Tensor:
    """Return the moments (N, M, 4) of basis functions refined by attention layers.

    Args:
        spec, layers, basis, rows, fade, directions: as for the reference.
        pointer: (N + 1,) int64, first edge of each atom.
    """
    for layer in layers:
        parts = [part.contiguous() for part in reference.projected(spec, layer, basis)]
        attended, _ = attend(*parts, fade.contiguous(), directions.contiguous(), pointer, spec)
        basis = reference.mixed(spec, layer, basis, attended)
    return moments_of_edges(basis.contiguous(), rows.contiguous(), pointer) / spec.sel


def moments_and_slopes(
    spec: NeighbourAttentionSpec,
    weights: Weights,
    neighbours: Neighbours,
    atoms: Tensor,
    cotangent: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the moments (n, M, 4) of some atoms, and d<cotangent, moments>/d(vectors), (E, 3)."""
    with torch.enable_grad():
        vectors = neighbours.vectors.detach().requires_grad_()
        pointer = neighbours.pointer.contiguous()
        edges = Neighbours(pointer, neighbours.types, neighbours.pair, vectors)
        _, basis, rows, fade, directions = reference.edge_inputs(spec, weights, edges)
        layers = weights.layers
        out = refined_moments(spec, layers, basis, rows, fade, directions, pointer)[atoms]
        (slopes,) = torch.autograd.grad(out, vectors, cotangent, materialize_grads=True)
    return out.detach(), slopes
