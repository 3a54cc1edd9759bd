"""Cache of one rank's samples, and assembly of a step's samples from cache and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from scitoolkit.io.loader.fallbacks import SampleFallbacks
from scitoolkit.io.loader.fetch import Fetched, merge, read_pieces
from scitoolkit.io.loader.file_source import FileSource
from scitoolkit.io.loader.plan import EpochPlan, LoaderStep
from scitoolkit.io.loader.shared_reads import pieces_of
from scitoolkit.io.loader.store import RowBuffer, copy_rows, scatter


@dataclass
class CacheForecast:
    """Forecast of the cache's contents and the reads of future steps, from the plan.

    Args:
        source: the samples.
        held: (samples,) bool, samples in the cache.
        counts: {variable: number of cached samples that contain each row}.
    """

    source: FileSource
    held: np.ndarray
    counts: dict[str, np.ndarray]

    def needed(self, plan: EpochPlan, rank: int, start: int) -> Iterator[dict[str, np.ndarray]]:
        """Yield {variable: rows that are not in the cache}, for each step from `start` on."""
        for step in plan.steps(rank, start):
            enter = step.add[~self.held[step.add]]
            union = np.concatenate([step.samples, enter])
            rows = {}
            for name, count in self.counts.items():
                needed = np.unique(self.source.rows_of(name, union))
                # Before the counts change: rows that this step drops still serve its batch.
                rows[name] = needed[count[needed] == 0]
                np.subtract.at(count, self.source.rows_of(name, step.drop).ravel(), 1)
                np.add.at(count, self.source.rows_of(name, enter).ravel(), 1)
            self.held[step.drop] = False
            self.held[enter] = True
            yield rows


class SampleCache:
    """Cache of a rank's samples as rows, which overlapping samples share.

    Args:
        source: of the samples.
        capacity: maximum number of samples.
        empty: allocator of the arrays of batches.

    Attributes:
        held: (samples,) bool, samples in the cache.
    """

    held: np.ndarray

    def __init__(
        self,
        source: FileSource,
        capacity: int,
        empty: Callable[[tuple[int, ...], np.dtype], np.ndarray] = np.empty,
    ) -> None:
        self.source: FileSource = source
        self.empty = empty
        self.buffers: dict[str, RowBuffer] = {
            name: RowBuffer(
                rows.num_rows,
                # Enough for samples without common rows.
                min(rows.num_rows, capacity * len(source.frames[name])),
                rows.row_shape,
                rows.dtype,
            )
            for name, rows in source.rows.items()
        }
        self.held = np.zeros(len(source), bool)

    @property
    def nbytes(self) -> int:
        """Capacity in bytes."""
        return sum(buffer.pool.nbytes for buffer in self.buffers.values())

    def clear(self) -> None:
        """Remove all samples."""
        self.held[:] = False
        for buffer in self.buffers.values():
            buffer.clear()

    def ahead(self) -> CacheForecast:
        """Return a forecast that starts from the current contents."""
        counts = {name: buffer.count.copy() for name, buffer in self.buffers.items()}
        return CacheForecast(self.source, self.held.copy(), counts)

    def take(
        self,
        samples: np.ndarray,
        step: LoaderStep,
        fetched: Fetched,
        replacements: SampleFallbacks,
        where: str,
    ) -> dict[str, np.ndarray]:
        """Assemble a step's samples, then evict and insert cache entries according to the plan.

        Args:
            samples: samples of the batch.
            step: the plan of the step.
            fetched: the reads of the step.
            replacements: replacements for unreadable samples.
            where: the batch, for messages.

        Returns:
            {variable: (samples, frames, *row_shape)}.
        """
        enter = step.add[~self.held[step.add]]
        # The plan knows samples by number; the rows in the cache are those of their replacements.
        leave = replacements.of[step.drop]
        self._settle(np.concatenate([samples, enter]), fetched, replacements, where)
        enter_as, taken = replacements.of[enter], replacements.of[samples]
        values = {}
        for name, buffer in self.buffers.items():
            reads = fetched.values.get(name, [])
            # Before the update, which may give the slots of the batch's rows to others.
            values[name] = self._values(name, taken, buffer, reads)
            new, slots = buffer.update(
                self.source.rows_of(name, enter_as).ravel(),
                self.source.rows_of(name, leave).ravel(),
            )
            scatter(reads, new, slots, buffer.pool)
        self.held[step.drop] = False
        self.held[enter] = True
        return values

    def _values(self, name: str, samples: np.ndarray, buffer: RowBuffer, found: list) -> np.ndarray:
        rows = self.source.rows_of(name, samples)
        flat = rows.ravel()
        out = self.empty((len(flat), *buffer.pool.shape[1:]), buffer.pool.dtype)
        slots = buffer.slot[flat]
        here = np.flatnonzero(slots >= 0)
        copy_rows(buffer.pool, slots[here], out, here)
        rest = np.flatnonzero(slots < 0)
        scatter(found, flat[rest], rest, out)
        return out.reshape(*rows.shape, *buffer.pool.shape[1:])

    def _settle(
        self, samples: np.ndarray, fetched: Fetched, replacements: SampleFallbacks, where: str
    ) -> None:
        """Replace unreadable samples, and read the rows that are still missing."""
        while True:
            for name, pairs in fetched.errors.items():
                for bad, error in pairs:
                    rows = self.source.rows_of(name, replacements.of[samples])
                    for sample in samples[np.isin(rows, bad).any(axis=1)].tolist():
                        replacements.replace(sample, error, where)
            fetched.errors.clear()
            lost = {
                name: self._lost(name, replacements.of[samples], fetched) for name in self.buffers
            }
            if not any(map(len, lost.values())):
                return
            # The rows of a replacement may fail in turn, which the next round treats.
            merge(fetched, read_pieces(self.source, pieces_of(self.source, lost, 0)))

    def _lost(self, name: str, samples: np.ndarray, fetched: Fetched) -> np.ndarray:
        """Return the rows of samples that are neither cached nor read yet, sorted."""
        needed = np.unique(self.source.rows_of(name, samples))
        needed = needed[self.buffers[name].slot[needed] < 0]
        have = [rows for rows, _ in fetched.values.get(name, [])]
        return np.setdiff1d(needed, np.concatenate(have)) if have else needed
