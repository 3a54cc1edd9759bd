"""Read-ahead with a thread pool, in the order of use and within a memory budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader.file_source import FileSource, Piece

_TASK_BYTES = 4 << 20
_STEPS_AHEAD = 64


@dataclass
class Fetched:
    """Results of the reads of one step.

    Args:
        values: {variable: (rows, values) pairs}.
        errors: {variable: (rows, error) pairs}.
    """

    values: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    errors: dict[str, list[tuple[np.ndarray, DataError]]] = field(default_factory=dict)


def merge(into: Fetched, other: Fetched) -> None:
    """Add the results of other reads to `into`."""
    for name, values in other.values.items():
        into.values.setdefault(name, []).extend(values)
    for name, errors in other.errors.items():
        into.errors.setdefault(name, []).extend(errors)


def pieces_of(source: FileSource, rows: dict[str, np.ndarray], gap_nbytes: float) -> list[Piece]:
    """Return the pieces to read for the sorted, distinct rows of every variable."""
    return [p for n, wanted in rows.items() for p in source.rows[n].pieces(wanted, gap_nbytes)]


def read_pieces(source: FileSource, pieces: list[Piece]) -> Fetched:
    """Read pieces in turn; after an error, rows are read separately to find those affected."""
    result = Fetched()
    for name, group in groupby(pieces, key=lambda piece: piece.name):
        _read_group(source, name, list(group), result)
    return result


def _read_group(source: FileSource, name: str, pieces: list[Piece], result: Fetched) -> None:
    try:
        values = source.read_pieces(name, pieces)
    except DataError as error:
        # Split the pieces so that one bad row does not affect the others.
        if len(pieces) > 1:
            parts = [[piece] for piece in pieces]
        elif len(pieces[0].rows) > 1:
            parts = [[Piece(name, int(r), int(r) + 1, np.array([r]))] for r in pieces[0].rows]
        else:
            result.errors.setdefault(name, []).append((pieces[0].rows, error))
            return
        for part in parts:
            _read_group(source, name, part, result)
    else:
        rows = np.concatenate([piece.rows for piece in pieces])
        result.values.setdefault(name, []).append((rows, values))


class ReadAhead:
    """Results of steps in order, with reads of later steps in progress.

    Args:
        source: of the samples.
        work: the pieces of every step.
        threads: number of threads that read and decode.
        budget: maximum bytes of rows in memory, including those of the current step.
    """

    waiting: int
    peak: int

    def __init__(
        self, source: FileSource, work: Iterator[list[Piece]], threads: int, budget: int
    ) -> None:
        self.source: FileSource = source
        self.work: Iterator[list[Piece]] = work
        self.threads: int = threads
        self.budget: int = budget
        self.pool: ThreadPoolExecutor = ThreadPoolExecutor(threads, thread_name_prefix="loader")
        self.steps: deque[tuple[list[Future[Fetched]], int]] = deque()
        self.waiting = self.peak = 0
        self._upcoming: list[Piece] | None = None

    def next_step(self) -> Fetched:
        """Wait for the reads of the next step and return their results."""
        # A step that exceeds the budget alone would otherwise never be read.
        self._submit(at_least=1)
        futures, _ = self.steps[0]
        result = Fetched()
        for future in futures:
            merge(result, future.result())
        return result

    def done(self) -> None:
        """Release the rows of the current step."""
        futures, nbytes = self.steps.popleft()
        futures.clear()
        self.waiting -= nbytes
        self._submit(at_least=0)

    def _submit(self, at_least: int) -> None:
        """Submit the steps that fit into the budget, but no fewer than `at_least`."""
        while len(self.steps) < _STEPS_AHEAD:
            if self._upcoming is None:
                self._upcoming = next(self.work, None)
            if self._upcoming is None:
                return
            pieces = self._upcoming
            nbytes = sum(self._nbytes(piece) for piece in pieces)
            if len(self.steps) >= at_least and self.waiting + nbytes > self.budget:
                return
            futures = [
                self.pool.submit(read_pieces, self.source, task)
                for task in self._tasks(pieces, nbytes)
            ]
            self.steps.append((futures, nbytes))
            self._upcoming = None
            self.waiting += nbytes
            self.peak = max(self.peak, self.waiting)

    def _nbytes(self, piece: Piece) -> int:
        return (piece.last - piece.first) * self.source.rows[piece.name].row_nbytes

    def _tasks(self, pieces: list[Piece], nbytes: int) -> Iterator[list[Piece]]:
        """Group pieces into tasks, because submitting a task costs as much as a small read."""
        # Two tasks for each thread, so that one slow piece does not leave the other threads idle.
        size = min(_TASK_BYTES, max(1, nbytes // (2 * self.threads)))
        task: list[Piece] = []
        total = 0
        for piece in pieces:
            task.append(piece)
            total += self._nbytes(piece)
            if total >= size:
                yield task
                task, total = [], 0
        if task:
            yield task

    def close(self) -> None:
        """Stop reading, after waiting for reads in progress."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.steps.clear()
