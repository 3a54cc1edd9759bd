"""Plans of epochs: assignment of samples to ranks, reads, and contents of the caches.

The orders of an epoch and of the next one are known in advance. A planner derives from them an
`EpochPlan`, which every rank computes identically without communication. A cached sample is
processed by the rank that caches it, without changing the SET of samples of a global batch, and
samples are retained according to their next use. A cache hit requires that the sample stays cached
across the boundary of two epochs, so every plan reads at least `num_samples - capacity` samples per
epoch, almost independently of the orders.
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
    """Events of an epoch: `value[i]` at step `step[i]` on rank `rank[i]`.

    Args:
        step: (n,) int64, ascending.
        rank: (n,) int64.
        value: (n,) int64, numbers of samples or units.

    Example:
        >>> events = Events(np.array([0, 0, 2]), np.array([0, 1, 0]), np.array([7, 8, 9]))
        >>> [part.tolist() for part in events.by_step(rank=0, num_steps=3)]
        [[7], [], [9]]
    """

    step: np.ndarray
    rank: np.ndarray
    value: np.ndarray

    def by_step(self, rank: int, num_steps: int) -> list[np.ndarray]:
        """Return the values of one rank as an array for each step."""
        mine = self.rank == rank
        bounds = np.searchsorted(self.step[mine], np.arange(1, num_steps))
        return np.split(self.value[mine], bounds)

    def count(self, num_steps: int, num_ranks: int) -> np.ndarray:
        """Return the number of events, (num_steps, num_ranks) int64."""
        flat = np.bincount(self.step * num_ranks + self.rank, minlength=num_steps * num_ranks)
        return flat.reshape(num_steps, num_ranks)


@dataclass(frozen=True)
class LoaderStep:
    """One rank's work in a step: read `reads`, process `samples`, then `drop` and `add` samples."""

    samples: np.ndarray
    reads: np.ndarray
    drop: np.ndarray
    add: np.ndarray


@dataclass(frozen=True)
class EpochPlan:
    """Plan of one epoch for all ranks.

    Args:
        samples: (positions,) int64, sample at every position of the epoch.
        rank: (positions,) int16, rank that processes it; -1 before the first step of the plan.
        batch_size: positions per global batch.
        num_ranks: number of ranks.
        reads: units that are read; a unit is the samples of a chunk, or one sample.
        adds: samples added to a cache after the batch of the step.
        drops: samples removed from a cache after the batch of the step.
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
        """Number of global batches in the epoch."""
        return -(-len(self.samples) // self.batch_size)

    def steps(self, rank: int, start: int = 0) -> Iterator[LoaderStep]:
        """Yield the work of `rank` from step `start` on, with samples in the order of the epoch."""
        lists = [e.by_step(rank, self.num_steps) for e in (self.reads, self.drops, self.adds)]
        for step in range(start, self.num_steps):
            part = slice(step * self.batch_size, (step + 1) * self.batch_size)
            mine = self.samples[part][self.rank[part] == rank]
            yield LoaderStep(mine, *(values[step] for values in lists))

    def loads(self) -> np.ndarray:
        """Return the number of units read, (steps, ranks) int64."""
        return self.reads.count(self.num_steps, self.num_ranks)

    def digest(self) -> str:
        """Return a hash of the plan, for comparison between ranks."""
        sha = hashlib.sha256(f"{self.batch_size} {self.num_ranks}".encode())
        # Fixed widths and byte order, so that ranks on unlike machines have equal hashes.
        sha.update(self.samples.astype("<i8").tobytes() + self.rank.astype("<i2").tobytes())
        for events in (self.reads, self.adds, self.drops):
            for array in (events.step, events.rank, events.value):
                sha.update(array.astype("<i8").tobytes())
        return sha.hexdigest()[:16]


class Planner(ABC):
    """Base of planners, which plan epoch after epoch with the contents of all ranks' caches.

    Args:
        order: of the samples of every epoch.
        capacity: number of samples in the cache of ONE rank.
        num_ranks: number of ranks.

    Attributes:
        holder: (num_samples,) int16, rank that caches each sample, or -1.
        shares: see `batch_shares`.
    """

    holder: np.ndarray

    def __init__(self, order: EpochOrder, capacity: int, num_ranks: int = 1) -> None:
        self.order: EpochOrder = order
        self.capacity: int = capacity
        self.num_ranks: int = num_ranks
        self.shares: np.ndarray = batch_shares(order, num_ranks)
        self.reset()

    def reset(self) -> None:
        """Reset to empty caches."""
        self.holder = np.full(self.order.num_samples, -1, np.int16)

    def plan(self, epoch: int, start: int = 0) -> EpochPlan:
        """Return the plan of `epoch` from step `start` on; `epoch` + 1 should be planned next."""
        used = used_positions(self.order)
        samples = self.order.permutation(epoch)[:used]
        # Which samples are worth caching depends on how soon the next epoch uses them.
        sweep = self._sweep(samples, self.order.permutation(epoch + 1)[:used], start)
        for step in range(start, self.order.num_batches):
            sweep.take(step)
        return sweep.finish()

    @abstractmethod
    def _sweep(self, samples: np.ndarray, upcoming: np.ndarray, start: int) -> EpochPass:
        """Return a pass over an epoch, given the samples of it and of the next one in order."""


class EpochPass(Protocol):
    """Pass over the steps of an epoch."""

    def take(self, step: int) -> None:
        """Assign the samples of one global batch to ranks, and choose those to cache."""

    def finish(self) -> EpochPlan:
        """Return the plan, and update the planner's contents of the caches."""


def batch_shares(order: EpochOrder, num_ranks: int) -> np.ndarray:
    """Return the number of samples of every rank in every step, (steps, ranks) int64.

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
    """Return the number of samples used in an epoch: all except those of a dropped last batch."""
    return min(order.num_samples, order.num_batches * order.batch_size)


def occurrence(values: np.ndarray) -> np.ndarray:
    """Return for each value the number of earlier occurrences, (n,) int64.

    Example:
        >>> occurrence(np.array([5, 3, 5, 5])).tolist()
        [0, 0, 1, 2]
    """
    by_value = np.argsort(values, kind="stable")
    ordered = values[by_value]
    # A stable sort keeps the order of equal values: their places count on from that of the first.
    first = np.searchsorted(ordered, ordered, side="left")
    result = np.empty(len(values), np.int64)
    result[by_value] = np.arange(len(values)) - first
    return result
