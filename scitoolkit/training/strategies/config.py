"""Training strategies as config members, without importing torch.

Class attributes declare the properties of a strategy (`shards_parameters`, `shares_batch`, ...);
`build` creates the `TrainingStrategy` of this process.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Kind
from scitoolkit.training.exchange.config import ExchangeConfig, Full
from scitoolkit.training.requirements import TrainingPart
from scitoolkit.training.strategies.mesh.axes import MeshAxes

Precision = Literal["float32", "bf16"]

if TYPE_CHECKING:
    import torch

    from scitoolkit.training.strategies.base import TrainingStrategy


class StrategyConfig(TrainingPart):
    """Base class of strategy configurations.

    Attributes:
        shards_parameters: whether a process holds a shard of each parameter, which requires a
            `shardable` optimizer.
        shares_batch: whether each process takes an equal share of the global batch.
        single_process: whether it supports only one process.
        needs_process_group: whether it uses torch.distributed on one process as well.
        reads_at: the condition, in words, under which it reads one of its keys.
    """

    shards_parameters: ClassVar[bool] = False
    shares_batch: ClassVar[bool] = True
    single_process: ClassVar[bool] = False
    needs_process_group: ClassVar[bool] = False
    reads_at: ClassVar[Mapping[str, str]] = {}
    name: str

    @classmethod
    def optimizer_needs(cls) -> tuple[str, ...]:
        """Return the capabilities that the optimizer must have."""
        return ("shardable", *cls.needs) if cls.shards_parameters else cls.needs

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why a gradient exchange is not supported, or an empty string."""
        return "" if exchange == Full() else f"strategy {self.name} does not read exchange"

    def share_of_batch(self, rank: int, processes: int) -> tuple[int, int]:
        """Return which share of a batch a rank reads, and the number of shares.

        Raises:
            ConfigError: the strategy does not fit the number of processes.

        Example:
            >>> DataParallel().share_of_batch(1, 4)
            (1, 4)
        """
        return (rank, processes) if self.shares_batch else (0, 1)

    @property
    def joins_calls(self) -> bool:
        """Whether processes with other samples must call the model equally often."""
        return False

    @abstractmethod
    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process; requires the process group to be joined."""


training_strategies: Kind[type[StrategyConfig]] = Kind(
    "training strategy",
    "distributes a training over processes",
    contract="scitoolkit.testing:TrainingStrategyContract",
)


class Single(StrategyConfig):
    """One process."""

    single_process: ClassVar[bool] = True
    name: Literal["single"] = "single"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of a single process."""
        from scitoolkit.training.strategies.base import SingleStrategy

        return SingleStrategy(device)


class SummedGradients(StrategyConfig):
    """Base class of strategies in which every process gets the sums of all gradients."""

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why a gradient exchange is not supported, or an empty string."""
        fix = "it needs strategy sharded with sharding.stage 1 or 2"
        return "" if exchange.sums else f"exchange {exchange.name} gives no replicated sums: {fix}"


class DataParallel(SummedGradients):
    """Data parallelism: every process holds the model and a share of the batch."""

    name: Literal["ddp"] = "ddp"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import DataParallelStrategy, joined

        return DataParallelStrategy(device) if joined() else SingleStrategy(device)


class ShardingConfig(Config):
    """Sharding of `strategy: sharded` (ZeRO stages).

    Example:
        >>> ShardingConfig(stage=2).group_mib is None
        True
    """

    stage: Literal[1, 2, 3] = Field(
        default=3, description="1: optimizer state; 2: gradients as well; 3: parameters as well"
    )
    group_mib: PositiveFloat | None = Field(
        default=None, description="size of parameter groups at stage 3; 1/24 of the model"
    )
    offload: bool = Field(
        default=False, description="keep optimizer state and its parameters in CPU memory"
    )


class Sharded(StrategyConfig):
    """Optimizer state, gradients and parameters are sharded over processes (ZeRO 1, 2, 3)."""

    shards_parameters: ClassVar[bool] = True
    needs_process_group: ClassVar[bool] = True
    reads_at: ClassVar[Mapping[str, str]] = {"gather_precision": "at stage 3"}
    name: Literal["sharded"] = "sharded"
    sharding: ShardingConfig = ShardingConfig()
    gather_precision: Precision = "float32"

    @property
    def joins_calls(self) -> bool:
        """Whether a call of the model gathers its parameters from all processes."""
        return self.sharding.stage == 3

    def excludes(self) -> dict[str, str]:
        """Return the keys of `training:` that a stage does not support, with the reason."""
        if self.sharding.stage == 3:
            return {"pruning": "stage 3 divides whole parameters: choose sharding.stage 1 or 2"}
        return {"gather_precision": "it is only read by strategy sharded at stage 3"}

    def refusal(self, exchange: ExchangeConfig) -> str:
        """Return why a gradient exchange is not supported, or an empty string."""
        if self.sharding.stage == 3:
            fits = exchange == Full()
            return "" if fits else "sharding.stage 3 uses FSDP2's exchange: use stage 1 or 2"
        return "" if exchange.shards else f"exchange {exchange.name} does not support sharded sums"

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process.

        Raises:
            ConfigError: `offload` is set and the device is the CPU.
        """
        from scitoolkit.training.strategies.optimizer_shards import OptimizerShardsStrategy
        from scitoolkit.training.strategies.sharded import ShardedStrategy

        offload = self.sharding.offload
        if offload and device.type == "cpu":
            raise ConfigError(
                "offload on a training whose device is the CPU",
                where="training.sharding.offload",
                allowed="a GPU",
                fix="remove it",
            )
        if self.sharding.stage < 3:
            keeps = self.sharding.stage == 1
            return OptimizerShardsStrategy(device, keeps_buckets=keeps, offload=offload)
        bf16 = self.gather_precision == "bf16"
        return ShardedStrategy(device, self.sharding.group_mib, bf16=bf16, offload=offload)


class Mesh(StrategyConfig):
    """Pipeline stages, shares of the batch and parts of the products, each over processes."""

    needs: ClassVar[tuple[str, ...]] = ("elementwise",)
    shards_parameters: ClassVar[bool] = True
    name: Literal["mesh"] = "mesh"
    mesh: MeshAxes = MeshAxes()

    def excludes(self) -> dict[str, str]:
        """Return the keys of `training:` that read whole gradients, activations or parameters."""
        whole = "a process holds parts of the network"
        return dict.fromkeys(("precision", "compile", "memory", "pruning", "noise_scale"), whole)

    @property
    def joins_calls(self) -> bool:
        """Whether a call of the model exchanges parameters or rows over shares of the batch."""
        return self.mesh.expert * self.mesh.grid[2] > 1

    def share_of_batch(self, rank: int, processes: int) -> tuple[int, int]:
        """Return which share of a batch a rank reads: that of its place on the axes data and z.

        Example:
            >>> [Mesh(mesh={"tensor": 2}).share_of_batch(rank, 4)[0] for rank in range(4)]
            [0, 0, 1, 1]
        """
        x, y, z = self.mesh.grid
        shares = self.mesh.shares(processes)
        share, place = rank // (x * y * z) % shares, rank % z
        return share * z + place, shares * z

    def build(self, device: torch.device) -> TrainingStrategy:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import DataParallelStrategy, joined
        from scitoolkit.training.strategies.mesh.strategy import MeshStrategy

        if not joined():
            return SingleStrategy(device)
        if self.mesh.pipeline * self.mesh.expert * math.prod(self.mesh.grid) == 1:
            return DataParallelStrategy(device)
        return MeshStrategy(device, self.mesh)
