"""Sample index of a campaign: rows of simulations and segments as a few arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import DataError


class SampleIndex:
    """Segments of consecutive rows, sorted by simulation and time.

    A window may span several segments but only one simulation.

    Args:
        simulation: (segments,) non-decreasing number of each segment's simulation.
        count: (segments,) number of rows of each segment.
        breaks: rows before which times are missing within a simulation.

    Attributes:
        rows: (segments + 1,) int64, first row of each segment, and the total number of rows.
        bounds: (simulations + 1,) int64, first row of each simulation, and the total.
        breaks: (gaps,) int64, ascending.

    Raises:
        DataError: no segments, or segments that are not sorted.

    Example:
        >>> index = SampleIndex([0, 0, 1], [2, 3, 4])
        >>> index.bounds.tolist(), index.starts(index.blocks, span=4).tolist()
        ([0, 5, 9], [0, 1, 5])
    """

    def __init__(
        self,
        simulation: Sequence[int] | np.ndarray,
        count: Sequence[int] | np.ndarray,
        breaks: Sequence[int] | np.ndarray = (),
    ) -> None:
        self.simulation: np.ndarray = np.asarray(simulation, np.int64)
        if len(self.simulation) != len(count) or not len(count):
            raise DataError(f"{len(self.simulation)} simulations and {len(count)} segments")
        if (np.diff(self.simulation) < 0).any():
            raise DataError("the segments are not sorted by simulation")
        self.rows: np.ndarray = np.concatenate([[0], np.cumsum(np.asarray(count, np.int64))])
        first = np.flatnonzero(np.concatenate([[True], np.diff(self.simulation) != 0]))
        self.bounds: np.ndarray = self.rows[np.concatenate([first, [len(count)]])]
        self.breaks: np.ndarray = np.unique(np.asarray(breaks, np.int64))

    def first(self, simulations: int) -> SampleIndex:
        """Return the index of the first simulations.

        Example:
            >>> SampleIndex([0, 0, 1], [2, 3, 4]).first(1).bounds.tolist()
            [0, 5]
        """
        end = self.bounds[simulations]
        segments = int(np.searchsorted(self.rows, end))
        counts = np.diff(self.rows[: segments + 1])
        return SampleIndex(self.simulation[:segments], counts, self.breaks[self.breaks < end])

    @property
    def num_rows(self) -> int:
        """Total number of rows."""
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

    @property
    def stretches(self) -> list[range]:
        """The rows of each simulation, divided where times are missing."""
        return self.within_simulations(range(self.num_rows))

    def simulation_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the simulation of each row, int64."""
        return np.searchsorted(self.bounds, rows, side="right") - 1

    def locate(self, row: int) -> tuple[int, int, int]:
        """Return the simulation of a row, its number within the simulation, and its segment."""
        simulation = int(self.simulation_of(np.array([row]))[0])
        segment = int(np.searchsorted(self.rows, row, side="right")) - 1
        return simulation, row - int(self.bounds[simulation]), segment

    def starts(self, blocks: Sequence[range], span: int) -> np.ndarray:
        """Return the first row (int64) of every window of `span` rows within the blocks.

        Args:
            blocks: ranges of rows; windows cross neither the ends of simulations nor missing times.
            span: number of rows from the first to the last of a window, inclusive.
        """
        parts = [
            np.arange(piece.start, piece.stop - span + 1, dtype=np.int64)
            for block in blocks
            for piece in self.within_simulations(block)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def within_simulations(self, block: range) -> list[range]:
        """Split a range of rows at the bounds of simulations, and where times are missing."""
        ends = np.union1d(self.bounds, self.breaks)
        cuts = ends[(ends > block.start) & (ends < block.stop)].tolist()
        edges = [block.start, *cuts, block.stop]
        return [range(a, b) for a, b in itertools.pairwise(edges) if b > a]
