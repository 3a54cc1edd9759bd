"""What collectives cost between the arithmetic of a step: latency and bandwidth of each.

A collective that follows arithmetic waits for the rank that comes last, and with more processes
than cores for cores too. One that follows a barrier does not, so its latency says little of a step:
each is measured after arithmetic, whose own time is taken off, once short and once as long as a
step's. A step's collectives are in between, by the arithmetic that there is for each of them.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from scitoolkit.scaling.costs import Network, fitted, ring_counts
from scitoolkit.training.processes import gather_objects


@dataclass(frozen=True)
class AfterArithmetic:
    """Collectives after arithmetic of some seconds.

    Attributes:
        seconds: of the arithmetic.
        collectives: latency and bandwidth by name.
    """

    seconds: float
    collectives: dict[str, Network]


MESSAGE_BYTES = (64, 65536, 1 << 20, 4 << 20)
ROUNDS = 7


def networks(work: Callable[[], object]) -> dict[str, Network]:
    """Return latency and bandwidth by collective, "" for all of them together.

    Args:
        work: arithmetic of about a collective's share of a step.
    """
    points: dict[str, list[tuple[float, float, float]]] = {}
    for size in MESSAGE_BYTES:
        for name, (call, total) in _collectives(size).items():
            messages, moved = ring_counts(name, 1, total, dist.get_world_size())
            seconds = _seconds(work, call)
            if seconds > 0:  # else it is lost in the scatter of the arithmetic
                points.setdefault(name, []).append((messages, moved, seconds))
    points[""] = [point for each in points.values() for point in each] or [(1.0, 0.0, 1e-9)]
    return {name: fitted(each) for name, each in points.items()}


def _collectives(size: int) -> dict[str, tuple[Callable[[], object], float]]:
    """Return calls by the name under which they are counted, and the bytes of the whole tensor."""
    ranks = dist.get_world_size()
    count = -(-size // (4 * ranks)) * ranks
    x, y = torch.zeros(count), torch.zeros(count)
    share, parts = torch.zeros(count // ranks), list(y.view(ranks, -1))
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": functools.partial(dist.all_reduce, x),
        "all_gather": functools.partial(dist.all_gather, parts, share),
        "all_gather_single": functools.partial(dist.all_gather_single, y, share),
        "all_to_all_single": functools.partial(dist.all_to_all_single, y, x),
        "reduce_scatter_single": functools.partial(dist.reduce_scatter_single, share, x),
    }
    return {name: (call, 4.0 * count) for name, call in calls.items()}


def _seconds(work: Callable[[], object], call: Callable[[], object]) -> float:
    """Return the median over rounds of what a call takes after work, beyond the work's own time.

    Of each round the slowest rank's time counts, as a step ends with its slowest rank.
    """
    alone, both = [], []
    for _ in range(ROUNDS):
        alone.append(_elapsed(work))
        both.append(_elapsed(work, call))
    ranks = gather_objects((alone, both))
    slowest = [[max(each) for each in zip(*(r[i] for r in ranks), strict=True)] for i in (0, 1)]
    return statistics.median(b - a for a, b in zip(*slowest, strict=True))


def _elapsed(*calls: Callable[[], object]) -> float:
    started = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - started
