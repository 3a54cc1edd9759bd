"""Adapter that runs unmodified torch-geometric models on several processes.

`distribute` runs a model's forward pass inside `Distributed`. Class, parameters and parameter names
are unchanged, so weights trained on eight processes load into the plain model. There is no list of
supported models: `proof.prove` compares the distributed with the plain model before training.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.call_sites import CallSites
from scitoolkit.graphs.fast_layers import use_fast_forward
from scitoolkit.graphs.graph import GraphInputs
from scitoolkit.graphs.interception import Distributed
from scitoolkit.graphs.moved_part import part_on
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.whole_modules import use_all_rows

_INVERTIBLE = "_scitoolkit_disable"
_SEED: ContextVar[int | None] = ContextVar("seed of dropout", default=None)


def accepted_inputs(model: nn.Module) -> set[str]:
    """Return the names of the inputs that a model's forward accepts and uses.

    Networks of torch-geometric share one `forward`, which drops weights or features of edges
    that their layers do not support.
    """
    names = inspect.signature(type(model).forward).parameters
    return {name for name in names if getattr(model, f"supports_{name}", True)}


def named_inputs(model: nn.Module, inputs: GraphInputs) -> list[str]:
    """Return which inputs besides features and edges a graph has, by name, those of edges first.

    Raises:
        ConfigError: the model's forward does not accept one of them.
    """
    accepted = accepted_inputs(model)
    every = [*inputs.of_edges, *inputs.of_nodes]
    if inputs.types_in_features and "node_type" not in accepted:
        every.remove("node_type")
    for name in every:
        if name not in accepted:
            raise ConfigError(
                f"the graph has {name}, which {type(model).__name__}.forward does not accept",
                where="model",
                allowed=f"models called as model(x, edge_index, {name}={name})",
                fix="data.edge_inputs=ignore",
            )
    return every


def distribute(
    model: nn.Module,
    part: Part,
    fast: Collection[str] = (),
    *,
    whole: Collection[str] = (),
    check_seed: int | None = None,
    sites: CallSites | None = None,
) -> nn.Module:
    """Make a model run on this process's part of the graph, without the check of `proof.attach`.

    Call the model with the features of local nodes; it uses the edges of the part and ignores the
    given ones.

    Args:
        model: any torch-geometric model; modified in place, and restored by `detach`.
        part: this process's part.
        fast: names of the layers that run as sparse products, from `prove`.
        whole: names of the modules that run on the rows of all processes, from `prove`.
        check_seed: disables dropout and seeds other random numbers, as for the plain model.
        sites: records or checks the places in the user's code that call torch; None does neither.
    """
    detach(model)
    for name, module in model.named_modules():
        if name in fast:
            use_fast_forward(module, part)
        if name in whole:
            use_all_rows(module)
        if part.ranks.size > 1 and hasattr(module, "num_bwd_passes"):
            # An invertible layer computes in an autograd function, where tags are lost, and frees
            # its input. Without that it keeps its activations.
            module.__dict__[_INVERTIBLE], module.disable = module.disable, True
    inner, calls = model.forward, itertools.count()
    reads_edges = any(hasattr(m, "propagate") for n, m in model.named_modules() if n not in fast)

    def forward(x: Tensor, edge_index: Any = None) -> Tensor:
        del edge_index
        seed = _SEED.get()
        seed = next(calls) if seed is None else seed
        drops = seed if check_seed is None else None
        draws = seed if check_seed is None else check_seed
        mode = Distributed(part_on(part, x.device), drops, draws, sites)
        rows = {name: _rows(part, name, x) for name in named_inputs(model, part.inputs)}
        of_edges = part.inputs.of_edges
        named = {n: (mode.edges if n in of_edges else mode.nodes)(r) for n, r in rows.items()}
        edges = mode.edge_index() if reads_edges else mode.unread_edges()
        x = mode.nodes(x)
        with mode:
            return inner(x, edges, **named)

    model.forward = forward
    return model


def use_whole_graph(model: nn.Module, part: Part) -> nn.Module:
    """Make a model run unchanged on the whole graph, in its own order of nodes and edges.

    Args:
        model: modified in place, and restored by `detach`.
        part: the only part of the graph.
    """
    inner = detach(model).forward

    @functools.cache
    def whole(device: Any) -> tuple[Part, Tensor, Tensor]:
        here = part_on(part, device)
        order = here.edge_numbers.argsort()
        return here, order, here.nodes[here.edges[:, order]]

    def forward(x: Tensor, edge_index: Any = None) -> Tensor:
        del edge_index
        here, order, edges = whole(x.device)

        def in_order(name: str, rows: Tensor) -> Tensor:
            if name in part.inputs.of_edges:
                return rows[order]
            return torch.empty_like(rows).index_copy(0, here.nodes, rows)

        names = named_inputs(model, part.inputs)
        named = {name: in_order(name, _rows(part, name, x)) for name in names}
        return inner(in_order("x", x), edges, **named)[here.nodes]

    model.forward = forward
    return model


def _rows(part: Part, name: str, like: Tensor) -> Tensor:
    """Return a named input of local nodes or edges; integers stay integers."""
    of_edges = name in part.inputs.of_edges
    rows = torch.from_numpy(part.edge_input(name) if of_edges else part.node_input(name))
    return rows.to(like) if rows.is_floating_point() else rows.to(like.device)


def detach(model: nn.Module) -> nn.Module:
    """Restore the original forward methods, for use on a whole graph."""
    for module in model.modules():
        module.__dict__.pop("forward", None)
        if _INVERTIBLE in vars(module):
            module.disable = module.__dict__.pop(_INVERTIBLE)
        # Layers with `cached=True` hold the normalised edges of the graph that they ran on last,
        # which would be those of the proof.
        for key in [key for key in vars(module) if key.startswith("_cached_")]:
            setattr(module, key, None)
    return model


@contextlib.contextmanager
def dropout_by_node(seed: int) -> Iterator[None]:
    """Return a context in which dropout masks depend on the node or edge, not on the partition.

    Args:
        seed: seed of the masks; use another one in each step.
    """
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)
