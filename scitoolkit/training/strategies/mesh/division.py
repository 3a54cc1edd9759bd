"""How a network declares the parts that a mesh of processes may divide.

A network has the methods `division()`, for its matrix products, and `stages()`, for a pipeline, and
knows nothing of processes. Both are about one sample at a time: a network that mixes the samples of
a batch must not declare them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

GridAxis = Literal["x", "y"]


@dataclass(frozen=True)
class Division:
    """Division of one module over the axes of a grid of processes: mostly a product ``X W^T``.

    Attributes:
        inputs: axis over which the columns of W and the last dim of the input are divided; None
            for an input that is whole on every process.
        outputs: axis over which the rows of W and the last dim of the output are divided; None for
            an output that is whole on every process.
        partial: axis whose processes apply a module without division to their own values, such as
            the norm of their heads, so that the gradients of its parameters are summed over it.
        unit: number of consecutive outputs (or inputs, if only they are divided) that stay on one
            process, as those of an attention head must.

    Example:
        >>> Division(outputs="y", unit=8).inputs is None
        True
    """

    inputs: GridAxis | None = None
    outputs: GridAxis | None = None
    partial: GridAxis | None = None
    unit: int = 1


@runtime_checkable
class DivisibleNetwork(Protocol):
    """A network whose products can be divided over processes."""

    def division(self) -> Mapping[str, Division]:
        """Return the division by patterns of module names, in which * stands for any text.

        Products are `nn.Linear`, `JointLinear`, `SummedLinear` and convolutions without groups;
        what is not named is computed whole on every process.
        """


@dataclass(frozen=True)
class Stage:
    """One stage of a network.

    Attributes:
        modules: names of the network's modules that only this stage uses.
        run: the stage as a function of its input (the fields for the first stage), the fields and
            the condition of the network.
        cost: relative time of the stage.
    """

    modules: tuple[str, ...]
    run: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    cost: float = 1.0


@runtime_checkable
class StagedNetwork(Protocol):
    """A network that is a sequence of stages."""

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order; every parameter belongs to one of them.

        `forward(x, condition)` is ``h = x``, then ``h = stage.run(h, x, condition)`` for each.
        """


class JointLinear(nn.ModuleList):
    """Several linear layers of one input, whose gradients of the input are summed.

    On a mesh of processes they exchange once instead of once per layer. The matrices are separate,
    because a share of the rows of one fused matrix would be a part of its first layers only.

    Args:
        inputs: size of the input.
        outputs: sizes of the outputs.
        bias: whether the layers have biases.

    Example:
        >>> a, b = JointLinear(3, [4, 5])(torch.zeros(2, 3))
        >>> a.shape, b.shape
        (torch.Size([2, 4]), torch.Size([2, 5]))
    """

    def __init__(self, inputs: int, outputs: Sequence[int], *, bias: bool = True) -> None:
        super().__init__(nn.Linear(inputs, size, bias=bias) for size in outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one tensor (..., size) for each layer from (..., inputs)."""
        return tuple(layer(x) for layer in self)


class SummedLinear(nn.Module):
    """Sum of linear maps of several inputs, which a mesh of processes sums over ranks once.

    Args:
        inputs: sizes of the inputs.
        outputs: size of the output.

    Example:
        >>> SummedLinear([3, 4], 5)(torch.zeros(2, 3), torch.zeros(2, 4)).shape
        torch.Size([2, 5])
    """

    def __init__(self, inputs: Sequence[int], outputs: int) -> None:
        super().__init__()
        layers = [nn.Linear(size, outputs, bias=False) for size in inputs]
        bound = 1 / math.sqrt(sum(inputs))  # as of one matrix of all inputs
        for layer in layers:
            nn.init.uniform_(layer.weight, -bound, bound)
        self.layers: nn.ModuleList = nn.ModuleList(layers)
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(outputs))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return (..., outputs) from one tensor (..., size) for each input."""
        parts = [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]
        return sum(parts[1:], parts[0]) + self.bias


def divided_network(model: nn.Module, kind: Any) -> tuple[str, nn.Module] | None:
    """Return the outermost module of `kind` in a model and its name, or None unless it is one.

    Args:
        model: the model of a task, which may wrap its network.
        kind: `DivisibleNetwork` or `StagedNetwork`.
    """
    outermost: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") or not outer for outer, _ in outermost)
        if isinstance(module, kind) and not inside:
            outermost.append((name, module))
    return outermost[0] if len(outermost) == 1 else None
