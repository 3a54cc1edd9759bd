"""Latency and bandwidth of collectives, measured between the arithmetic of a step.

A collective after arithmetic waits for the slowest rank, and for cores if there are more processes
than cores. Its latency directly after a barrier would therefore be too low. Each collective is
measured after arithmetic, whose time is subtracted: once after short arithmetic and once after
that of a whole step. The collectives of a step are interpolated between these two, by the
arithmetic available per collective.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from scitoolkit.scaling.costs import Interconnect, fitted, ring_counts
from scitoolkit.training.processes import gather_objects


@dataclass(frozen=True)
class AfterArithmetic:
    """Collectives measured after arithmetic of a given duration.

    Attributes:
        seconds: duration of the arithmetic.
        collectives: latency and bandwidth by name.
    """

    seconds: float
    collectives: dict[str, Interconnect]


MESSAGE_BYTES = (64, 65536, 1 << 20, 4 << 20)
ROUNDS = 7


def networks(work: Callable[[], object]) -> dict[str, Interconnect]:
    """Measure latency and bandwidth of each collective, "" for all of them together.

    Args:
        work: arithmetic that precedes each collective.
    """
    points: dict[str, list[tuple[float, float, float]]] = {}
    for size in MESSAGE_BYTES:
        for name, (call, total) in _collectives(size).items():
            messages, moved = ring_counts(name, 1, total, dist.get_world_size())
            seconds = _seconds(work, call)
            if seconds > 0:  # otherwise it is below the noise of the arithmetic
                points.setdefault(name, []).append((messages, moved, seconds))
    points[""] = [point for measured in points.values() for point in measured] or [(1.0, 0.0, 1e-9)]
    return {name: fitted(measured) for name, measured in points.items()}


def _collectives(size: int) -> dict[str, tuple[Callable[[], object], float]]:
    """Return calls and the bytes of their whole tensors, by the name used in `TrafficCounter`."""
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
    """Return the median over rounds of the time of a call after work, minus the time of the work.

    The slowest rank's time counts in each round, because a step ends with its slowest rank.
    """
    alone, both = [], []
    for _ in range(ROUNDS):
        alone.append(_elapsed(work))
        both.append(_elapsed(work, call))
    ranks = gather_objects((alone, both))
    slowest = [[max(times) for times in zip(*(r[i] for r in ranks), strict=True)] for i in (0, 1)]
    # Differences within a round, in which the load of the machine was nearly the same.
    return statistics.median(b - a for a, b in zip(*slowest, strict=True))


def _elapsed(*calls: Callable[[], object]) -> float:
    started = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - started
