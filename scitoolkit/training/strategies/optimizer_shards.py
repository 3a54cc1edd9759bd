"""Data-parallel training with sharded optimizer state (ZeRO stages 1 and 2).

Every rank holds the model. Gradients are reduce-scattered, each rank updates its shard of the
parameters, and the shards are all-gathered.

Source: Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.deferred import tied
from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.exchange.shards import ShardBuckets
from scitoolkit.training.strategies.data_parallel import DataParallelStrategy


class OptimizerShardsStrategy(DataParallelStrategy):
    """Strategy with sharded optimizer state.

    Args:
        device: training device.
        keeps_buckets: keep the memory of all gradients between steps (stage 1), instead of freeing
            each bucket after it was sent (stage 2).
        offload: keep the shards and the optimizer's state in CPU memory.
    """

    holds_parts = True

    def __init__(self, device: torch.device, *, keeps_buckets: bool, offload: bool = False) -> None:
        super().__init__(device)
        self._offload = offload
        self._keeps_buckets = keeps_buckets
        self._precise: dict[str, nn.Parameter] = {}
        self._strides: dict[nn.Parameter, tuple[int, ...]] = {}

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Make all parameters contiguous until `restore`, because they are sharded by rows.

        Raises:
            ConfigError: two parameters share their memory, which the contiguous ones would not.
        """
        pair = tied(model, distinct=True)
        model = super().prepare(model, seed)
        strided = [p for p in model.parameters() if not p.is_contiguous()]
        if strided and pair:
            raise ConfigError(
                f"parameters {pair[0]} and {pair[1]} are in the same memory",
                where="training.sharding.stage",
                fix="one parameter for both, transposed where it is used",
            )
        self._strides = {p: p.stride() for p in strided}
        for parameter in strided:
            parameter.data = parameter.data.contiguous()
        return model

    def restore(self, model: nn.Module) -> nn.Module:
        """Give the parameters their strides again."""
        for parameter, strides in self._strides.items():
            values = parameter.data
            parameter.data = values.new_empty_strided(values.shape, strides).copy_(values)
        return super().restore(model)

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Return this rank's shards of the parameters, which the optimizer updates."""
        moves = exchange.build_shards()
        self._buckets = self._shards = ShardBuckets(
            named,
            moves,
            exchange.bucket_mib,
            keep=self._keeps_buckets,
            offload=self._offload,
            watch=watch,
        )
        parts = [(name, self._shards.parts[p]) for name, p in named]
        self._precise = dict(parts) if not moves.exact else {}
        return parts

    def reduce_gradients(self, failed: bool) -> bool:
        """Sum the gradients of this rank's shard, on a single rank as well."""
        self._check_end()
        return self._shards.finish(failed)

    def publish(self) -> None:
        """Gather the updated weights."""
        self._shards.publish()

    def tensors(self) -> dict[str, Tensor]:
        """Return the shards that are more precise than the model's weights, if any."""
        return {f"precise.{name}": part for name, part in self._precise.items()}
