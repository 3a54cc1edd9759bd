"""What one rank holds of a source, and how a step's samples are put together from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from scitoolkit.io.loader.fallbacks import SampleFallbacks
from scitoolkit.io.loader.fetch import Fetched, merge, pieces_of, read_pieces
from scitoolkit.io.loader.file_source import FileSource, Piece
from scitoolkit.io.loader.plan import EpochPlan, Step
from scitoolkit.io.loader.store import RowBuffer, copy_rows, scatter


@dataclass
class CacheForecast:
    """What a plan alone says of the steps to come: what will be held, what has to be read.

    Args:
        source: the samples.
        held: the samples held, shape (samples,), bool.
        counts: {variable: how many of them need each row}.
    """

    source: FileSource
    held: np.ndarray
    counts: dict[str, np.ndarray]

    def reads(
        self, plan: EpochPlan, rank: int, start: int, gap_nbytes: float
    ) -> Iterator[list[Piece]]:
        """Yield what each step from `start` on reads."""
        for step in plan.steps(rank, start):
            enter = step.add[~self.held[step.add]]
            union = np.concatenate([step.samples, enter])
            rows = {}
            for name, count in self.counts.items():
                needed = np.unique(self.source.rows_of(name, union))
                rows[name] = needed[count[needed] == 0]
                np.subtract.at(count, self.source.rows_of(name, step.drop).ravel(), 1)
                np.add.at(count, self.source.rows_of(name, enter).ravel(), 1)
            self.held[step.drop] = False
            self.held[enter] = True
            yield pieces_of(self.source, rows, gap_nbytes)


class SampleCache:
    """The samples that a rank keeps, as rows, so that samples that overlap share them.

    Args:
        source: where they come from.
        capacity: samples that are kept at the most.
        empty: makes the arrays that batches are put together in.
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
                min(rows.num_rows, capacity * len(source.frames[name])),
                rows.row_shape,
                rows.dtype,
            )
            for name, rows in source.rows.items()
        }
        self.held = np.zeros(len(source), bool)

    @property
    def nbytes(self) -> int:
        """Bytes of rows that fit in."""
        return sum(buffer.pool.nbytes for buffer in self.buffers.values())

    def clear(self) -> None:
        """Hold nothing."""
        self.held[:] = False
        for buffer in self.buffers.values():
            buffer.clear()

    def ahead(self) -> CacheForecast:
        """Return what will be held, to be followed through the steps to come."""
        counts = {name: buffer.count.copy() for name, buffer in self.buffers.items()}
        return CacheForecast(self.source, self.held.copy(), counts)

    def take(
        self,
        samples: np.ndarray,
        step: Step,
        fetched: Fetched,
        replacements: SampleFallbacks,
        where: str,
    ) -> dict[str, np.ndarray]:
        """Return a step's samples, then drop and keep what the plan says.

        Args:
            samples: samples of the batch.
            step: what the plan says.
            fetched: what was read for it.
            replacements: which samples stand in for others.
            where: names the batch in messages.

        Returns:
            {variable: (samples, frames, *row_shape)}.
        """
        enter = step.add[~self.held[step.add]]
        leave = replacements.of[step.drop]
        self._settle(np.concatenate([samples, enter]), fetched, replacements, where)
        enter_as, taken = replacements.of[enter], replacements.of[samples]
        values = {}
        for name, buffer in self.buffers.items():
            found = fetched.found.get(name, [])
            values[name] = self._values(name, taken, buffer, found)
            new, slots = buffer.update(
                self.source.rows_of(name, enter_as).ravel(),
                self.source.rows_of(name, leave).ravel(),
            )
            scatter(found, new, slots, buffer.pool)
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
        """Replace samples that cannot be read, and read what is still not at hand."""
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
            merge(fetched, read_pieces(self.source, pieces_of(self.source, lost, 0)))

    def _lost(self, name: str, samples: np.ndarray, fetched: Fetched) -> np.ndarray:
        """Return the rows of samples that are neither held nor read yet, sorted."""
        needed = np.unique(self.source.rows_of(name, samples))
        needed = needed[self.buffers[name].slot[needed] < 0]
        have = [rows for rows, _ in fetched.found.get(name, [])]
        return np.setdiff1d(needed, np.concatenate(have)) if have else needed
