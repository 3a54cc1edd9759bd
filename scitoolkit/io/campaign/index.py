"""The sample index of a campaign: rows by simulation, a few arrays however many files there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import DataError


class SampleIndex:
    """Segments of consecutive rows, sorted by simulation, then by time.

    A window may cross from one segment to the next and never leaves its simulation: windows are
    made from the bounds of simulations alone.

    Args:
        simulation: number of the simulation of each segment, not decreasing, shape (segments,).
        count: rows of each segment, shape (segments,).

    Attributes:
        rows: first row of each segment and the number of all rows, shape (segments + 1,), int64.
        bounds: first row of each simulation and the number of all rows, int64.

    Example:
        >>> index = SampleIndex([0, 0, 1], [2, 3, 4])
        >>> index.bounds.tolist(), index.starts(index.blocks, span=4).tolist()
        ([0, 5, 9], [0, 1, 5])
    """

    def __init__(
        self, simulation: Sequence[int] | np.ndarray, count: Sequence[int] | np.ndarray
    ) -> None:
        self.simulation: np.ndarray = np.asarray(simulation, np.int64)
        if len(self.simulation) != len(count) or not len(count):
            raise DataError(f"{len(self.simulation)} simulations and {len(count)} segments")
        if (np.diff(self.simulation) < 0).any():
            raise DataError("the segments are not sorted by simulation")
        self.rows: np.ndarray = np.concatenate([[0], np.cumsum(np.asarray(count, np.int64))])
        first = np.flatnonzero(np.concatenate([[True], np.diff(self.simulation) != 0]))
        self.bounds: np.ndarray = self.rows[np.concatenate([first, [len(count)]])]

    @property
    def num_rows(self) -> int:
        """Rows of all simulations."""
        return int(self.rows[-1])

    @property
    def num_simulations(self) -> int:
        """Number of simulations."""
        return len(self.bounds) - 1

    @property
    def blocks(self) -> list[range]:
        """The rows of each simulation."""
        bounds = self.bounds.tolist()
        return [range(a, b) for a, b in itertools.pairwise(bounds)]

    def simulation_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the simulation of each row, int64."""
        return np.searchsorted(self.bounds, rows, side="right") - 1

    def locate(self, row: int) -> tuple[int, int, int]:
        """Return the simulation of a row, its number there, and its segment."""
        simulation = int(self.simulation_of(np.array([row]))[0])
        segment = int(np.searchsorted(self.rows, row, side="right")) - 1
        return simulation, row - int(self.bounds[simulation]), segment

    def starts(self, blocks: Sequence[range], span: int) -> np.ndarray:
        """Return the first row of every window of `span` rows inside one of the blocks, int64.

        Args:
            blocks: ranges of rows; each is cut where a simulation ends.
            span: rows from the first to the last of a window.
        """
        parts = [
            np.arange(piece.start, piece.stop - span + 1, dtype=np.int64)
            for block in blocks
            for piece in self.within_simulations(block)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def within_simulations(self, block: range) -> list[range]:
        """Return a range of rows cut at the bounds of simulations."""
        cuts = self.bounds[(self.bounds > block.start) & (self.bounds < block.stop)].tolist()
        edges = [block.start, *cuts, block.stop]
        return [range(a, b) for a, b in itertools.pairwise(edges) if b > a]
