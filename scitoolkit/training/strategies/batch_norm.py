"""Batch normalisation over the batches of all ranks, on any device.

Statistics of each rank's share alone would make the result depend on the number of ranks. torch's
SyncBatchNorm does the same, but refuses tensors on the CPU.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm


class SynchronisedBatchNorm:
    """Replaces the forward methods of a model's batch normalisations until `detach`.

    Args:
        model: a module whose normalisations every rank calls equally often.

    Attributes:
        modules: the normalisations found.
        counts: whether this rank's samples enter the statistics; False for a filler batch.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        self.counts = True
        for module in self.modules:
            module.forward = functools.partial(self._forward, module, module.forward)

    def detach(self) -> None:
        """Restore the usual forward methods."""
        for module in self.modules:
            del module.forward
        self.modules = []

    def _forward(self, module: _BatchNorm, usual: nn.Module, x: Tensor) -> Tensor:
        if not module.training and module.track_running_stats:
            return usual(x)
        dims = [d for d in range(x.ndim) if d != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        weight = float(self.counts)
        count = x.new_tensor(weight * x.numel() / x.shape[1])
        sums = all_reduce(torch.cat([weight * x.sum(dims), count[None]]))
        total = sums[-1].detach()
        mean = sums[:-1] / total
        centred = x - mean.view(shape)
        variance = all_reduce(weight * centred.square().sum(dims)) / total
        out = centred * torch.rsqrt(variance + module.eps).view(shape)
        if module.affine:
            out = out * module.weight.view(shape) + module.bias.view(shape)
        if module.training and module.track_running_stats:
            _update(module, mean.detach(), variance.detach() * total / (total - 1))
        return out


@torch.no_grad()
def _update(module: _BatchNorm, mean: Tensor, unbiased: Tensor) -> None:
    """Move the running statistics as torch's normalisation does."""
    assert module.running_mean is not None
    assert module.running_var is not None
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.add_(1)
    share = module.momentum
    if share is None:  # the average over all batches
        share = 1.0 / float(module.num_batches_tracked)
    module.running_mean.lerp_(mean.to(module.running_mean.dtype), share)
    module.running_var.lerp_(unbiased.to(module.running_var.dtype), share)
