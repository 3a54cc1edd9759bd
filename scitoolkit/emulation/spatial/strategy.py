"""Configuration of spatial parallel training, for fields too large for one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scitoolkit.core.lazy import load_name
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.strategies.config import StrategyConfig, SummedGradients

if TYPE_CHECKING:
    import torch


class SpatialParallel(SummedGradients):
    """Spatial parallelism: every process has a slab of all samples; halos are exchanged."""

    shares_batch: ClassVar[bool] = False
    name: Literal["spatial"] = "spatial"

    def build(self, device: torch.device) -> Any:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import joined

        # By name, to avoid a circular import of the configuration.
        slabs = load_name("scitoolkit.emulation.spatial.slab_training:SlabStrategy")
        return slabs(device) if joined() else SingleStrategy(device)


class EmulationTrainingConfig(TrainingConfig):
    """The `training:` section of an emulation, with the additional strategy `spatial`.

    Example:
        >>> EmulationTrainingConfig(strategy="spatial").strategy_on(3).shares_batch
        False
    """

    @classmethod
    def strategy_names(cls) -> list[str]:
        """Return the values of `strategy`."""
        return [*super().strategy_names(), "spatial"]

    @property
    def divides_fields(self) -> bool:
        """Whether processes divide the fields instead of the samples of a batch."""
        return self.strategy == "spatial"

    def named_strategy(self) -> StrategyConfig | None:
        """Return the configured strategy; None for `auto`."""
        return SpatialParallel() if self.divides_fields else super().named_strategy()
