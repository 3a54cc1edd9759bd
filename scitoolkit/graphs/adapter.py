"""torch-geometric models on many processes: the user's module stays as it is.

`attach` gives the message layers of a model another way to do their work; their class, parameters
and names stay, so weights trained on eight processes load into the plain model. GCN, SAGE and GIN
layers become sparse products, which move fewer numbers and never store messages; any other layer
is called as it is on the own nodes and their neighbours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.part import GraphPart
from scitoolkit.ops.node_dropout import node_dropout

_STATISTICS = ("BatchNorm", "GraphNorm", "InstanceNorm", "PairNorm", "MeanSubtractionNorm")
"""Layers that take means over all nodes, which a process sees only its share of."""


def attach(model: nn.Module, part: GraphPart) -> nn.Module:
    """Let the model's message layers work on this process's part of the graph.

    Call the model as always, with own nodes' features and anything as `edge_index`.

    Args:
        model: any torch-geometric model; changed in place, and given back by `detach`.
        part: this process's part.

    Raises:
        ConfigError: a layer that cannot be distributed, by name.
    """
    from torch_geometric.nn import GCNConv, GINConv, MessagePassing, SAGEConv

    fast: dict[type, Callable[..., Any]] = {GCNConv: _gcn, SAGEConv: _sage, GINConv: _gin}
    for name, module in model.named_modules():
        kind = type(module).__name__
        if part.ranks.size > 1 and any(kind.startswith(each) for each in _STATISTICS):
            raise ConfigError(
                f"layer {name} ({kind}) takes means over the nodes of one process alone",
                where="model", fix="LayerNorm, which works node by node",
            )  # fmt: skip
        if not isinstance(module, MessagePassing):
            continue
        run = fast.get(type(module), _any)
        if run is _sage and module.aggr not in ("mean", "add", "sum"):
            run = _any
        _check(name, module)
        module.forward = _bound(run, module, part)
    return model


def detach(model: nn.Module) -> nn.Module:
    """Give the model its own way back, for use on a whole graph."""
    for module in model.modules():
        module.__dict__.pop("forward", None)
    return model


def _bound(run: Callable[..., Tensor], layer: Any, part: GraphPart) -> Callable[..., Tensor]:
    def forward(x: Tensor, edge_index: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        given = [a for a in (*args, *kwargs.values()) if a is not None]
        if given:
            raise ConfigError(
                f"{type(layer).__name__} was called with edge weights or attributes",
                where="model", allowed="x and edge_index alone",
            )  # fmt: skip
        return run(layer, part, x)

    return forward


def _check(name: str, layer: Any) -> None:
    if layer.flow != "source_to_target":
        raise ConfigError(
            f"layer {name} has flow {layer.flow}", where="model", allowed="source_to_target"
        )
    unusual = [key for key in ("improved",) if getattr(layer, key, False)]
    if type(layer).__name__ == "GCNConv":
        unusual += [key for key in ("normalize", "add_self_loops") if not getattr(layer, key)]
    if unusual:
        raise ConfigError(
            f"layer {name} has {', '.join(unusual)} changed from its default", where="model",
            allowed="GCNConv with normalize=True, add_self_loops=True, improved=False",
        )  # fmt: skip


def _narrow(part: GraphPart, x: Tensor, weight: Tensor, weighting: str) -> Tensor:
    """A X W, multiplied first by whichever leaves fewer columns to move and to sum."""
    if weight.shape[0] <= weight.shape[1]:
        return part.aggregate(x @ weight.t(), weighting)
    return part.aggregate(x, weighting) @ weight.t()


def _gcn(layer: Any, part: GraphPart, x: Tensor) -> Tensor:
    out = _narrow(part, x, layer.lin.weight, "gcn")
    return out if layer.bias is None else out + layer.bias


def _sage(layer: Any, part: GraphPart, x: Tensor) -> Tensor:
    source = layer.lin(x).relu() if layer.project and hasattr(layer, "lin") else x
    out = _narrow(part, source, layer.lin_l.weight, "mean" if layer.aggr == "mean" else "sum")
    if layer.lin_l.bias is not None:
        out = out + layer.lin_l.bias
    if layer.root_weight:
        out = out + layer.lin_r(x)
    return nn.functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


def _gin(layer: Any, part: GraphPart, x: Tensor) -> Tensor:
    return layer.nn(part.aggregate(x, "sum") + (1 + layer.eps) * x)


def _any(layer: Any, part: GraphPart, x: Tensor) -> Tensor:
    """Run the layer's own forward on own nodes and halo, for messages into own nodes."""
    return type(layer).forward(layer, (part.with_halo(x), x), part.edge_index)


class _ByNode(TorchFunctionMode):
    """Sends calls of dropout on rows of own nodes to `node_dropout`."""

    def __init__(self, part: GraphPart, seed: int) -> None:
        super().__init__()
        self._part, self._seed, self._calls = part, seed, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is not nn.functional.dropout:
            return function(*args, **kwargs)
        x, p, training = _dropout_arguments(*args, **kwargs)
        if not training or p == 0.0:
            return x
        self._calls += 1
        rows = self._rows(x)
        seed = self._seed * 1_000_003 + self._calls
        return node_dropout(x.reshape(len(x), -1), rows, p, seed).view_as(x)

    def _rows(self, x: Tensor) -> Tensor:
        if len(x) == len(self._part.nodes):
            return self._part.nodes
        if self._part.ranks.size == 1:
            return torch.arange(len(x))
        raise ConfigError(
            f"dropout on {len(x)} rows, which are not the {len(self._part.nodes)} own nodes",
            where="model", allowed="dropout of node features; 0 inside attention",
        )  # fmt: skip


def _dropout_arguments(input, p=0.5, training=True, inplace=False):
    return input, p, training


@contextlib.contextmanager
def dropout_by_node(part: GraphPart, seed: int) -> Iterator[None]:
    """Within it, dropout of node features gives each node the same mask on any number of ranks.

    Args:
        part: whose nodes the rows are.
        seed: another one for each step.
    """
    with _ByNode(part, seed):
        yield
