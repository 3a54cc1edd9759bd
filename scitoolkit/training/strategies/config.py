"""Training strategies as config members: capabilities and construction, without importing torch.

A member says what it asks of a training (`shards_parameters`, `shares_batch`, ...); `build` makes
the `TrainingStrategy` of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Kind
from scitoolkit.training.exchange.config import ExchangeConfig, Full

Precision = Literal["float32", "bf16"]

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
    """

    shards_parameters: ClassVar[bool] = False
    shares_batch: ClassVar[bool] = True
    single_process: ClassVar[bool] = False
    needs_process_group: ClassVar[bool] = False
    name: str

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why an exchange of gradients does not fit, or an empty text."""
        return "" if exchange == Full() else f"strategy {self.name} does not read exchange"

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


class SummedGradients(StrategyConfig):
    """Base of the strategies whose processes all get the sums of all gradients."""

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why an exchange of gradients does not fit, or an empty text."""
        fix = "it needs strategy sharded with sharding.stage 1 or 2"
        return "" if exchange.sums else f"exchange {exchange.name} gives no whole sums: {fix}"


class DataParallel(SummedGradients):
    """Every process holds the model and a share of the batch; gradients are summed."""

    name: Literal["ddp"] = "ddp"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import DataParallelStrategy, joined

        return DataParallelStrategy(device) if joined() else SingleStrategy(device)


class ShardingConfig(Config):
    """What the processes of `strategy: sharded` split (ZeRO).

    Example:
        >>> ShardingConfig(stage=2).group_mib is None
        True
    """

    stage: Literal[1, 2, 3] = Field(
        default=3, description="1: optimizer state; 2: gradients as well; 3: parameters as well"
    )
    group_mib: PositiveFloat | None = Field(
        default=None, description="parameters gathered together at stage 3; 1/24 of the model"
    )
    offload: bool = Field(
        default=False, description="keep what the optimizer reads and changes in the CPU's memory"
    )


class Sharded(StrategyConfig):
    """Optimizer state, gradients and parameters are split over the processes (ZeRO 1, 2, 3)."""

    shards_parameters: ClassVar[bool] = True
    needs_process_group: ClassVar[bool] = True
    name: Literal["sharded"] = "sharded"
    sharding: ShardingConfig = ShardingConfig()
    gather_precision: Precision = "float32"

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why an exchange does not fit, or an empty text."""
        if self.sharding.stage == 3:
            fits = exchange == Full()
            return "" if fits else "sharding.stage 3 has FSDP2's exchange: use stage 1 or 2"
        return "" if exchange.shards else f"exchange {exchange.name} gives no parts of sums"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process.

        Raises:
            ConfigError: there is nothing to offload from.
        """
        from scitoolkit.training.strategies.optimizer_shards import OptimizerShardsStrategy
        from scitoolkit.training.strategies.sharded import ShardedStrategy

        offload = self.sharding.offload
        if offload and device.type == "cpu":
            raise ConfigError(
                "offload on a training whose device is the CPU",
                where="training.sharding.offload", allowed="a GPU", fix="leave it out",
            )  # fmt: skip
        if self.sharding.stage < 3:
            keeps = self.sharding.stage == 1
            return OptimizerShardsStrategy(device, keeps_buckets=keeps, offload=offload)
        bf16 = self.gather_precision == "bf16"
        return ShardedStrategy(device, self.sharding.group_mib, bf16=bf16, offload=offload)
