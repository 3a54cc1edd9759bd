"""Batch sampler with planned order, for use with any torch Dataset and DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.loader.agreement import process_of
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import LoaderStep, Planner
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner


class PlannedBatchSampler:
    """Batch sampler of one rank, usable as `batch_sampler` of `torch.utils.data.DataLoader`.

    Of each global batch, a rank gets the samples that it should have cached. A Dataset that caches
    `capacity` samples, or a page cache of that size, then reads each of them once; `steps` gives
    the exact samples to retain and to drop. Unlike `DistributedSampler` it needs no padding, and
    global batches do not depend on the world size.

    Args:
        num_samples: size of the data set.
        batch_size: samples per GLOBAL batch.
        seed: of the shuffling.
        capacity: number of samples that a rank caches.
        units: chunk of every sample, if chunks are read as a whole.
        shuffle: whether to permute the samples in every epoch.
        drop_last: whether to drop an incomplete last batch. Otherwise a rank without samples in
            that batch gets the batch's first sample again.
        rank: this process; from torch.distributed by default.
        world_size: number of processes; must divide `batch_size`.

    Raises:
        ConfigError: invalid settings.

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
        """Return the number of batches per epoch."""
        return self.order.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def steps(self) -> Iterator[LoaderStep]:
        """Yield this rank's work in every step: samples, reads, and samples to drop and add."""
        if self.epoch != self._held_for:
            self.planner.reset()
        # A plan that fails leaves the planner between two epochs, from which no epoch can continue.
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
