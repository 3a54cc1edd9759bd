"""The plan of an epoch: who processes which sample, what is read, what stays in memory.

The order of the samples is known before the epoch begins, and so is that of the epoch after it.
A planner turns the two into an `EpochPlan` that every rank computes alike, without communication:
a sample goes to the rank that holds it, so the SET of every global batch stays what the order
says, and what a rank keeps is chosen by when it is needed next. A hit needs the sample to have
sat in a buffer across the boundary of two epochs, so no plan can read fewer than
`num_samples - capacity` samples an epoch; the order of the epochs themselves hardly matters.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scitoolkit.io.loader.order import EpochOrder


@dataclass(frozen=True)
class Events:
    """Things that happen in an epoch: `value[i]` at step `step[i]` on rank `rank[i]`.

    Args:
        step: steps in ascending order, shape (n,), int64.
        rank: ranks, shape (n,), int64.
        value: sample or unit numbers, shape (n,), int64.

    Example:
        >>> events = Events(np.array([0, 0, 2]), np.array([0, 1, 0]), np.array([7, 8, 9]))
        >>> [part.tolist() for part in events.by_step(rank=0, num_steps=3)]
        [[7], [], [9]]
    """

    step: np.ndarray
    rank: np.ndarray
    value: np.ndarray

    def by_step(self, rank: int, num_steps: int) -> list[np.ndarray]:
        """Return one rank's values of every step, an array for each step."""
        mine = self.rank == rank
        bounds = np.searchsorted(self.step[mine], np.arange(1, num_steps))
        return np.split(self.value[mine], bounds)

    def count(self, num_steps: int, num_ranks: int) -> np.ndarray:
        """Return the number of events, shape (num_steps, num_ranks), int64."""
        flat = np.bincount(self.step * num_ranks + self.rank, minlength=num_steps * num_ranks)
        return flat.reshape(num_steps, num_ranks)


@dataclass(frozen=True)
class Step:
    """What one rank does in one step: take `samples`, having read `reads`; then `drop`, `add`."""

    samples: np.ndarray
    reads: np.ndarray
    drop: np.ndarray
    add: np.ndarray


@dataclass(frozen=True)
class EpochPlan:
    """The plan of one epoch for all ranks.

    Args:
        samples: sample of every position of the epoch, shape (positions,), int64.
        rank: rank that processes it, -1 before the step that the plan starts at, int16.
        batch_size: positions in a global batch.
        num_ranks: number of ranks.
        reads: units read (a unit is a chunk's worth of samples, or one sample).
        adds: samples put into a buffer, after the step's batch was taken.
        drops: samples taken out of a buffer, after the step's batch was taken.
    """

    samples: np.ndarray
    rank: np.ndarray
    batch_size: int
    num_ranks: int
    reads: Events
    adds: Events
    drops: Events

    @property
    def num_steps(self) -> int:
        """Global batches in the epoch."""
        return -(-len(self.samples) // self.batch_size)

    def steps(self, rank: int, start: int = 0) -> Iterator[Step]:
        """Yield what `rank` does, from step `start` on; samples in the order of the epoch."""
        lists = [e.by_step(rank, self.num_steps) for e in (self.reads, self.drops, self.adds)]
        for step in range(start, self.num_steps):
            part = slice(step * self.batch_size, (step + 1) * self.batch_size)
            mine = self.samples[part][self.rank[part] == rank]
            yield Step(mine, *(values[step] for values in lists))

    def loads(self) -> np.ndarray:
        """Return the units read, shape (steps, ranks), int64."""
        return self.reads.count(self.num_steps, self.num_ranks)

    def digest(self) -> str:
        """Return a hash by which ranks can tell that they follow the same plan."""
        sha = hashlib.sha256(f"{self.batch_size} {self.num_ranks}".encode())
        sha.update(self.samples.astype("<i8").tobytes() + self.rank.astype("<i2").tobytes())
        for events in (self.reads, self.adds, self.drops):
            for array in (events.step, events.rank, events.value):
                sha.update(array.astype("<i8").tobytes())
        return sha.hexdigest()[:16]


class Planner(ABC):
    """Plans epoch after epoch, remembering what the buffers of all ranks hold in between.

    Args:
        order: the order of the samples of every epoch.
        capacity: samples that ONE rank's buffer holds.
        num_ranks: number of ranks.
    """

    holder: np.ndarray

    def __init__(self, order: EpochOrder, capacity: int, num_ranks: int = 1) -> None:
        self.order: EpochOrder = order
        self.capacity: int = capacity
        self.num_ranks: int = num_ranks
        self.shares: np.ndarray = batch_shares(order, num_ranks)
        self.reset()

    def reset(self) -> None:
        """Forget what the buffers hold: they are empty."""
        self.holder = np.full(self.order.num_samples, -1, np.int16)

    def plan(self, epoch: int, start: int = 0) -> EpochPlan:
        """Return the plan of `epoch` from step `start` on; the epoch after it should be next."""
        used = used_positions(self.order)
        samples = self.order.permutation(epoch)[:used]
        sweep = self._sweep(samples, self.order.permutation(epoch + 1)[:used], start)
        for step in range(start, self.order.num_batches):
            sweep.take(step)
        return sweep.finish()

    @abstractmethod
    def _sweep(self, samples: np.ndarray, upcoming: np.ndarray, start: int) -> EpochPass:
        """Return one pass over the steps of an epoch: samples of it, and of the one after it."""


class EpochPass(Protocol):
    """One pass over the steps of an epoch."""

    def take(self, step: int) -> None:
        """Assign the samples of one global batch to ranks, and choose what stays."""

    def finish(self) -> EpochPlan:
        """Return the plan, having told the planner what the buffers hold after it."""


def batch_shares(order: EpochOrder, num_ranks: int) -> np.ndarray:
    """Return how many samples every rank draws in every step, shape (steps, ranks), int64.

    Example:
        >>> batch_shares(EpochOrder(num_samples=7, batch_size=4), 2).tolist()
        [[2, 2], [2, 1]]
    """
    used = used_positions(order)
    sizes = np.full(order.num_batches, order.batch_size)
    sizes[-1] = used - order.batch_size * (order.num_batches - 1)
    share, extra = np.divmod(sizes, num_ranks)
    return share[:, None] + (np.arange(num_ranks) < extra[:, None])


def used_positions(order: EpochOrder) -> int:
    """Return the number of samples an epoch uses: all, but for a dropped last batch."""
    return min(order.num_samples, order.num_batches * order.batch_size)


def occurrence(values: np.ndarray) -> np.ndarray:
    """Return for each value how often it came before, shape (n,), int64.

    Example:
        >>> occurrence(np.array([5, 3, 5, 5])).tolist()
        [0, 0, 1, 2]
    """
    by_value = np.argsort(values, kind="stable")
    ordered = values[by_value]
    first = np.searchsorted(ordered, ordered, side="left")
    result = np.empty(len(values), np.int64)
    result[by_value] = np.arange(len(values)) - first
    return result
