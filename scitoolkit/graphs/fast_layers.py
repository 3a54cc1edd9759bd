"""Sparse-product forms of message-passing layers, which do not store messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.graphs.fast_attention import attention, attention_of_sums
from scitoolkit.graphs.fast_relations import relations
from scitoolkit.graphs.moved_part import part_on
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.tags import SOURCE, TARGET, Tag, put_tag, tag_of

FastForward = Callable[..., Tensor]
"""Called with the layer, the part, features, and types of edges if the layer has relations."""


def fast_forward(layer: nn.Module) -> FastForward | None:
    """Return the sparse-product form of a layer's forward pass, or None.

    The proof checks whether it is equivalent to the layer as configured.
    """
    from torch_geometric import nn as layers

    forms: dict[type, FastForward] = {
        layers.GCNConv: _gcn,
        layers.SAGEConv: _sage,
        layers.GINConv: _gin,
        layers.GATConv: attention,
        layers.GATv2Conv: attention_of_sums,
        layers.APPNP: _appnp,
        layers.SGConv: _simple,
        layers.SSGConv: _spectral,
        layers.TAGConv: _adaptive,
        layers.LGConv: _light,
        layers.ARMAConv: _arma,
        layers.RGCNConv: relations,
        layers.FastRGCNConv: relations,
    }
    # The proof detects neither: it runs without dropout, and only once.
    drops_edges = (
        isinstance(layer, (layers.APPNP, layers.GATConv, layers.GATv2Conv)) and layer.dropout > 0
    )
    keeps_sums = isinstance(layer, (layers.SGConv, layers.SSGConv)) and layer.cached
    return None if drops_edges or keeps_sums else forms.get(type(layer))


def passes_once(layer: nn.Module) -> bool:
    """Return whether a layer with a sparse form aggregates once (only direct neighbours)."""
    from torch_geometric import nn as layers

    once = (
        layers.GCNConv,
        layers.SAGEConv,
        layers.GINConv,
        layers.GATConv,
        layers.GATv2Conv,
        layers.LGConv,
    )
    return type(layer) in once


def is_whole_graph(edge_index: Any, part: Part) -> bool:
    """Return whether a tensor is the complete edge_index of the part, with its direction."""
    if edge_index is part.unread_edges:
        return True
    tag = tag_of(edge_index)
    return tag is not None and tag.role == (SOURCE, TARGET) and tag.ids is part.edge_numbers


def further_inputs(layer: nn.Module, rest: Iterable[Any]) -> list[Tensor] | None:
    """Return the inputs of a sparse form besides the features; None if it lacks one of `rest`.

    Args:
        layer: a layer with a sparse form.
        rest: arguments of its forward pass after features and edges.
    """
    inputs = [a for a in rest if a is not None]
    wanted = [1] if hasattr(layer, "num_relations") else []
    dims = [a.dim() if isinstance(a, Tensor) else None for a in inputs]
    return inputs if dims == wanted else None


def use_fast_forward(layer: Any, part: Part) -> None:
    """Make a layer run as a sparse product if it is called with the graph's edges only."""
    form = fast_forward(layer)
    assert form is not None

    def forward(x: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
        rest = further_inputs(layer, (*args, *kwargs.values()))
        if rest is not None and isinstance(x, Tensor) and x.dim() == 2:
            here = part_on(part, x.device)
            ids = [tag.ids for a in rest if (tag := tag_of(a)) is not None]
            of_edges = len(ids) == len(rest) and all(i is here.edge_numbers for i in ids)
            if of_edges and is_whole_graph(edge_index, here):
                return form(layer, here, x, *rest)
        return type(layer).forward(layer, x, edge_index, *args, **kwargs)

    layer.forward = forward


def _aggregate(part: Part, x: Tensor, weighting: str) -> Tensor:
    with torch._C.DisableTorchFunction():
        out = part.aggregate(x, weighting)
    return put_tag(out, Tag(0, part.nodes))


def _narrow(part: Part, x: Tensor, weight: Tensor, weighting: str) -> Tensor:
    """Return A X W, in the order that communicates and sums fewer columns."""
    if weight.shape[0] <= weight.shape[1]:
        return _aggregate(part, x @ weight.t(), weighting)
    return _aggregate(part, x, weighting) @ weight.t()


def _gcn(layer: Any, part: Part, x: Tensor) -> Tensor:
    out = _narrow(part, x, layer.lin.weight, "gcn")
    return out if layer.bias is None else out + layer.bias


def _sage(layer: Any, part: Part, x: Tensor) -> Tensor:
    source = layer.lin(x).relu() if layer.project and hasattr(layer, "lin") else x
    out = _narrow(part, source, layer.lin_l.weight, "mean" if layer.aggr == "mean" else "sum")
    if layer.lin_l.bias is not None:
        out = out + layer.lin_l.bias
    if layer.root_weight:
        out = out + layer.lin_r(x)
    return nn.functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


def _appnp(layer: Any, part: Part, x: Tensor) -> Tensor:
    start = x
    for _ in range(layer.K):
        # Gasteiger et al. (2019), eq. 4, with A of the GCN.
        x = (1 - layer.alpha) * _aggregate(part, x, "gcn") + layer.alpha * start
    return x


def _simple(layer: Any, part: Part, x: Tensor) -> Tensor:
    weight, bias = layer.lin.weight, layer.lin.bias
    wide = weight.shape[0] > weight.shape[1]
    x = x if wide else x @ weight.t()
    for _ in range(layer.K):
        x = _aggregate(part, x, "gcn")
    x = x @ weight.t() if wide else x
    return x if bias is None else x + bias


def _spectral(layer: Any, part: Part, x: Tensor) -> Tensor:
    # alpha X + (1 - alpha) / K sum_k A^k X (Zhu and Koniusz 2021).
    total = x * layer.alpha
    for _ in range(layer.K):
        x = _aggregate(part, x, "gcn")
        total = total + (1 - layer.alpha) / layer.K * x
    return layer.lin(total)


def _light(layer: Any, part: Part, x: Tensor) -> Tensor:
    return _aggregate(part, x, "symmetric" if layer.normalize else "sum")


def _adaptive(layer: Any, part: Part, x: Tensor) -> Tensor:
    """Return the sum over k of A^k X W_k, by Horner's rule if that has fewer columns."""
    weights = [linear.weight for linear in layer.lins]
    if weights[0].shape[0] < weights[0].shape[1]:
        out = x @ weights[-1].t()
        for weight in reversed(weights[:-1]):
            out = _light(layer, part, out) + x @ weight.t()
    else:
        out = x @ weights[0].t()
        for weight in weights[1:]:
            x = _light(layer, part, x)
            out = out + x @ weight.t()
    return out if layer.bias is None else out + layer.bias


def _arma(layer: Any, part: Part, x: Tensor) -> Tensor:
    """Return ARMAConv's output; the stacks are the columns of one product."""
    stacks, width = layer.num_stacks, layer.out_channels
    out = _side_by_side(x, layer.init_weight)
    for t in range(layer.num_layers):
        own = 0 if layer.shared_weights else t
        if t > 0:
            by_stack = out.view(len(x), stacks, width).transpose(0, 1)
            weight = layer.weight[0 if layer.shared_weights else t - 1]
            out = (by_stack @ weight).transpose(0, 1).flatten(1)
        out = _aggregate(part, out, "symmetric")
        root = nn.functional.dropout(x, layer.dropout, layer.training)
        out = out + _side_by_side(root, layer.root_weight[own])
        if layer.bias is not None:
            out = out + layer.bias[own].flatten()
        out = out if layer.act is None else layer.act(out)
    return out.view(len(x), stacks, width).mean(1)


def _side_by_side(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W_k for all stacked matrices, concatenated."""
    return x @ weight.movedim(0, 1).flatten(1)


def _gin(layer: Any, part: Part, x: Tensor) -> Tensor:
    return layer.nn(_aggregate(part, x, "sum") + (1 + layer.eps) * x)
