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
from scitoolkit.graphs.graph import GraphInputs
from scitoolkit.graphs.interception import Distributed
from scitoolkit.graphs.moved_part import part_on
from scitoolkit.graphs.part import Part

_SEED: ContextVar[int | None] = ContextVar("seed of dropout", default=None)


def edge_inputs(model: nn.Module, inputs: GraphInputs) -> list[str]:
    """Return which of `edge_weight` and `edge_attr` a graph has.

    Raises:
        ConfigError: the model's forward does not accept one that it has.
    """
    accepted = inspect.signature(type(model).forward).parameters
    for name in inputs.of_edges:
        if name not in accepted:
            raise ConfigError(
                f"the graph has {name}, which {type(model).__name__}.forward does not accept",
                where="model", allowed=f"models called as model(x, edge_index, {name}={name})",
                fix="data.edge_inputs=ignore",
            )  # fmt: skip
    return inputs.of_edges


def distribute(
    model: nn.Module, part: Part, fast: Collection[str] = (), *, dropout: bool = True
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
    reads_edges = any(hasattr(m, "propagate") for n, m in model.named_modules() if n not in fast)

    def forward(x: Tensor, edge_index: Any = None) -> Tensor:
        del edge_index
        seed = _SEED.get()
        seed = next(calls) if seed is None else seed
        mode = Distributed(part_on(part, x.device), seed if dropout else None)
        given = {
            name: mode.edges(_edge_rows(part, name, x)) for name in edge_inputs(model, part.inputs)
        }
        edges = mode.edge_index() if reads_edges else mode.unread_edges()
        x = mode.nodes(x)
        with mode:
            return inner(x, edges, **given)

    model.forward = forward
    return model


def _edge_rows(part: Part, name: str, like: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(part.edge_input(name)).to(like)


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
