"""Temporary replacement of a module's forward method, for recomputation or other storage.

Results are bit-identical: dropout draws the same random numbers again, and running statistics are
updated once per batch.

Source: Chen et al. 2016, https://arxiv.org/abs/1604.06174.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
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
        on_cpu = _on_cpu(module, (*arguments, *named.values()))
        again = _Same(module, _state() if on_cpu else None)
        return checkpoint(
            forward,
            *arguments,
            use_reentrant=False,
            preserve_rng_state=not on_cpu,  # one state for each call; `_Same` shares equal ones
            context_fn=lambda: (again.first(), again),
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


def _on_cpu(module: nn.Module, arguments: Iterable[object]) -> bool:
    tensors = [*module.parameters(), *(a for a in arguments if isinstance(a, Tensor))]
    return all(tensor.device.type == "cpu" for tensor in tensors)


_latest: weakref.ref[Tensor] | None = None


def _state() -> Tensor:
    """Return the state of random numbers, which parts share that draw none in between."""
    global _latest
    now, before = torch.get_rng_state(), None if _latest is None else _latest()
    if before is None or not torch.equal(now, before):
        before, _latest = now, weakref.ref(now)
    return before


class _Same:
    """Context of each recomputation: buffers are restored, so that statistics count a batch once.

    It is entered again if gradients are differentiated again.

    Args:
        module: is recomputed.
        state: of random numbers before its forward pass; None if the caller sets it.
    """

    def __init__(self, module: nn.Module, state: Tensor | None) -> None:
        self._module, self._state = module, state

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Return the context of the forward pass; a part that draws no number needs no state."""
        yield
        if self._state is not None and torch.equal(self._state, torch.get_rng_state()):
            self._state = None

    def __enter__(self) -> None:
        self._kept = [(buffer, buffer.detach().clone()) for buffer in self._module.buffers()]
        if self._state is not None:
            self._now = torch.get_rng_state()
            torch.set_rng_state(self._state)

    def __exit__(self, *error: object) -> None:
        if self._state is not None:
            torch.set_rng_state(self._now)
            del self._now
        for buffer, values in self._kept:
            buffer.data.copy_(values)  # .data leaves the version unchanged
        del self._kept
