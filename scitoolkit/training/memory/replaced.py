"""Temporary replacement of a module's forward method, for recomputation or other storage.

Results are bit-identical: dropout draws the same random numbers again, and running statistics are
updated once per batch.

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
    module: nn.Module,
    *,
    recomputes: bool,
    hooks: Callable[[], AbstractContextManager[Any]] | None = None,
) -> Iterator[None]:
    """Return a context in which a module recomputes its forward pass or stores tensors differently.

    Args:
        module: any module; its `forward` is replaced within the context.
        recomputes: save only the inputs and recompute in the backward pass.
        hooks: returns the saved-tensor context of the forward pass; by default tensors are saved
            unchanged, even inside hooks that pack them.

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
            forward,
            *arguments,
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), _SameBuffers(module)),
            **named,
        )

    run = recomputed if recomputes else forward

    def hooked(*arguments: Any, **named: Any) -> Any:
        with (hooks or save_unchanged)():
            return run(*arguments, **named)

    module.forward = hooked
    try:
        yield
    finally:
        del module.forward
        if former is not None:
            module.forward = former


def save_unchanged() -> saved_tensors_hooks:
    """Return hooks that save tensors unchanged."""
    return saved_tensors_hooks(Unchanged.of, Unchanged.value)


class _SameBuffers:
    """Context of each recomputation that restores buffers: statistics count a batch once.

    It is entered again if gradients are differentiated again.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __enter__(self) -> None:
        self._kept = [(buffer, buffer.detach().clone()) for buffer in self._module.buffers()]

    def __exit__(self, *error: object) -> None:
        for buffer, values in self._kept:
            buffer.data.copy_(values)  # .data leaves the version unchanged
