"""Relational convolutions as sparse products, which store the rows of the nodes once.

    out = sum over r of D_r A_r X W_r        (Schlichtkrull et al. 2018, eq. 2)

    X    rows of local nodes, then of the halo, (n_own + n_halo, F)
    A_r  edges of type r into local nodes, (n_own, n_own + n_halo)
    D_r  diagonal: 1 / number of edges of type r into each node, or 1 for sums
    W_r  weights of type r, (F, G)

torch-geometric's layer stores D_r A_r X of each type for the gradient of W_r. Here it is computed
again, and the halo is fetched once for all types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scitoolkit.graphs.fast_attention import promoted
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.product import multiply, multiply_transposed
from scitoolkit.graphs.tags import Tag, put_tag
from scitoolkit.ops.spmm import SparseMatrix


def relations(layer: Any, part: Part, x: Tensor, edge_type: Tensor) -> Tensor:
    """Return the output of RGCNConv, shape (n_own, G).

    Args:
        layer: the layer.
        part: this process's nodes and edges.
        x: features of local nodes, shape (n_own, F).
        edge_type: type of each edge of the part, shape (E_own,).
    """
    with torch._C.DisableTorchFunction():
        weight = layer.weight
        if layer.num_bases is not None:
            weight = (layer.comp @ weight.flatten(1)).view(-1, *weight.shape[1:])
        every = promoted(part.with_halo(x), weight).contiguous()
        out = _SumOverTypes.apply(every, weight, part, edge_type, layer.aggr == "mean")
        if layer.root is not None:
            out = out + x @ layer.root
        if layer.bias is not None:
            out = out + layer.bias
        return put_tag(out, Tag(0, part.nodes))


class _SumOverTypes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, part, edge_type, mean):
        ctx.save_for_backward(x, weight, edge_type)
        ctx.part, ctx.mean = part, mean
        out = x.new_zeros(len(part.nodes), weight.shape[2])
        for matrix, scale, own in _by_type(part, edge_type, weight, mean):
            out.addmm_(multiply(matrix, x).mul_(scale), own)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight, edge_type = ctx.saved_tensors
        of_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        of_weight = []
        for matrix, scale, own in _by_type(ctx.part, edge_type, weight, ctx.mean):
            of_weight.append(multiply(matrix, x).mul_(scale).t() @ grad)
            if of_x is not None:
                of_x = multiply_transposed(matrix, (grad @ own.t()).mul_(scale), into=of_x)
        return of_x, torch.stack(of_weight), None, None, None


def _by_type(
    part: Part, edge_type: Tensor, weight: Tensor, mean: bool
) -> Iterator[tuple[SparseMatrix, Tensor, Tensor]]:
    """Yield A_r, the diagonal of D_r as a column, and W_r of each type."""
    # Made again in each pass: the transpose of a matrix has a pointer to each row of the halo.
    source, target = part.edges
    rows, columns = len(part.nodes), len(part.nodes) + part.halo.rows_received
    for number, own in enumerate(weight):
        chosen = edge_type == number
        count = torch.bincount(target[chosen], minlength=rows)
        pointer = torch.cat([count.new_zeros(1), count.cumsum(0)])
        scale = (count.clamp(min=1) if mean else torch.ones_like(count)).to(weight).reciprocal()
        matrix = SparseMatrix(pointer, source[chosen].int(), None, columns)
        yield matrix, scale[:, None], own
