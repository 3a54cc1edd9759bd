"""Modules that run on the rows of all processes, such as attention that sorts the nodes.

A module whose functions refer to places among all nodes, for which no rule exists, may still be
right if it is called with the rows of all nodes: each process computes all of it and keeps its own
rows. It takes the memory and the arithmetic of the whole. A module that takes edges cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from scitoolkit.graphs.gathered_functions import on_all_rows
from scitoolkit.graphs.local_rows import LocalRows, Unsupported
from scitoolkit.graphs.tags import flat, role_of, tag_of


def use_all_rows(module: nn.Module) -> None:
    """Replace a module's `forward` by one on the rows of all processes, until `detach`."""
    inner = module.forward
    module.forward = lambda *args, **kwargs: call_on_all_rows(inner, *args, **kwargs)


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
        Unsupported: an argument has numbers of nodes, which are those of one process.
    """

    def within(*whole: Any, **named: Any) -> Any:
        with _Nested(mode):
            return inner(*whole, **named)

    every = [*flat((args, tuple(kwargs.values())))]
    if any(role_of(argument) is not None for argument in every):
        raise Unsupported("a module that takes edges, on the rows of all nodes")
    if all(tag_of(argument) is None for argument in every):
        return within(*args, **kwargs)
    return on_all_rows(local, within, "module", args, kwargs)


class _Nested(TorchFunctionMode):
    """The mode again, inside one of its calls, in which torch disables it."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._mode.__torch_function__(func, types, args, kwargs)
