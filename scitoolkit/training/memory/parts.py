"""Partition of a network into recomputable parts, with saved bytes, input bytes and time of each.

A part is a module that runs once per forward pass and takes and returns tensors. Modules that save
more than a given fraction of all bytes are divided into their children.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from scitoolkit.training.memory.device_time import Moment
from scitoolkit.training.memory.saved import unattached


@dataclass
class MeasuredModule:
    """Measurements of one module in a step.

    Attributes:
        name: name in the model.
        order: position in the order in which modules were entered.
        calls: number of calls in one step.
        saved: bytes first saved for the backward pass during its forward pass.
        inputs: bytes of its input tensors.
        seconds: duration of its forward pass.
        plain: whether it takes and returns only tensors.
        inside: names of its children in the order of their calls.
    """

    name: str
    order: int
    calls: int = 0
    saved: int = 0
    inputs: int = 0
    seconds: float = 0.0
    plain: bool = True
    inside: list[str] = field(default_factory=list)

    @property
    def eligible(self) -> bool:
        """Whether it can be recomputed."""
        return self.calls == 1 and self.plain


def observe(model: nn.Module, step: Callable[[], object]) -> dict[str, MeasuredModule]:
    """Return the measurements of each module in a step, by name; "" is the model.

    Args:
        model: the model to observe.
        step: runs a forward and a backward pass.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        >>> parts = observe(net, lambda: net(torch.ones(5, 8)).sum().backward())
        >>> parts["1"].saved, parts["1"].inputs, parts[""].inside
        (320, 320, ['0', '1', '2'])
    """
    counted = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers()]}
    parts: dict[str, MeasuredModule] = {}
    stack: list[MeasuredModule] = []
    passes: list[tuple[MeasuredModule, Moment, Moment]] = []
    device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in counted:
            counted.add(storage._cdata)
            for part in stack:
                part.saved += storage.nbytes()
        return unattached(tensor)

    with contextlib.ExitStack() as handles:
        for name, module in model.named_modules():
            handles.enter_context(_watched(name, module, parts, stack, passes, device))
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            step()
    for part, begin, end in passes:  # only now, as a GPU would have to be waited for
        part.seconds += begin.seconds_until(end)
    return parts


@contextlib.contextmanager
def _watched(
    name: str,
    module: nn.Module,
    parts: dict[str, MeasuredModule],
    stack: list[MeasuredModule],
    passes: list[tuple[MeasuredModule, Moment, Moment]],
    device: torch.device,
) -> Iterator[None]:
    started: list[Moment] = []

    def enter(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        part = parts.setdefault(name, MeasuredModule(name, len(parts)))
        values = [*arguments, *named.values()]
        part.calls += 1
        part.plain &= all(isinstance(a, Tensor) or a is None for a in values)
        part.inputs = sum(a.nbytes for a in values if isinstance(a, Tensor))
        if stack and name not in stack[-1].inside:
            stack[-1].inside.append(name)
        stack.append(part)
        started.append(Moment(device))

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        part = stack.pop()
        passes.append((part, started.pop(), Moment(device)))
        outputs = output if isinstance(output, tuple) else (output,)
        part.plain &= all(isinstance(o, Tensor) for o in outputs)

    handles = (
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def divided(by_name: dict[str, MeasuredModule], share: float) -> list[MeasuredModule]:
    """Return parts in execution order, each with at most a given fraction of the saved bytes.

    Args:
        by_name: result of `observe`.
        share: largest fraction of all saved bytes; a module without children may exceed it.
    """
    limit = share * by_name[""].saved

    def parts(name: str) -> Iterator[MeasuredModule]:
        part = by_name[name]
        inner = [p for child in part.inside for p in parts(child)]
        if name and part.eligible and (part.saved <= limit or not inner):
            yield part
        else:
            yield from inner

    eligible = [p for p in parts("") if p.saved]
    return sorted(eligible, key=lambda p: p.order)
