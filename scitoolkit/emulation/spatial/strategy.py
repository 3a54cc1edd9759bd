"""The training strategy of fields that are too large for one process: each holds a slab of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scitoolkit.core.lazy import load_name
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.strategies.config import StrategyConfig, SummedGradients

if TYPE_CHECKING:
    import torch


class SpatialParallel(SummedGradients):
    """Every process holds a slab of all samples of the batch; they talk inside the model."""

    shares_batch: ClassVar[bool] = False
    name: Literal["spatial"] = "spatial"

    def build(self, device: torch.device) -> Any:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import joined

        # By name: it builds on the configuration, which this section is a part of.
        slabs = load_name("scitoolkit.emulation.spatial.slab_training:SlabStrategy")
        return slabs(device) if joined() else SingleStrategy(device)


class EmulationTrainingConfig(TrainingConfig):
    """The `training:` section of an emulation: `strategy` may be `spatial` too.

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
        """Whether processes hold slabs of the fields instead of samples of the batch."""
        return self.strategy == "spatial"

    def named_strategy(self) -> StrategyConfig | None:
        """Return the strategy that is written, None for `auto`."""
        return SpatialParallel() if self.divides_fields else super().named_strategy()
