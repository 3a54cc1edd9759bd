"""Reads of steps within a memory budget, in which steps whose rows are in memory share them.

Overlapping windows, and samples of one chunk, need the same row in several steps. A row that an
earlier step reads ahead is kept for the next step that needs it and is not read again. Which steps
are in memory at the same time depends on the bytes of their rows only, so that reads can be
predicted without carrying them out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from scitoolkit.io.loader.file_source import FileSource, Piece

_STEPS_AHEAD = 64
_WORTH_NBYTES = 128 << 10
"""Bytes that take as long to read as to find the holders of a row and to copy it from them."""


@dataclass(frozen=True)
class StepReads:
    """Reads of one step.

    Args:
        pieces: what is read for the step.
        taken: {variable: (rows, numbers of the steps that hold them until now)}.
        after: number of steps that must be done before the reads begin.
        held: bytes of rows in memory from then on, those of this step included.
    """

    pieces: list[Piece]
    taken: dict[str, tuple[np.ndarray, np.ndarray]]
    after: int
    held: int


def pieces_of(source: FileSource, rows: Mapping[str, np.ndarray], gap_nbytes: float) -> list[Piece]:
    """Return the pieces to read for the sorted, distinct rows of every variable."""
    return [p for n, wanted in rows.items() for p in source.rows[n].pieces(wanted, gap_nbytes)]


def nbytes_of_piece(source: FileSource, piece: Piece) -> int:
    """Return the bytes of the rows of a piece, with those that are read but not required."""
    return (piece.last - piece.first) * source.rows[piece.name].row_nbytes


def shared_reads(
    source: FileSource,
    work: Iterable[Mapping[str, np.ndarray]],
    gap_nbytes: float,
    budget: int,
) -> Iterator[StepReads]:
    """Yield the reads of each step.

    Args:
        source: of the samples.
        work: {variable: sorted, distinct rows} that each step needs besides those in the cache.
        gap_nbytes: see `RowSet.pieces`.
        budget: maximum bytes of rows in memory, except for a step that exceeds them alone.
    """
    # A request costs as many bytes as are read in its latency.
    shared = {
        name: rows
        for name, rows in source.rows.items()
        if rows.unit_nbytes + gap_nbytes >= _WORTH_NBYTES
    }
    # The last step that needs a row: the row is in memory until that step is done.
    until = {name: np.full(rows.num_rows, -1, np.int64) for name, rows in shared.items()}
    ahead: deque[tuple[Mapping[str, np.ndarray], int]] = deque()
    after = held = 0

    def finish() -> None:
        """Do the earliest step in memory, and release the rows that no later one takes."""
        nonlocal after, held
        rows, alone = ahead.popleft()
        released = sum(
            int((until[name][wanted] == after).sum()) * shared[name].row_nbytes
            for name, wanted in rows.items()
        )
        after, held = after + 1, held - released - alone

    for step, rows in enumerate(work):
        taken, fresh = {}, dict(rows)
        for name in shared:
            holder = until[name][rows[name]]
            here = holder >= after
            taken[name] = rows[name][here], holder[here]
            fresh[name] = rows[name][~here]
            until[name][rows[name]] = step
        pieces = pieces_of(source, fresh, gap_nbytes)
        nbytes = sum(nbytes_of_piece(source, piece) for piece in pieces)
        later = sum(len(fresh[name]) * one.row_nbytes for name, one in shared.items())
        while ahead and (held + nbytes > budget or len(ahead) == _STEPS_AHEAD):
            finish()
        held += nbytes
        ahead.append(({name: rows[name] for name in shared}, nbytes - later))
        yield StepReads(pieces, taken, after, held)
