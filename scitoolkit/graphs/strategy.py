"""Training strategy of graph jobs, in which each process holds a part of one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.strategies.config import Single, StrategyConfig, SummedGradients

if TYPE_CHECKING:
    import torch


class GraphParallel(SummedGradients):
    """Graph parallelism: each process holds a part of the graph, with communication in the model.

    The loss is the mean over this process's labelled nodes, weighted by their fraction of all
    labelled nodes. A process without labelled nodes has weight 0 and still joins every exchange.
    """

    shares_batch: ClassVar[bool] = False
    name: Literal["graph"] = "graph"

    def build(self, device: torch.device) -> Any:
        """Return the strategy of this process."""
        from scitoolkit.training.strategies.base import SingleStrategy
        from scitoolkit.training.strategies.data_parallel import DataParallelStrategy, joined

        if not joined():
            return SingleStrategy(device)
        return DataParallelStrategy(device, communicating_model=True)


class GraphTrainingConfig(TrainingConfig):
    """The `training:` section of a graph job, where `auto` means `graph`.

    Example:
        >>> GraphTrainingConfig().strategy_on(3).name
        'graph'
    """

    @classmethod
    def strategy_names(cls) -> list[str]:
        """Return the values of `strategy`."""
        return ["auto", "graph", "single"]

    def named_strategy(self) -> StrategyConfig:
        """Return the strategy."""
        return Single() if self.strategy == "single" else GraphParallel()
