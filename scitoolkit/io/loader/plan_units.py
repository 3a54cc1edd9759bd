"""Planner for chunked files, in which one read returns all samples of a chunk.

Reading single samples at random from chunks of k samples reads k times the bytes. With the order
known in advance, the planner caches the samples that are used next and evicts those that are used
last, whichever chunk they are from (Belady's rule over samples instead of chunks). A cache of a
quarter of the set reduces sixteen-fold reading to about two-fold, with exactly the batches of the
order.

With several ranks, a cached sample is processed by the rank that caches it, a chunk is read by a
rank with enough free places in the step, and no rank caches more samples for one future step than
its share, so that local batches are equal. Over an epoch, a rank's reads exceed the mean by a few
per cent, and by up to 20 % with half the set in memory; single steps differ more, which read-ahead
compensates. Balancing reads in every step costs more reads than it saves waiting.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import EpochPlan, Events, Planner, occurrence

_SCAN = 4096


class UnitPlanner(Planner):
    """Planner of reads of units, the groups of samples that are read together.

    Args:
        order: of the samples of every epoch.
        capacity: number of samples in the cache of ONE rank.
        units: (num_samples,) int, unit of every sample, numbered from 0.
        num_ranks: number of ranks.

    Example:
        >>> planner = UnitPlanner(EpochOrder(64, 8), capacity=32, units=np.arange(64) // 4)
        >>> planner.plan(0).loads().sum() < 64  # each by itself would read 64 units
        np.True_
    """

    def __init__(
        self, order: EpochOrder, capacity: int, units: np.ndarray, num_ranks: int = 1
    ) -> None:
        self.units: np.ndarray = np.asarray(units, np.int64)
        self.by_unit: np.ndarray = np.argsort(self.units, kind="stable")
        self.bounds: np.ndarray = np.concatenate([[0], np.cumsum(np.bincount(self.units))])
        super().__init__(order, capacity, num_ranks)

    def members(self, units: np.ndarray) -> np.ndarray:
        """Return the samples of units, unit by unit."""
        counts = self.bounds[units + 1] - self.bounds[units]
        before = np.cumsum(counts) - counts
        at = np.repeat(self.bounds[units] - before, counts) + np.arange(counts.sum())
        return self.by_unit[at]

    def _sweep(self, samples: np.ndarray, upcoming: np.ndarray, start: int) -> _UnitSweep:
        return _UnitSweep(self, samples, upcoming, start)


class _UnitSweep:
    """Pass over the steps of an epoch.

    A "use" is a position in the concatenation of this epoch and the next, 0 ... 2 * used - 1. A
    cached sample is identified by the position of its next use.
    """

    def __init__(
        self, planner: UnitPlanner, samples: np.ndarray, upcoming: np.ndarray, start: int
    ) -> None:
        self.planner, self.samples = planner, samples
        self.used, self.size = len(samples), planner.order.batch_size
        self.uses = np.concatenate([samples, upcoming])
        self.first = np.full(planner.order.num_samples, -1)
        self.first[samples] = np.arange(self.used)
        self.second = np.full(planner.order.num_samples, -1)
        self.second[upcoming] = np.arange(self.used, 2 * self.used)
        self.rank = np.full(self.used, -1, np.int16)
        self.holder = planner.holder
        num_ranks = planner.num_ranks
        self.held = np.zeros((num_ranks, 2 * self.used), bool)
        at = np.flatnonzero(self.holder[samples] >= 0)
        self.held[self.holder[samples[at]], at] = True
        self.num_held = np.bincount(self.holder[samples[at]], minlength=num_ranks)
        # Upper limit (exclusive) of the cached uses.
        self.end = np.full(num_ranks, self.used)
        self.load = np.zeros((2 * planner.order.num_batches, num_ranks), np.int64)
        np.add.at(self.load, (at // self.size, self.holder[samples[at]]), 1)
        self.limit = np.concatenate([planner.shares, planner.shares])
        self.num_reads = np.zeros(num_ranks, np.int64)
        self.reads, self.adds, self.drops = _Log(), _Log(), _Log()

    def take(self, step: int) -> None:
        """Assign one global batch to ranks, and choose the reads and the samples to cache."""
        begin = step * self.size
        batch = self.samples[begin : begin + self.size]
        rank = self.holder[batch].copy()
        reads = self._assign(step, batch, rank)
        self.rank[begin : begin + len(batch)] = rank
        before = self.holder[batch]
        at = np.flatnonzero(before >= 0)
        self.held[before[at], begin + at] = False
        self.num_held -= np.bincount(before[at], minlength=self.planner.num_ranks)
        # The samples of the batch are used now; `_keep` may cache them again for their next use.
        self.holder[batch] = -1
        for r in range(self.planner.num_ranks):
            self._keep(step, r, batch[rank == r], batch, reads[r])
        gone = at[self.holder[batch[at]] != before[at]]
        for r in np.unique(before[gone]):
            self.drops.put(step, int(r), batch[gone[before[gone] == r]])

    def _assign(self, step: int, batch: np.ndarray, rank: np.ndarray) -> list[np.ndarray]:
        """Assign the samples that are not cached to ranks by unit; return each rank's reads."""
        num_ranks, units = self.planner.num_ranks, self.planner.units[batch]
        missing = np.flatnonzero(rank < 0)
        if num_ranks == 1:
            rank[missing] = 0
        else:
            free = self.planner.shares[step] - np.bincount(rank[rank >= 0], minlength=num_ranks)
            missing = missing[np.argsort(units[missing], kind="stable")]
            groups = np.split(missing, np.flatnonzero(np.diff(units[missing])) + 1)
            for group in sorted(groups, key=len, reverse=True):
                while len(group):  # a group larger than any rank's free places is read by several
                    # A read for many samples goes to the rank with the most reads so far, and
                    # reads for few samples remain for the others.
                    fits = np.flatnonzero(free >= len(group))
                    if len(fits):
                        r = int(fits[np.argmax(self.num_reads[fits])])
                    else:
                        r = int(np.argmax(free))
                    self.num_reads[r] += 1
                    rank[group[: free[r]]] = r
                    group, free[r] = group[free[r] :], max(0, free[r] - len(group))
        reads = []
        for r in range(num_ranks):
            mine = np.unique(units[missing[rank[missing] == r]])
            self.reads.put(step, r, mine)
            reads.append(mine)
        return reads

    def _keep(
        self, step: int, r: int, mine: np.ndarray, batch: np.ndarray, units: np.ndarray
    ) -> None:
        """Cache on rank `r`, of its cached and its current samples, those that are used next."""
        uses = self._candidates(step, mine, batch, units)
        if self.planner.num_ranks > 1:
            # A sample is processed by the rank that caches it: a rank caches no more samples of a
            # step than its share of that step.
            steps = self._step_of(uses)
            uses = uses[occurrence(steps) + self.load[steps, r] < self.limit[steps, r]]
        self.held[r, uses] = True
        self.num_held[r] += len(uses)
        if len(uses):
            self.end[r] = max(self.end[r], uses[-1] + 1)
        out = self._evict(r, int(self.num_held[r]) - self.planner.capacity)
        cached = uses[self.held[r, uses]]
        self.holder[self.uses[cached]] = r
        # Only evicted samples that were cached before this step are dropped.
        evicted = self.uses[np.setdiff1d(out, uses, assume_unique=True)]
        self.holder[evicted] = -1
        self.drops.put(step, r, evicted)
        self.adds.put(step, r, self.uses[cached])
        if self.planner.num_ranks > 1:
            np.add.at(self.load[:, r], self._step_of(cached), 1)
            gone = self._step_of(np.setdiff1d(out, uses, assume_unique=True))
            np.subtract.at(self.load[:, r], gone, 1)

    def _candidates(
        self, step: int, mine: np.ndarray, batch: np.ndarray, units: np.ndarray
    ) -> np.ndarray:
        """Return the next uses, ascending, of the rank's current samples that are not cached."""
        seen = self.planner.members(units)
        seen = seen[self.holder[seen] < 0]
        end = min((step + 1) * self.size, self.used)
        later = self.first[seen]
        # A sample processed by another rank in this step can only be cached there.
        in_batch = (later >= step * self.size) & (later < end)
        seen = np.concatenate([mine, seen[~in_batch]])
        later = self.first[seen]
        uses = np.where(later >= end, later, self.second[seen])
        return np.sort(uses[uses >= 0])

    def _step_of(self, uses: np.ndarray) -> np.ndarray:
        second = uses >= self.used
        num_batches = self.planner.order.num_batches
        return np.where(second, num_batches + (uses - self.used) // self.size, uses // self.size)

    def _evict(self, r: int, count: int) -> np.ndarray:
        """Evict the `count` latest uses and return them."""
        parts = [np.empty(0, np.int64)]
        while count > 0:
            begin = max(0, int(self.end[r]) - _SCAN)
            occupied = begin + np.flatnonzero(self.held[r, begin : self.end[r]])
            out = occupied[-count:]
            self.held[r, out] = False
            self.num_held[r] -= len(out)
            count -= len(out)
            self.end[r] = out[0] if count == 0 else begin
            parts.append(out)
        return np.concatenate(parts)

    def finish(self) -> EpochPlan:
        """Return the plan."""
        return EpochPlan(
            self.samples,
            self.rank,
            self.size,
            self.planner.num_ranks,
            reads=self.reads.events(),
            adds=self.adds.events(),
            drops=self.drops.events(),
        )


class _Log:
    """Events collected step by step."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, np.ndarray]] = []

    def put(self, step: int, rank: int, values: np.ndarray) -> None:
        if len(values):
            self.entries.append((step, rank, values))

    def events(self) -> Events:
        lengths = [len(values) for _, _, values in self.entries]
        empty = [np.empty(0, np.int64)]
        return Events(
            np.repeat(np.array([s for s, _, _ in self.entries], np.int64), lengths),
            np.repeat(np.array([r for _, r, _ in self.entries], np.int64), lengths),
            np.concatenate(empty + [values for _, _, values in self.entries]),
        )
