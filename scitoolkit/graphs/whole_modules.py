"""Modules that run on the rows of all processes, such as attention that sorts the nodes.

A module whose functions refer to places among all nodes, for which no rule exists, may still be
right if it is called with the rows of all nodes: each process computes all of it and keeps its own
rows. It takes the memory and the arithmetic of the whole. Edges that such a module takes are those
of all processes, between numbers of all nodes, in the order of the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from scitoolkit.graphs.gathered_functions import on_all_rows
from scitoolkit.graphs.local_rows import LocalRows, Unsupported
from scitoolkit.graphs.tags import flat, put_tag, role_of, tag_of


def use_all_rows(module: nn.Module) -> None:
    """Replace a module's `forward` by one on the rows of all processes, until `detach`."""
    inner = module.forward

    @functools.wraps(inner)  # models look at the names of the arguments
    def forward(*args: Any, **kwargs: Any) -> Any:
        return call_on_all_rows(inner, *args, **kwargs)

    module.forward = forward


def call_on_all_rows(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function; the mode of a distributed model runs it by `on_rows`."""
    tensors = tuple(a for a in flat((args, tuple(kwargs.values()))) if isinstance(a, Tensor))
    if not has_torch_function(tensors):
        return inner(*args, **kwargs)
    return handle_torch_function(call_on_all_rows, tensors, inner, *args, **kwargs)


def on_rows(
    mode: TorchFunctionMode, local: LocalRows, inner: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Call a function with the rows of all processes, of which the mode sees replicated tensors.

    Raises:
        Unsupported: an argument holds numbers of nodes of which the process has no row.
    """

    def within(*whole: Any, **named: Any) -> Any:
        with _Nested(mode):
            return inner(*whole, **named)

    every = [*flat((args, tuple(kwargs.values())))]
    if all(tag_of(argument) is None for argument in every):
        return within(*args, **kwargs)
    if any(role_of(argument) is not None for argument in every):
        # All ranks have the same arguments, so that all take part in this exchange.
        args, kwargs = _numbered((args, kwargs), local.part.find_nodes_with_halo())
    return on_all_rows(local, within, "module", args, kwargs)


def _numbered(value: Any, numbers: Tensor) -> Any:
    """Return arguments whose numbers of local nodes and of the halo are those of all nodes."""
    if isinstance(value, dict):
        return {name: _numbered(part, numbers) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)([_numbered(part, numbers) for part in value])
    tag = tag_of(value)
    if tag is None or tag.role is None:
        return value
    if value.numel() and not 0 <= int(value.min()) <= int(value.max()) < len(numbers):
        raise Unsupported("numbers of nodes beyond those of the graph, on the rows of all nodes")
    return put_tag(numbers[value.long()].to(value.dtype), replace(tag, role=None))


class _Nested(TorchFunctionMode):
    """The mode again, inside one of its calls, in which torch disables it."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._mode.__torch_function__(func, types, args, kwargs)
