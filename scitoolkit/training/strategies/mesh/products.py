"""Matrix products and convolutions divided over a grid of processes.

Symbols: a product ``Y = X W^T`` with X (m, k), W (n, k), Y (m, n) on a grid x, y, z. Columns k of
W are divided over its axis `inputs`, rows n over its axis `outputs`, and the rows of that part once
more over z, which also divides the samples m. Forward: all-gather W over z, multiply, all-reduce Y
over `inputs`. Backward: all-gather W again, multiply, all-reduce dX over `outputs` while dW is
computed, reduce-scatter dW over z (Tensor3D: Singh, Sating and Bhatele 2023, arXiv:2305.13525).
With x = z = 1 it is the tensor parallelism of Megatron-LM (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from scitoolkit.training.strategies.mesh.division import JointLinear, SummedLinear

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@dataclass(frozen=True)
class ProductGroups:
    """Process groups of a product; None for an axis of one process.

    Attributes:
        inputs: ranks over which the columns of W are divided.
        outputs: ranks over which the rows of W are divided.
        z: ranks over which each part of W is divided, and the samples.
    """

    inputs: dist.ProcessGroup | None
    outputs: dist.ProcessGroup | None
    z: dist.ProcessGroup | None


class GridProducts(torch.autograd.Function):
    """Products of one input with several matrices, or the sum of products of several inputs."""

    @staticmethod
    def forward(ctx: Any, groups: ProductGroups, summed: bool, count: int, *tensors: Tensor) -> Any:
        """Return the outputs; `tensors` are `count` inputs, then this rank's parts of matrices."""
        inputs, parts = tensors[:count], tensors[count:]
        ctx.save_for_backward(*tensors)
        ctx.groups, ctx.summed, ctx.count = groups, summed, count
        weights = _gathered(parts, groups.z)
        if summed:
            products = [x @ w.T for x, w in zip(inputs, weights, strict=True)]
            outputs = [sum(products[1:], products[0])]
        else:
            outputs = [inputs[0] @ w.T for w in weights]
        outputs, work = _start_sum(outputs, groups.inputs)
        work()
        return outputs[0] if summed else tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Return the gradients; the exchange of dX and the products dW run at the same time."""
        inputs, parts = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        groups, wanted = ctx.groups, ctx.needs_input_grad[3:]
        received: list[Tensor | None] = [None] * ctx.count
        wait: Callable[[], None] = _nothing
        if any(wanted[: ctx.count]):
            weights = _gathered(parts, groups.z)
            products = [g @ w for g, w in zip(_per_part(gradients, parts), weights, strict=True)]
            if not ctx.summed:
                products = [sum(products[1:], products[0])]
            received, wait = _start_sum(products, groups.outputs)  # type: ignore[assignment]
        changes: list[Tensor | None] = [None] * len(parts)
        if any(wanted[ctx.count :]):
            rows = [x.flatten(0, -2) for x in _per_part(inputs, parts)]
            columns = [g.flatten(0, -2) for g in _per_part(gradients, parts)]
            whole = [g.T @ x for g, x in zip(columns, rows, strict=True)]
            changes = _scattered(whole, groups.z)  # type: ignore[assignment]
        wait()
        return None, None, None, *received, *changes


def _per_part(tensors: Sequence[Tensor], parts: Sequence[Tensor]) -> Sequence[Tensor]:
    return tensors if len(tensors) == len(parts) else [tensors[0]] * len(parts)


def _nothing() -> None:
    pass


def _start_sum(
    tensors: list[Tensor], group: dist.ProcessGroup | None
) -> tuple[list[Tensor], Callable[[], None]]:
    """Start one all-reduce of several tensors; they are summed after the returned wait."""
    if group is None:
        return tensors, _nothing
    flat = (
        tensors[0].contiguous() if len(tensors) == 1 else torch.cat([t.flatten() for t in tensors])
    )
    work = dist.all_reduce(flat, group=group, async_op=True)
    if len(tensors) == 1:
        return [flat], work.wait
    pieces = flat.split([t.numel() for t in tensors])
    return [p.view(t.shape) for p, t in zip(pieces, tensors, strict=True)], work.wait


def _gathered(parts: Sequence[Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Return matrices of which each rank of a group has some rows, by one all-gather."""
    if group is None:
        return list(parts)
    flat = torch.cat([p.flatten() for p in parts])
    ranks = group.size()
    out = flat.new_empty(ranks, flat.numel())
    dist.all_gather_single(out.view(-1), flat, group=group)
    pieces = out.split([p.numel() for p in parts], 1)
    return [
        piece.reshape(ranks * p.shape[0], p.shape[1])
        for piece, p in zip(pieces, parts, strict=True)
    ]


def _scattered(matrices: Sequence[Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Return this rank's rows of sums over a group, by one reduce-scatter."""
    if group is None:
        return list(matrices)
    ranks = group.size()
    flat = torch.cat([m.reshape(ranks, -1) for m in matrices], 1)
    out = flat.new_empty(flat.shape[1])
    dist.reduce_scatter_single(out, flat.view(-1), group=group)
    pieces = out.split([m.numel() // ranks for m in matrices])
    return [
        piece.view(m.shape[0] // ranks, m.shape[1])
        for piece, m in zip(pieces, matrices, strict=True)
    ]


class _Entered(torch.autograd.Function):
    """The identity; the gradient is summed over a group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _Summed(torch.autograd.Function):
    """The sum over a group; the gradient is passed on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


def linear_layers(module: nn.Module) -> list[nn.Linear] | None:
    """Return the linear layers of a divisible product, or None for another module."""
    if isinstance(module, nn.Linear):
        return [module]
    if not isinstance(module, JointLinear | SummedLinear):
        return None
    layers = module if isinstance(module, JointLinear) else module.layers
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def is_divisible(module: nn.Module) -> bool:
    """Return whether a module is a product that can be divided."""
    if isinstance(module, Convolution):
        return module.groups == 1 and module.padding_mode == "zeros"
    return linear_layers(module) is not None


def divided_forward(module: nn.Module, groups: ProductGroups) -> Callable[..., Any]:
    """Return the forward function of a product whose weights are this rank's parts.

    Biases are divided like the outputs and added once, after the sum over ranks.
    """
    if isinstance(module, Convolution):
        return _divided_convolution(module, groups)
    layers = linear_layers(module)
    assert layers is not None, "`is_divisible` comes first"
    summed = isinstance(module, SummedLinear)

    def forward(*inputs: Tensor) -> Any:
        weights = [layer.weight for layer in layers]
        outputs = GridProducts.apply(groups, summed, len(inputs), *inputs, *weights)
        if isinstance(module, SummedLinear):
            return outputs + module.bias
        biased = tuple(
            y if layer.bias is None else y + layer.bias
            for y, layer in zip(outputs, layers, strict=True)
        )
        return biased if isinstance(module, JointLinear) else biased[0]

    return forward


def _divided_convolution(module: Any, groups: ProductGroups) -> Callable[..., Any]:
    convolve: Any = _CONVOLUTIONS[module.weight.ndim - 2]

    def forward(x: Tensor) -> Tensor:
        if groups.outputs is not None:
            x = _Entered.apply(x, groups.outputs)
        y = convolve(x, module.weight, None, module.stride, module.padding, module.dilation)
        if groups.inputs is not None:
            y = _Summed.apply(y, groups.inputs)
        return y if module.bias is None else y + module.bias.view(-1, *[1] * (y.ndim - 2))

    return forward
