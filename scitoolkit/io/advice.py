"""Read amplification of a file's layout in training, and the layout that would reduce it.

Training reads samples in random order, but a chunk can only be decompressed as a whole: of a chunk
with 16 samples, 15 are read in vain unless the order of samples is known in advance.
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
    """Return the read amplification for samples along the first dim in random order.

    Args:
        shape: of the variable.
        itemsize: bytes of a value.
        chunks: shape of a chunk; None for contiguous storage.
        filtered: whether chunks are compressed or checksummed.

    Returns:
        `one_by_one`: bytes read per byte used if every sample is read separately; `planned`: the
        same in later epochs of a `PlannedLoader` that caches a quarter of the set; `rechunk`:
        recommended chunks of one sample or of about 64 KiB, None if the chunks are no larger.
        None for a variable with fewer than two dims or samples.

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
    """Return the number of reads of a chunk of `together` samples per epoch after the first."""
    num_samples = max(_PLANNED_SAMPLES, 16 * together)
    order = EpochOrder(num_samples, num_samples // _STEPS)
    units = np.arange(num_samples) // together
    planner = UnitPlanner(order, int(BUFFER_PART * num_samples), units)
    reads = [int(planner.plan(epoch).loads().sum()) for epoch in range(3)]
    return sum(reads[1:]) / 2 * together / num_samples
