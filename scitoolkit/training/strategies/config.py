"""Training strategies as config members: capabilities and construction, without importing torch.

A member says what it asks of a training (`shards_parameters`, `shares_batch`, ...); `build` makes
the `TrainingStrategy` of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind

if TYPE_CHECKING:
    import torch

    from scitoolkit.training.strategies.base import TrainingStrategy


class StrategyConfig(Config):
    """Base of the training strategies.

    Attributes:
        shards_parameters: a process holds a part of each parameter, so that an optimizer needs
            the capability `shardable`.
        shares_batch: each process takes an equal share of the global batch.
        single_process: works on one process only.
        needs_process_group: uses torch.distributed on one process as well.
        exchanges_gradients: sums gradients by `training.exchange`.
    """

    shards_parameters: ClassVar[bool] = False
    shares_batch: ClassVar[bool] = True
    single_process: ClassVar[bool] = False
    needs_process_group: ClassVar[bool] = False
    exchanges_gradients: ClassVar[bool] = False
    name: str

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process; the process group must have been joined."""
        raise NotImplementedError


training_strategies: Kind[type[StrategyConfig]] = Kind(
    "training strategy", "divides a training among processes"
)


class Single(StrategyConfig):
    """One process."""

    single_process: ClassVar[bool] = True
    name: Literal["single"] = "single"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of a lone process."""
        from scitoolkit.training.strategies.base import SingleStrategy

        return SingleStrategy(device)


class DataParallel(StrategyConfig):
    """Every process holds the model and a share of the batch; gradients are summed."""

    exchanges_gradients: ClassVar[bool] = True
    name: Literal["ddp"] = "ddp"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import DataParallelStrategy, joined

        return DataParallelStrategy(device) if joined() else SingleStrategy(device)


class Sharded(StrategyConfig):
    """Parameters, gradients and optimizer state are split over the processes (ZeRO, by FSDP2)."""

    shards_parameters: ClassVar[bool] = True
    needs_process_group: ClassVar[bool] = True
    name: Literal["sharded"] = "sharded"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.sharded import ShardedStrategy

        return ShardedStrategy(device)
