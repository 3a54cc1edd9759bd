"""Data-parallel training whose ranks each hold a part of the optimizer's state (ZeRO 1 and 2).

Every rank holds the model; after the backward pass each gets the sums of its part of the gradients,
steps that part, and the parts are gathered.

Source: Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.exchange.shards import ShardBuckets
from scitoolkit.training.strategies.data_parallel import DataParallelStrategy


class OptimizerShardsStrategy(DataParallelStrategy):
    """Every rank holds the model and a part of the optimizer's state.

    Args:
        device: where to train.
        keeps_buckets: keep memory for all gradients between steps (stage 1), instead of giving a
            bucket's back when it was sent (stage 2).
        offload: keep the parts and the optimizer's state in the memory of the CPU.
    """

    holds_parts = True

    def __init__(self, device: torch.device, *, keeps_buckets: bool, offload: bool = False) -> None:
        super().__init__(device)
        self._offload = offload
        self._keeps_buckets = keeps_buckets
        self._precise: dict[str, nn.Parameter] = {}

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Return this rank's parts of the parameters, which the optimizer changes."""
        moves = exchange.build_shards()
        self._buckets = self._shards = ShardBuckets(
            named, moves, exchange.bucket_mib, keep=self._keeps_buckets, offload=self._offload,
            watch=watch,
        )  # fmt: skip
        parts = [(name, self._shards.parts[p]) for name, p in named]
        self._precise = dict(parts) if not moves.exact else {}
        return parts

    def reduce_gradients(self, failed: bool) -> bool:
        """Sum the gradients of this rank's part, on a lone rank as well."""
        return self._shards.finish(failed)

    def publish(self) -> None:
        """Gather the weights that the ranks have changed."""
        self._shards.publish()

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights that are more precise than the model's, if there are any."""
        return {f"precise.{name}": part for name, part in self._precise.items()}
