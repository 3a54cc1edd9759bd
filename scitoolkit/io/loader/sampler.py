"""The plan's order for people who keep their own Dataset and DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.loader.agreement import process_of
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import Planner, Step
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner


class PlannedBatchSampler:
    """Lists of sample numbers for one rank: a `batch_sampler` of `torch.utils.data.DataLoader`.

    Every rank gets, of each global batch, the samples that it should still hold from before. A
    Dataset that keeps `capacity` samples, or a page cache of that size, then reads each of them
    once; `steps` tells a Dataset that wants to do it exactly which samples to keep and to drop.
    Unlike `DistributedSampler` it needs no padding, and batches do not depend on the world size.

    Args:
        num_samples: size of the set.
        batch_size: samples in a GLOBAL batch.
        seed: seed of the shuffling.
        capacity: samples that a rank keeps.
        units: the chunk of every sample, when a chunk is read as a whole.
        shuffle: permute the samples anew every epoch.
        drop_last: leave out a last batch that is not full. If it is kept, a rank for which
            nothing is left in it gets its first sample once more.
        rank: this process; None asks torch.distributed, if it runs.
        world_size: number of processes; must divide `batch_size`.

    Raises:
        ConfigError: settings that cannot be.

    Example:
        >>> samplers = [PlannedBatchSampler(8, 4, capacity=2, rank=r, world_size=2)
        ...             for r in range(2)]
        >>> batches = [sorted(a + b) for a, b in zip(*samplers)]
        >>> sorted(batches[0] + batches[1])
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    rank: int
    epoch: int

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int = 0,
        *,
        capacity: int = 0,
        units: np.ndarray | None = None,
        shuffle: bool = True,
        drop_last: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.rank, world_size = process_of(rank, world_size)
        if not 0 <= self.rank < world_size or batch_size % world_size:
            raise ConfigError(
                f"rank {self.rank} of {world_size}, global batch_size {batch_size}",
                allowed=f"a batch_size that is a multiple of {world_size}",
            )
        self.order: EpochOrder = EpochOrder(num_samples, batch_size, seed, shuffle, drop_last)
        self.planner: Planner = (
            SamplePlanner(self.order, capacity, world_size)
            if units is None
            else UnitPlanner(self.order, capacity, units, world_size)
        )
        self.epoch = 0
        self._held_for = 0

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.order.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Take the order of `epoch` from now on."""
        self.epoch = epoch

    def steps(self) -> Iterator[Step]:
        """Yield what this rank does in every step: samples, what to read, to drop, to keep."""
        if self.epoch != self._held_for:
            self.planner.reset()
        self._held_for = -1
        plan = self.planner.plan(self.epoch)
        self._held_for = self.epoch + 1
        yield from plan.steps(self.rank)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's samples of every batch."""
        for number, step in enumerate(self.steps()):
            samples = step.samples
            if not len(samples):
                samples = self.order.global_batch(self.epoch, number)[:1]
            yield samples.tolist()
