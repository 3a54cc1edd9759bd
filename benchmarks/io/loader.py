"""The planned loader: distance of its reads from the lower bound, and the resulting speed.

Reads are counted, not timed, if possible: ranks are simulated by planning for all of them, which
every rank does anyway. The control is DistributedSampler with a least-recently-used buffer of the
same size on every rank. Then files are read in a slow file system (see `slow_filesystem.c`),
alternating with the peers.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict

import _loader_reading
import numpy as np
from _measure import machine

from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner

SAMPLES, LOCAL_BATCH, EPOCHS = 16384, 32, 4
RANKS, BUFFERS = (1, 2, 4, 8, 16, 32), (0.10, 0.25, 0.50, 0.75)
CHUNK, CHUNK_BATCH = 16, 64


def run() -> dict:
    """Return the figures; raises where two epochs or ranks do not take every sample once."""
    rows = [planned(ranks, part) for ranks in RANKS for part in BUFFERS]
    control = [least_recently_used(ranks, b) for ranks in RANKS[1:] for b in BUFFERS[:3]]
    for row in rows:
        print(" ".join(f"{key} {value:.4g}" for key, value in row.items()), file=sys.stderr)
    return {
        "loads_over_bound_max": max(row["loads_over_bound"] for row in rows),
        "imbalance_max": max(row["imbalance"] for row in rows),
        "lru_loads_over_samples_min": min(control),
        **{f"planned_reads_per_chunk_{int(b * 100)}": chunked(b) for b in BUFFERS[:3]},
        **{f"chunked_imbalance_{r}_ranks": chunked_imbalance(r) for r in (2, 8)},
        "plan_seconds_1e5": seconds(100_000),
        "plan_seconds_1e6": seconds(1_000_000),
        **_loader_reading.run(),
        "machine": machine(),
    }


def planned(ranks: int, part: float) -> dict:
    """Return the worst epoch after the first of the plan for one number of ranks and buffer."""
    order = EpochOrder(SAMPLES, LOCAL_BATCH * ranks)
    capacity = int(part * SAMPLES) // ranks
    planner = SamplePlanner(order, capacity, ranks)
    planner.plan(0)
    over, uneven = [], []
    for epoch in range(1, EPOCHS):
        plan = planner.plan(epoch)
        if (plan.rank < 0).any() or len(set(plan.samples.tolist())) != SAMPLES:
            raise RuntimeError("the plan does not take every sample once")
        loads = plan.loads()
        over.append(loads.sum() / (SAMPLES - capacity * ranks))
        # A step waits for the rank that reads most.
        uneven.append(loads.max(axis=1).sum() / loads.mean(axis=1).sum())
    return {
        "ranks": ranks,
        "buffer": part,
        "loads_over_bound": float(max(over)),
        "imbalance": float(max(uneven)),
    }


def least_recently_used(ranks: int, part: float) -> float:
    """Return loads over samples, after the first epoch, of private buffers without a plan."""
    order = EpochOrder(SAMPLES, LOCAL_BATCH * ranks)
    capacity = int(part * SAMPLES) // ranks
    buffers: list[OrderedDict] = [OrderedDict() for _ in range(ranks)]
    loads = 0
    for epoch in range(EPOCHS):
        for position, sample in enumerate(order.permutation(epoch).tolist()):
            buffer = buffers[position % ranks]
            if sample in buffer:
                buffer.move_to_end(sample)
                continue
            loads += epoch > 0
            buffer[sample] = None
            if len(buffer) > capacity:
                buffer.popitem(last=False)
    return loads / ((EPOCHS - 1) * SAMPLES)


def chunked(part: float) -> list[float]:
    """Return how often a chunk is read in each epoch, in exact order."""
    planner = UnitPlanner(
        EpochOrder(SAMPLES, CHUNK_BATCH), int(part * SAMPLES), np.arange(SAMPLES) // CHUNK
    )
    return [float(planner.plan(e).loads().sum() * CHUNK / SAMPLES) for e in range(EPOCHS)]


def chunked_imbalance(ranks: int) -> float:
    """Return the largest over the mean rank's reads of an epoch, a quarter of the set in memory."""
    order, units = EpochOrder(SAMPLES, LOCAL_BATCH * ranks), np.arange(SAMPLES) // CHUNK
    planner = UnitPlanner(order, SAMPLES // 4 // ranks, units, ranks)
    loads = [planner.plan(epoch).loads().sum(axis=0) for epoch in range(EPOCHS)]
    return float(max(load.max() / load.mean() for load in loads[1:]))


def seconds(num_samples: int) -> float:
    """Return the CPU seconds that the slower planner needs for an epoch with a full buffer."""
    sample = SamplePlanner(EpochOrder(num_samples, 512), num_samples // 64, 16)
    unit = UnitPlanner(
        EpochOrder(num_samples, CHUNK_BATCH), num_samples // 4, np.arange(num_samples) // CHUNK
    )
    taken = []
    for planner in (sample, unit):
        planner.plan(0)
        begin = time.process_time()
        planner.plan(1)
        taken.append(time.process_time() - begin)
    return max(taken)
