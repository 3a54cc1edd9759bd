"""Spatial parallel training: slabs of the same batch, summed gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.normalized_network import NormalizedNetwork
from scitoolkit.emulation.spatial.distribute import distribute, divided_dim
from scitoolkit.emulation.variables import Layout
from scitoolkit.training.ranks.communicator import Communicator, join
from scitoolkit.training.strategies.data_parallel import DataParallelStrategy
from scitoolkit.training.strategies.in_place import copy_from_first


class SlabStrategy(DataParallelStrategy):
    """Training strategy of processes that hold slabs of the same samples.

    Args:
        device: where to train.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, communicating_model=True)
        self.seed_rank = 0  # all processes draw the same symmetries and rollout lengths

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Broadcast the weights of rank 0, without buffers that belong to its slab."""
        model = model.to(self.device)
        for tensor in model.state_dict().values():
            copy_from_first(tensor)
        for module in model.modules():
            if isinstance(module, NormalizedNetwork):
                module.position = module.position.to(self.device)
        return model

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Do nothing, as buffers belong to slabs or are constant."""


class Slab:
    """The slab of a job's fields of this process.

    Args:
        config: the job.
        layout: of the whole fields.
        ranks: the processes; by default those of the job.
    """

    def __init__(
        self, config: EmulationConfig, layout: Layout, ranks: Communicator | None = None
    ) -> None:
        self.config = config
        self.ranks: Communicator = ranks or join()
        self.dim: str = divided_dim(config, layout, self.ranks.size)
        self.num_dims: int = len(layout.grid)
        self.axis: int = list(layout.grid).index(self.dim)
        cells = layout.grid[self.dim] // self.ranks.size
        self.cells: slice = slice(self.ranks.rank * cells, (self.ranks.rank + 1) * cells)

    def emulator(self, whole: Emulator) -> Emulator:
        """Return the emulator of the slab with the weights of the whole one."""
        return distribute(whole, self.config, self.ranks, self.dim)

    def on_grid(self, values: Tensor) -> Tensor:
        """Return the slab of a tensor whose last dims are those of the grid."""
        axis = values.ndim - self.num_dims + self.axis
        return values.narrow(axis, self.cells.start, self.cells.stop - self.cells.start)
