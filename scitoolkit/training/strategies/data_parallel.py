"""Data-parallel training: every rank holds the model and a share of the batch.

Gradients are summed in buckets of a fixed order during the backward pass, see `exchange.buckets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.training.exchange.buckets import GradientBuckets, OrderedBuckets, Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.exchange.sums import BucketSum
from scitoolkit.training.strategies.base import TrainingStrategy
from scitoolkit.training.strategies.batch_norm import SynchronisedBatchNorm
from scitoolkit.training.strategies.exchange_order import END_OF_PASS, ExchangeOrder
from scitoolkit.training.strategies.in_place import copy_from_first, sum_over_ranks


def joined() -> bool:
    """Return whether this process is in a process group."""
    return dist.is_initialized()


def agreed(samples: int, digest: int, flags: Sequence[bool]) -> tuple[float, bool, list[bool]]:
    """Return the samples of all ranks, whether digests agree, and flags that any rank sets."""
    message = torch.tensor([samples, digest, digest**2, *flags], dtype=torch.float64)
    dist.all_reduce(message)
    total, digests, squares, *raised = message.tolist()
    # Only equal numbers x have P * sum(x^2) = sum(x)^2; the sums of these are exact.
    same = dist.get_world_size() * int(squares) == int(digests) ** 2
    return total, same, [number > 0 for number in raised]


class DataParallelStrategy(TrainingStrategy):
    """Data-parallel strategy.

    Args:
        device: training device.
        communicating_model: whether ranks communicate inside the model's forward pass.

    Attributes:
        holds_parts: whether this rank holds shards of the gradients.
    """

    agrees_on_errors: bool
    holds_parts: bool = False

    agrees_on_errors = True

    def __init__(self, device: torch.device, *, communicating_model: bool = False) -> None:
        super().__init__(device, dist.get_rank(), dist.get_world_size())
        self.agrees_on_errors = type(self).agrees_on_errors and not communicating_model
        self._communicating_model = communicating_model
        if communicating_model:
            self.seed_rank = 0  # random numbers that choose the model's path choose it on all ranks
        self._batch_norm: SynchronisedBatchNorm | None = None
        self._order: ExchangeOrder | None = None  # of exchanges inside the model
        self._buckets: OrderedBuckets | None = None
        self._sum: BucketSum | None = None

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Broadcast rank 0's weights and buffers; synchronise batch normalisation."""
        model = super().prepare(model, seed)
        for tensor in [*model.parameters(), *model.buffers()]:
            copy_from_first(tensor)
        self._synchronise(model)
        return model

    def restore(self, model: nn.Module) -> nn.Module:
        """Restore the forward methods of normalisations; remove the gradient hooks."""
        if self._buckets is not None:
            self._buckets.detach()
            for parameter in model.parameters():
                parameter.grad = None  # a view that would keep a whole bucket
        if self._batch_norm is not None:
            self._batch_norm.detach()
        return model

    def weigh(self, count: int) -> None:
        """Exclude fillers from the statistics of batch normalisations."""
        if self._batch_norm is not None:
            self._batch_norm.counts = count > 0

    def agree(self, samples: int, digest: int, *flags: bool) -> tuple[float, bool, list[bool]]:
        """Agree by one small all-reduce on the CPU."""
        return agreed(samples, digest, flags)

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Create the gradient buckets."""
        if self.world > 1:
            self._sum = exchange.build()
            parameters = [p for _, p in named]
            self._buckets = GradientBuckets(parameters, self._sum, exchange.bucket_mib, watch)
        return list(named)

    def begin_exchange(self) -> None:
        """Allow sending during the backward pass, unless ranks communicate inside the model."""
        if self._buckets is not None and self.agrees_on_errors:
            self._buckets.begin()

    def reduce_gradients(self, failed: bool) -> bool:
        """Finish the exchange; a parameter without gradient on this rank contributes zeros.

        The failure flag is sent with the gradients, so that a rank whose loss raised an error does
        not block the others, without another message.
        """
        if self.world == 1:
            return failed
        assert self._buckets is not None, "`attach` must come before the first step"
        self._check_end()
        return self._buckets.finish(failed)

    def measure_gradients(self) -> bool:
        """Enable the measurement, on several ranks with equal shares of the samples."""
        if isinstance(self._buckets, GradientBuckets) and not self._communicating_model:
            self._buckets.squares = (0.0, 0.0)
            return True
        return False

    def gradient_squares(self) -> tuple[float, float]:
        """Return the squared norms; this rank's mean gradient is P times its summand."""
        assert isinstance(self._buckets, GradientBuckets)
        assert self._buckets.squares is not None, "`measure_gradients` comes first"
        own, total = self._buckets.squares
        return self.world**2 * own, total

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the exchange."""
        return self._sum.state_dict() if self._sum is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the exchange."""
        if self._sum is not None and state:
            self._sum.load_state_dict(state)

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm over the shards of all ranks, or of the local gradients; 0 of none."""
        if not self.holds_parts:
            return super().norm(gradients)
        parts = [g for g in gradients if g.numel()]
        square = torch.zeros((), dtype=torch.float64)
        if parts:
            square = super().norm(parts).double() ** 2
        square = square.to(self.device)
        dist.all_reduce(square)
        return square.sqrt()

    def sum(self, values: list[float]) -> list[float]:
        """Sum over the ranks, in float64."""
        self._check_end()
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def total(self, tensor: Tensor) -> Tensor:
        """Sum in one all-reduce."""
        sum_over_ranks(tensor)
        return tensor

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Broadcast rank 0's buffers, because running statistics differ between ranks."""
        for buffer in buffers:
            copy_from_first(buffer)

    def _synchronise(self, model: nn.Module) -> None:
        """Synchronise batch normalisations, which communicate inside the model."""
        # Models that communicate in their forward pass compute the statistics themselves.
        alone = self.world == 1 or self._communicating_model
        fix = "a normalisation within samples (LayerNorm), or training.strategy=single"
        order = ExchangeOrder(fix)
        synchronised = None if alone else SynchronisedBatchNorm(model, order.check)
        if synchronised is not None and synchronised.modules:
            self._batch_norm, self._order = synchronised, order
            self.agrees_on_errors = False

    def _check_end(self) -> None:
        """Compare the end of a pass on all ranks: one may have called a layer more."""
        if self._order is not None:
            self._order.check(END_OF_PASS)
