"""Synchronised batch normalisation on any device.

With the statistics of each rank's share of the batch, results would depend on the number of ranks.
torch's SyncBatchNorm does not support CPU tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scitoolkit.core.errors import ConfigError

Before = Callable[[], None] | None


class _Sum(torch.autograd.Function):
    """All-reduce; the gradient is also summed, because the loss of every rank depends on it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Before = None, before_backward: Before = None) -> Any:
        ctx.before = before_backward
        if before is not None:
            before()
        out = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Sum.apply(gradient.contiguous(), ctx.before), None, None


class SynchronisedBatchNorm:
    """Replaces the forward methods of a model's batch normalisations until `detach`.

    Args:
        model: a module whose normalisations are called in the same order on every rank.
        check: called with the name of an exchange before it starts; raises if another rank has
            reached another one.

    Attributes:
        modules: the batch normalisations, without `nn.SyncBatchNorm`.
        counts: whether this rank's samples enter the statistics; False for a filler batch.

    Raises:
        ConfigError: a subclass of batch normalisation overrides `forward`.
    """

    modules: list[Any]

    def __init__(self, model: nn.Module, check: Callable[[str], None]) -> None:
        self._check = check
        self._names = {module: f"normalisation {name}" for name, module in model.named_modules()}
        normalisations = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        self.modules = [m for m in normalisations if not isinstance(m, nn.SyncBatchNorm)]
        self.counts = True
        for module in self.modules:
            if type(module).forward is not _BatchNorm.forward:
                raise ConfigError(
                    f"{type(module).__name__} overrides forward, so its statistics "
                    "cannot be computed over all ranks",
                    where="model",
                    fix="training.strategy=single, or a normalisation within samples (LayerNorm)",
                )
        for module in self.modules:
            module.forward = functools.partial(self._forward, module, module.forward)

    def detach(self) -> None:
        """Restore the original forward methods."""
        for module in self.modules:
            del module.forward
        self.modules = []

    def _forward(self, module: _BatchNorm, usual: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        if not module.training and module.track_running_stats:
            return usual(x)
        dtype = x.dtype
        x = x if dtype == torch.float64 else x.float()
        dims = [d for d in range(x.ndim) if d != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        weight = float(self.counts)
        count = x.new_tensor(weight * x.numel() / x.shape[1])
        # The other sum of a pass follows at once, on every rank that has reached this one.
        name = self._names[module]
        forward, backward = (
            functools.partial(self._check, t + name) for t in ("", "gradients of ")
        )
        sums = _Sum.apply(torch.cat([weight * x.sum(dims), count[None]]), forward)
        total = sums[-1].detach()
        mean = sums[:-1] / total
        centred = x - mean.view(shape)
        variance = _Sum.apply(weight * centred.square().sum(dims), None, backward) / total
        out = centred * torch.rsqrt(variance + module.eps).view(shape)
        if module.affine:
            out = out * module.weight.view(shape) + module.bias.view(shape)
        if module.training and module.track_running_stats:
            _update(module, mean.detach(), variance.detach() * total / (total - 1))
        return out.to(dtype)


@torch.no_grad()
def _update(module: _BatchNorm, mean: Tensor, unbiased: Tensor) -> None:
    """Update the running statistics like torch's batch normalisation."""
    assert module.running_mean is not None
    assert module.running_var is not None
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.add_(1)
    share = module.momentum
    if share is None:  # the average over all batches
        share = 1.0 / float(module.num_batches_tracked)
    module.running_mean.lerp_(mean.to(module.running_mean.dtype), share)
    module.running_var.lerp_(unbiased.to(module.running_var.dtype), share)
