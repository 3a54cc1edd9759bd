"""Fused graph attention over a sparse pattern, without stored scores or messages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.part import Part
from scitoolkit.graphs.tags import Tag, put_tag
from scitoolkit.ops.attention import additive_attention, graph_attention


def attention(layer: Any, part: Part, x: Tensor) -> Tensor:
    """Return the output of GATConv, shape (n_own, heads x width) or (n_own, width)."""
    with torch._C.DisableTorchFunction():
        rows = layer.lin(x)
        every = part.with_halo(rows).view(-1, layer.heads, layer.out_channels)
        every = promoted(every, layer.att_src)
        left = (every[: len(x)] * layer.att_dst).sum(2)
        right = (every * layer.att_src).sum(2)
        pattern = part.pattern(loops=layer.add_self_loops)
        out = graph_attention(pattern, left, right, every, slope=layer.negative_slope)
        return _finished(layer, part, x, out)


def attention_of_sums(layer: Any, part: Part, x: Tensor) -> Tensor:
    """Return the output of GATv2Conv, shape (n_own, heads x width) or (n_own, width)."""
    heads = (-1, layer.heads, layer.out_channels)
    with torch._C.DisableTorchFunction():
        rows = layer.lin_l(x)
        left = (rows if layer.share_weights else layer.lin_r(x)).view(heads)
        left = promoted(left, layer.att)
        every = promoted(part.with_halo(rows).view(heads), layer.att)
        pattern = part.pattern(loops=layer.add_self_loops)
        slope = layer.negative_slope
        out = additive_attention(pattern, left, every, layer.att[0], slope=slope)
        return _finished(layer, part, x, out)


def _finished(layer: Any, part: Part, x: Tensor, out: Tensor) -> Tensor:
    out = out.flatten(1) if layer.concat else out.mean(1)
    if layer.res is not None:
        out = out + layer.res(x)
    if layer.bias is not None:
        out = out + layer.bias
    return put_tag(out, Tag(0, part.nodes))


def promoted(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows in the dtype of their product with a weight; autocast makes them narrower."""
    return rows.to(torch.promote_types(rows.dtype, weight.dtype))
