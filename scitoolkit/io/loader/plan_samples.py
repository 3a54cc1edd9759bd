"""Quota retention: planner for files in which every sample can be read separately.

Static pinning also attains the lower bound of reads, but ranks read unequal numbers of samples in
a step. Here every rank retains the same number of samples (its quota) in every step, chosen such
that every rank has the same number of hits in every step of the NEXT epoch: local batches and reads
are equal, and the bound is attained. Such a choice exists because the batches of two epochs form a
nearly regular bipartite graph that can be coloured with ranks. The greedy rule below, which serves
the (batch, rank) with the largest ratio of need to remaining supply, comes within a fraction of a
per cent of it. Cached samples may be retained again, so caches larger than half the set need no
special case.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import EpochPlan, Events, Planner, occurrence


class SamplePlanner(Planner):
    """Planner of reads of single samples; see `Planner` for the arguments.

    Example:
        >>> planner = SamplePlanner(EpochOrder(64, 8), capacity=16, num_ranks=2)
        >>> [int(planner.plan(epoch).loads().sum()) for epoch in range(3)]
        [64, 32, 32]
    """

    def __init__(self, order: EpochOrder, capacity: int, num_ranks: int = 1) -> None:
        super().__init__(order, capacity, num_ranks)
        self.quota_sum: np.ndarray = _spread(capacity, self.shares)

    def _sweep(self, samples: np.ndarray, upcoming: np.ndarray, start: int) -> _Sweep:
        return _Sweep(self, samples, upcoming, start)


class _Sweep:
    """Pass over the steps of an epoch; t is a step of the next epoch."""

    def __init__(
        self, planner: SamplePlanner, samples: np.ndarray, upcoming: np.ndarray, start: int
    ) -> None:
        self.planner, self.samples, self.start = planner, samples, start
        size, num_ranks = planner.order.batch_size, planner.num_ranks
        self.num_steps = planner.order.num_batches
        next_step = np.full(planner.order.num_samples, -1)
        next_step[upcoming] = np.arange(len(upcoming)) // size
        self.next_step = next_step[samples]
        self.held = planner.holder[samples]
        self.rank = self.held.copy()
        self.rank[: start * size] = -1
        self.keep = np.zeros(len(samples), bool)
        # The last row (t = -1) is for samples that the next epoch does not use; its need is 0.
        self.need = np.zeros((self.num_steps + 1, num_ranks))
        self.need[:-1] = np.diff(planner.quota_sum, axis=0)
        self.kept = np.zeros(num_ranks, np.int64)
        self.supply = self._supply(start * size)

    def _supply(self, first: int) -> np.ndarray:
        """Return the remaining supply of each (t, rank): its hits and a share of fresh samples."""
        num_ranks = self.planner.num_ranks
        held, following = self.held[first:], self.next_step[first:]
        recurring = following >= 0
        mine, fresh = recurring & (held >= 0), recurring & (held < 0)
        size = (self.num_steps + 1) * num_ranks
        flat = np.bincount(following[mine] * num_ranks + held[mine], minlength=size)
        shared = np.bincount(following[fresh], minlength=self.num_steps + 1)
        return flat.reshape(-1, num_ranks) + shared[:, None] / num_ranks

    def take(self, step: int) -> None:
        """Assign the samples of one global batch to ranks, and choose those to cache."""
        num_ranks, size = self.planner.num_ranks, self.planner.order.batch_size
        part = slice(step * size, min((step + 1) * size, len(self.samples)))
        rank, following = self.rank[part], self.next_step[part]
        fresh = rank < 0
        np.subtract.at(self.supply, (following[~fresh], rank[~fresh]), 1)
        np.subtract.at(self.supply, following[fresh], 1 / num_ranks)
        hits = [np.flatnonzero(rank == r) for r in range(num_ranks)]
        free = self.planner.shares[step] - [len(h) for h in hits]
        pool = np.flatnonzero(fresh)
        for turn in range(num_ranks):
            r = (step + turn) % num_ranks  # the first choice rotates between ranks
            chosen = self._choose(step, r, hits[r], pool, int(free[r]), following)
            self.keep[part][chosen] = True
            taken = chosen[fresh[chosen]]
            rank[taken] = r
            free[r] -= len(taken)
            pool = pool[rank[pool] < 0]
        rank[pool] = np.repeat(np.arange(num_ranks, dtype=np.int16), free)

    def _choose(
        self, step: int, r: int, hits: np.ndarray, pool: np.ndarray, free: int, t: np.ndarray
    ) -> np.ndarray:
        """Return the positions of the batch that rank `r` retains, by need over supply."""
        room = int(self.planner.quota_sum[step + 1, r] - self.kept[r])
        if room <= 0:
            return hits[:0]
        candidates = np.concatenate([hits, pool])
        following = t[candidates]
        # The need of later candidates for one t is reduced by the earlier candidates.
        need = self.need[following, r] - occurrence(following)
        urgency = need / (np.maximum(self.supply[following, r], 0) + 1)
        first = np.argsort(-urgency, kind="stable")
        first = first[need[first] > 0]
        is_fresh = first >= len(hits)
        first = first[~is_fresh | (np.cumsum(is_fresh) <= free)]
        first = first[:room]
        np.subtract.at(self.need, (following[first], r), 1)
        self.kept[r] += len(first)
        return candidates[first]

    def finish(self) -> EpochPlan:
        """Return the plan, and update the planner's contents of the caches."""
        begin = self.start * self.planner.order.batch_size
        active = np.arange(len(self.samples)) >= begin
        hit = (self.held >= 0) & active
        holder = np.full(self.planner.order.num_samples, -1, np.int16)
        holder[self.samples[self.keep]] = self.rank[self.keep]
        self.planner.holder = holder
        return EpochPlan(
            self.samples,
            self.rank,
            self.planner.order.batch_size,
            self.planner.num_ranks,
            reads=self._events(active & ~hit),
            adds=self._events(self.keep & ~hit),
            drops=self._events(hit & ~self.keep),
        )

    def _events(self, mask: np.ndarray) -> Events:
        at = np.flatnonzero(mask)
        return Events(
            at // self.planner.order.batch_size, self.rank[at].astype(np.int64), self.samples[at]
        )


def _spread(capacity: int, shares: np.ndarray) -> np.ndarray:
    """Return the cumulative quota of every step, (steps + 1, ranks) int64.

    A quota is the step's share of the cache. The cumulative sum is rounded instead of the quotas,
    so that the whole cache is used.
    """
    taken = np.concatenate([np.zeros((1, shares.shape[1]), np.int64), np.cumsum(shares, axis=0)])
    total = np.maximum(taken[-1], 1)
    return np.minimum(capacity, total) * taken // total
