"""Read-ahead with a thread pool, in the order of use and within a memory budget."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader.file_source import FileSource, Piece
from scitoolkit.io.loader.shared_reads import StepReads, nbytes_of_piece
from scitoolkit.io.loader.store import scatter

_TASK_BYTES = 4 << 20


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
        work: the reads of every step, from `shared_reads`.
        threads: number of threads that read and decode.

    Attributes:
        peak: most bytes of rows in memory so far, those of the current step included.
    """

    peak: int

    def __init__(self, source: FileSource, work: Iterator[StepReads], threads: int) -> None:
        self.source: FileSource = source
        self.work: Iterator[StepReads] = work
        self.threads: int = threads
        self.pool: ThreadPoolExecutor = ThreadPoolExecutor(threads, thread_name_prefix="loader")
        self.steps: deque[list[Future[Fetched]]] = deque()
        self.peak = 0
        self._upcoming: StepReads | None = None
        self._submitted = self._done = 0
        self._current: Fetched = Fetched()
        # Of a step that is not done: (the step that takes rows of it, variable, rows).
        self._taken: defaultdict[int, list[tuple[int, str, np.ndarray]]] = defaultdict(list)
        self._received: defaultdict[int, Fetched] = defaultdict(Fetched)

    def next_step(self) -> Fetched:
        """Wait for the reads of the next step and return their results."""
        self._submit()
        self._current = self._received.pop(self._done, Fetched())
        for future in self.steps[0]:
            merge(self._current, future.result())
        return self._current

    def done(self) -> None:
        """Release the rows of the current step that no later one takes."""
        self.steps.popleft().clear()
        for taker, name, rows in self._taken.pop(self._done, []):
            self._hand_over(taker, name, rows)
        self._current = Fetched()
        self._done += 1
        self._submit()

    def _hand_over(self, taker: int, name: str, rows: np.ndarray) -> None:
        """Copy rows of the current step for a later one; those that failed are read again there."""
        rowset = self.source.rows[name]
        values = np.empty((len(rows), *rowset.row_shape), rowset.dtype)
        results = self._current.values.get(name, [])
        lost = scatter(results, rows, np.arange(len(rows)), values)
        if not lost.all():
            pair = (rows[~lost], values[~lost]) if lost.any() else (rows, values)
            self._received[taker].values.setdefault(name, []).append(pair)

    def _submit(self) -> None:
        """Submit the steps whose reads may begin."""
        while True:
            if self._upcoming is None:
                self._upcoming = next(self.work, None)
                if self._upcoming is None:
                    return
                # Before any of the holders is done, also if this step cannot begin yet.
                for name, (rows, holders) in self._upcoming.taken.items():
                    for holder in np.unique(holders).tolist():
                        self._taken[holder].append((self._submitted, name, rows[holders == holder]))
            if self._upcoming.after > self._done:
                return
            tasks = self._tasks(self._upcoming.pieces)
            self.steps.append([self.pool.submit(read_pieces, self.source, task) for task in tasks])
            self.peak = max(self.peak, self._upcoming.held)
            self._submitted += 1
            self._upcoming = None

    def _tasks(self, pieces: list[Piece]) -> Iterator[list[Piece]]:
        """Group pieces into tasks, because submitting a task costs as much as a small read."""
        sizes = [nbytes_of_piece(self.source, piece) for piece in pieces]
        # Two tasks for each thread, so that one slow piece does not leave the other threads idle.
        size = min(_TASK_BYTES, max(1, sum(sizes) // (2 * self.threads)))
        task: list[Piece] = []
        total = 0
        for piece, nbytes in zip(pieces, sizes, strict=True):
            task.append(piece)
            total += nbytes
            if total >= size:
                yield task
                task, total = [], 0
        if task:
            yield task

    def close(self) -> None:
        """Stop reading, after waiting for reads in progress."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.steps.clear()
