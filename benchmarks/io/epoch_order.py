"""Gain from reordering whole epochs: a search for the best order, compared with the random order.

SOLAR (Sun et al., PVLDB 16(1), 2022) permutes the epochs of a run so that the buffer's contents at
the end of one epoch are needed at the start of the next. Random orders overlap by little more than
chance, so the possible gain is small. The search here is greedy from every start, then improved by
moving single epochs until nothing gains any more: at least as good as a particle swarm.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.io.loader.order import EpochOrder

SETS = {16384: 20, 87632: 20}
BUFFERS = (0.10, 0.25, 0.50)


def run() -> dict:
    """Return the loads saved, in per cent of an epoch's samples, by size of set and buffer."""
    saved = {
        f"{samples}_{int(part * 100)}": 100 * saving(samples, epochs, part)
        for samples, epochs in SETS.items()
        for part in BUFFERS
    }
    large = [value for name, value in saved.items() if name.startswith("87632")]
    return {"saved_percent": saved, "saved_percent_max_87632": max(large)}


def saving(samples: int, epochs: int, part: float) -> float:
    """Return the mean share of samples that need not be loaded thanks to the best order found."""
    order = EpochOrder(samples, 32)
    permutations = [order.permutation(epoch) for epoch in range(epochs)]
    capacity = int(part * samples)
    cost = np.zeros((epochs, epochs))
    for i, last in enumerate(permutations):
        held = np.zeros(samples, bool)
        held[last[-capacity:]] = True
        cost[i] = [capacity - held[first[:capacity]].sum() for first in permutations]
    best = min(
        (improved(greedy(cost, start), cost) for start in range(epochs)),
        key=lambda path: length(path, cost),
    )
    drawn = list(range(epochs))
    return float(length(drawn, cost) - length(best, cost)) / (epochs - 1) / samples


def length(path: list[int], cost: np.ndarray) -> float:
    return float(cost[path[:-1], path[1:]].sum())


def greedy(cost: np.ndarray, start: int) -> list[int]:
    path, left = [start], set(range(len(cost))) - {start}
    while left:
        path.append(min(left, key=lambda j: cost[path[-1], j]))
        left.remove(path[-1])
    return path


def improved(path: list[int], cost: np.ndarray) -> list[int]:
    """Move single epochs to better places until there is none."""
    best = length(path, cost)
    while True:
        for i in range(len(path)):
            rest = path[:i] + path[i + 1 :]
            moved = [[*rest[:j], path[i], *rest[j:]] for j in range(len(path))]
            candidate = min(moved, key=lambda p: length(p, cost))
            if length(candidate, cost) < best:
                path, best = candidate, length(candidate, cost)
                break
        else:
            return path
