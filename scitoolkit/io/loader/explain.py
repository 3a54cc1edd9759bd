"""Predictions of a planned loader's reads and memory, from its plan without reading data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from scitoolkit.io.loader.file_source import FileSource, RowSet
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import Planner
from scitoolkit.io.loader.sample_cache import SampleCache
from scitoolkit.io.loader.shared_reads import shared_reads

EPOCHS = 2


class Explainable(Protocol):
    """Attributes of a planned loader that determine its plan and memory."""

    files: FileSource
    order: EpochOrder
    planner: Planner
    holdings: SampleCache
    rank: int
    world_size: int
    gap_nbytes: float
    prefetch: int
    threads: int

    def new_planner(self) -> Planner:
        """Return a planner in its initial state."""
        ...


def explained(loader: Explainable) -> dict[str, Any]:
    """Return the layout, predicted reads and memory of a loader.

    Returns:
        `layout`: {variable: description}; `plan`: description; `requests`, `bytes` and
        `amplification` (bytes read over bytes of the samples yielded): [first epoch, later];
        `without_plan`: amplification of reading every sample separately; `memory`: bytes of the
        buffer, read-ahead, decoding and batches, and their `total`; with blocks also `mates`,
        the number of samples of the same block in a sample's batch.
    """
    source = loader.files
    epochs, largest = _predicted(loader)
    useful = loader.order.num_samples * source.sample_nbytes / loader.world_size
    explanation: dict[str, Any] = {
        "layout": {name: layout_words(rows) for name, rows in source.rows.items()},
        "plan": plan_words(source),
        "samples_kept": loader.planner.capacity,
        "requests": [requests for requests, _ in epochs],
        "bytes": [nbytes for _, nbytes in epochs],
        "amplification": [nbytes / useful for _, nbytes in epochs],
        "without_plan": unplanned_amplification(source),
        "gap_bytes": int(loader.gap_nbytes),
        "memory": memory(loader, largest),
    }
    blocks = loader.order.blocks
    if blocks is not None:
        explanation["mates"] = blocks.mates(loader.order.permutation(0), loader.order.batch_size)
    return explanation


def _predicted(loader: Explainable) -> tuple[list[tuple[int, int]], int]:
    """Return (requests, bytes) of this rank's first epochs, and the most bytes read ahead."""
    source = loader.files
    planner = loader.new_planner()
    ahead = SampleCache(source, planner.capacity).ahead()
    epochs, largest = [], 0
    for epoch in range(EPOCHS):
        requests = nbytes = 0
        rows = ahead.needed(planner.plan(epoch), loader.rank, 0)
        for step in shared_reads(source, rows, loader.gap_nbytes, loader.prefetch):
            for piece in step.pieces:
                more = source.rows[piece.name].cost(piece.first, piece.last)
                requests, nbytes = requests + more[0], nbytes + more[1]
            largest = max(largest, step.held)
        epochs.append((requests, nbytes))
    return epochs, largest


def memory(loader: Explainable, largest_step: int) -> dict[str, int]:
    """Return the peak memory (bytes) of a loader by purpose."""
    source = loader.files
    batch = loader.order.batch_size // loader.world_size * source.sample_nbytes
    everything = sum(rows.num_rows * rows.row_nbytes for rows in source.rows.values())
    unit = max(rows.unit_nbytes for rows in source.rows.values())
    parts = {
        "buffer": loader.holdings.nbytes,
        "read_ahead": max(min(loader.prefetch, everything), largest_step),
        # Stored chunk, decompressed chunk, transposed chunk, and the rows extracted from it.
        "decoding": 4 * unit * loader.threads,
        # One being assembled, one used by the consumer.
        "batches": 2 * batch,
    }
    return {**parts, "total": sum(parts.values())}


def layout_words(rows: RowSet) -> str:
    """Return a description of a variable's storage."""
    reader = rows.reader(0)
    layout = reader.layout
    chunks = f"chunks {'x'.join(map(str, layout.chunks))}" if layout.chunks else "contiguous"
    filters = f", {'+'.join(layout.filters)}" if layout.filters else ""
    return f"{'x'.join(map(str, layout.shape))} {layout.dtype}, {chunks}{filters}"


def plan_words(source: FileSource) -> str:
    """Return a description of the units of reading."""
    together = max(int(rows.unit_rows.max()) for rows in source.rows.values())
    if together == 1:
        return "every sample can be read separately"
    return f"a chunk of {together} samples is read as a whole; samples used soon are cached"


def unplanned_amplification(source: FileSource) -> float:
    """Return the bytes read over the bytes used if samples are read one by one in random order."""
    picked = np.linspace(0, len(source) - 1, min(len(source), 100)).astype(np.int64)
    nbytes = 0
    for name, rows in source.rows.items():
        for wanted in source.rows_of(name, picked):
            for piece in rows.pieces(np.unique(wanted)):
                low, high = rows.whole_units(piece.first, piece.last, rows.chunk_rows)
                nbytes += rows.cost(low, high)[1]
    return nbytes / (len(picked) * source.sample_nbytes)
