"""Data-parallel training: every rank holds the model and a share of the batch.

Gradients are summed in buckets of a fixed order while the backward pass goes on, see
`exchange.buckets`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.training.exchange.buckets import GradientBuckets
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.strategies.base import TrainingStrategy
from scitoolkit.training.strategies.batch_norm import SynchronisedBatchNorm


def joined() -> bool:
    """Return whether this process is in a process group."""
    return dist.is_initialized()


class DataParallelStrategy(TrainingStrategy):
    """Every rank holds the model and a share of the batch.

    Args:
        device: where to train.
        communicating_model: ranks exchange data inside the model's forward pass.
    """

    agrees_on_errors: bool

    agrees_on_errors = True

    def __init__(self, device: torch.device, *, communicating_model: bool = False) -> None:
        super().__init__(device, dist.get_rank(), dist.get_world_size())
        self.agrees_on_errors = type(self).agrees_on_errors and not communicating_model
        self._communicating_model = communicating_model
        self._batch_norm: SynchronisedBatchNorm | None = None
        self._buckets: GradientBuckets | None = None

    def prepare(self, model: nn.Module) -> nn.Module:
        """Copy rank 0's weights and buffers to all ranks; synchronise batch normalisation."""
        model = model.to(self.device)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor, src=0)
        self._synchronise(model)
        return model

    def restore(self, model: nn.Module) -> nn.Module:
        """Give the normalisations their usual forward methods back; remove the hooks."""
        if self._buckets is not None:
            self._buckets.detach()
            for parameter in model.parameters():
                parameter.grad = None  # a view that would keep a whole bucket
        if self._batch_norm is not None:
            self._batch_norm.detach()
        return model

    def weigh(self, count: int) -> None:
        """Keep fillers out of the statistics of batch normalisations."""
        if self._batch_norm is not None:
            self._batch_norm.counts = count > 0

    def agree(self, samples: int, *flags: bool) -> tuple[float, list[bool]]:
        """Agree in one small all-reduce (gloo, on the CPU)."""
        message = torch.tensor([samples, *flags], dtype=torch.float64)
        dist.all_reduce(message)
        total, *raised = message.tolist()
        return total, [number > 0 for number in raised]

    def attach(self, parameters: Sequence[nn.Parameter], exchange: ExchangeConfig) -> None:
        """Lay out the buckets of the exchange."""
        if self.world > 1:
            self._buckets = GradientBuckets(parameters, exchange.build(), exchange.bucket_mib)

    def begin_exchange(self) -> None:
        """Let gradients be sent as they come, unless ranks communicate inside the model."""
        if self._buckets is not None and self.agrees_on_errors:
            self._buckets.begin()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter], failed: bool) -> bool:
        """Finish the exchange; a parameter without gradient on this rank counts as 0.

        The flag travels with the gradients, so that a rank whose loss raised an error neither
        leaves the others waiting nor costs another message.
        """
        if self.world == 1:
            return failed
        assert self._buckets is not None, "`attach` must come before the first step"
        return self._buckets.finish(failed)

    def sum(self, values: list[float]) -> list[float]:
        """Sum over the ranks, in float64."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def total(self, tensor: Tensor) -> Tensor:
        """Sum in one all-reduce."""
        dist.all_reduce(tensor)
        return tensor

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Broadcast from rank 0, as running statistics differ between ranks."""
        for buffer in buffers if self.world > 1 else ():
            dist.broadcast(buffer, src=0)

    def _synchronise(self, model: nn.Module) -> None:
        """Synchronise batch normalisations; ranks then communicate inside the model."""
        # Ranks that talk inside the model's forward pass take these statistics there.
        alone = self.world == 1 or self._communicating_model
        found = None if alone else SynchronisedBatchNorm(model)
        if found is not None and found.modules:
            self._batch_norm = found
            self.agrees_on_errors = False
