"""torch-geometric models on many processes: the user's module stays as it is.

`distribute` runs a model's forward pass inside `Distributed`; its class, parameters and names stay,
so weights trained on eight processes load into the plain model. Which models it is right for is
not looked up: `proof.prove` compares it with the plain model before training.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.fast_layers import use_fast_forward
from scitoolkit.graphs.interception import Distributed
from scitoolkit.graphs.part import GraphPart

EDGE_INPUTS = ("edge_weight", "edge_attr")
_SEED: ContextVar[int | None] = ContextVar("seed of dropout", default=None)


def edge_inputs(model: nn.Module, graph: Any) -> list[str]:
    """Return which of `edge_weight` and `edge_attr` a graph has.

    Raises:
        ConfigError: the model's forward does not accept one that it has.
    """
    accepted = inspect.signature(type(model).forward).parameters
    present = [name for name in EDGE_INPUTS if getattr(graph, name) is not None]
    for name in present:
        if name not in accepted:
            raise ConfigError(
                f"the graph has {name}, which {type(model).__name__}.forward does not accept",
                where="model", allowed=f"models called as model(x, edge_index, {name}={name})",
                fix="data.edge_inputs=ignore",
            )  # fmt: skip
    return present


def distribute(
    model: nn.Module, part: GraphPart, fast: Collection[str] = (), *, dropout: bool = True
) -> nn.Module:
    """Let a model work on this process's part of the graph; `proof.attach` proves it first.

    Call the model with own nodes' features; its edges are the part's, whatever is given.

    Args:
        model: any torch-geometric model; changed in place, and restored by `detach`.
        part: this process's part.
        fast: names of the layers that become sparse products, as `prove` returns them.
        dropout: False drops nothing.
    """
    detach(model)
    for name, module in model.named_modules():
        if name in fast:
            use_fast_forward(module, part)
    inner, calls = model.forward, itertools.count()

    def forward(x: Tensor, edge_index: Any = None) -> Tensor:
        del edge_index
        seed = _SEED.get()
        seed = next(calls) if seed is None else seed
        mode = Distributed(part, seed if dropout else None)
        given = {
            name: mode.edges(_edge_rows(part, name, x)) for name in edge_inputs(model, part.graph)
        }
        x, edges = mode.nodes(x), mode.edge_index()
        with mode:
            return inner(x, edges, **given)

    model.forward = forward
    return model


def _edge_rows(part: GraphPart, name: str, like: Tensor) -> Tensor:
    import torch

    rows = getattr(part.graph, name)[part.edge_ids.numpy()]
    return torch.from_numpy(rows).to(like.dtype)


def detach(model: nn.Module) -> nn.Module:
    """Restore the model's own forward pass, for use on a whole graph."""
    for module in model.modules():
        module.__dict__.pop("forward", None)
        for key in [key for key in vars(module) if key.startswith("_cached_")]:
            setattr(module, key, None)
    return model


@contextlib.contextmanager
def dropout_by_node(seed: int) -> Iterator[None]:
    """Within it, dropout gives each node and edge the same mask on any number of ranks.

    Args:
        seed: another one for each step.
    """
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)
