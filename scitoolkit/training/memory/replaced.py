"""A module whose forward pass is recomputed, or whose activations are saved as they are.

The one mechanism of all stores that recompute. What comes out is the same bits: dropout draws the
same numbers again, and running statistics count a batch once.

Source: Chen et al. 2016, https://arxiv.org/abs/1604.06174.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from scitoolkit.training.memory.saved import Unchanged


@contextlib.contextmanager
def replaced(
    module: nn.Module, *, recomputes: bool,
    hooks: Callable[[], AbstractContextManager[Any]] | None = None,
) -> Iterator[None]:  # fmt: skip
    """Within it a module saves its inputs and recomputes the rest, or saves all.

    Args:
        module: of any kind; its `forward` is replaced until the end.
        recomputes: in the backward pass.
        hooks: returns the context of its forward pass, which takes what is saved; without it
            tensors are saved as they are, also where hooks around pack them.

    Example:
        >>> import torch
        >>> net, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(1, 2)
        >>> with replaced(net, recomputes=True):
        ...     y = net(x)
        >>> y.sum().backward()
        >>> net[0].weight.grad is not None
        True
    """
    former, forward = vars(module).get("forward"), module.forward

    def recomputed(*arguments: Any, **named: Any) -> Any:
        return checkpoint(
            forward, *arguments, use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), _same_buffers(module)), **named,
        )  # fmt: skip

    run = recomputed if recomputes else forward

    def hooked(*arguments: Any, **named: Any) -> Any:
        with (hooks or as_it_is)():
            return run(*arguments, **named)

    module.forward = hooked
    try:
        yield
    finally:
        del module.forward
        if former is not None:
            module.forward = former


def as_it_is() -> saved_tensors_hooks:
    """Return a context whose tensors are saved as they are."""
    return saved_tensors_hooks(Unchanged.of, Unchanged.value)


@contextlib.contextmanager
def _same_buffers(module: nn.Module) -> Iterator[None]:
    """Keep buffers as the first forward pass left them: running statistics count a batch once."""
    kept = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, values in kept:
            buffer.data.copy_(values)  # not counted as a change: the backward pass may follow
