"""What the layout of a file means for training on it, and what another layout would gain.

Training takes samples in random order. A chunk can only be decompressed as a whole, so of a chunk
with 16 samples 15 are read in vain, unless the reader knows what it will need next.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan_units import UnitPlanner

BUFFER_PART = 0.25
_PLANNED_SAMPLES, _STEPS = 2048, 128
_CHUNK_BYTES = 64 << 10


def training_reads(
    shape: tuple[int, ...], itemsize: int, chunks: tuple[int, ...] | None, filtered: bool
) -> dict[str, Any] | None:
    """Return how often bytes are read when samples along the first dim come in random order.

    Args:
        shape: extent of a variable.
        itemsize: bytes of a value.
        chunks: extent of a chunk; None when it is stored in one piece.
        filtered: chunks are compressed or checksummed.

    Returns:
        `one_by_one`: bytes read a byte used when every sample is read by itself;
        `planned`: the same in the later epochs of a `PlannedLoader` that keeps a quarter of the
        set in memory; `rechunk`: chunks of one sample, or of so many that a chunk has 64 KiB,
        None where they are no larger.
        None for a variable of fewer than two dims or samples.

    Example:
        >>> found = training_reads((1024, 64, 64), 4, (16, 64, 64), filtered=True)
        >>> found["one_by_one"], found["rechunk"]
        (16.0, (4, 64, 64))
    """
    if len(shape) < 2 or shape[0] < 2:
        return None
    row = int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    rows = min(shape[0], max(1, _CHUNK_BYTES // max(1, row)))
    if chunks is None:
        return {"one_by_one": 1.0, "planned": 1 - BUFFER_PART, "rechunk": None}
    padded = np.prod([-(-n // c) * c for n, c in zip(shape[1:], chunks[1:], strict=True)])
    waste = float(padded / np.prod(shape[1:]))
    together = chunks[0] if filtered else 1
    return {
        "one_by_one": chunks[0] * waste,
        "planned": waste * (planned_reads(together) if together > 1 else 1 - BUFFER_PART),
        "rechunk": (rows, *shape[1:]) if chunks[0] > rows else None,
    }


@lru_cache
def planned_reads(together: int) -> float:
    """Return how often a chunk of `together` samples is read in an epoch after the first."""
    num_samples = max(_PLANNED_SAMPLES, 16 * together)
    order = EpochOrder(num_samples, num_samples // _STEPS)
    units = np.arange(num_samples) // together
    planner = UnitPlanner(order, int(BUFFER_PART * num_samples), units)
    reads = [int(planner.plan(epoch).loads().sum()) for epoch in range(3)]
    return sum(reads[1:]) / 2 * together / num_samples
