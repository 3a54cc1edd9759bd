"""Cubic B-splines of the distance for each pair of elements, evaluated on the edges of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.graph import edge_vectors


@dataclass(frozen=True)
class SplineBlock:
    """Splines on the edges of consecutive atoms; E edges, each with 4 nonzero splines.

    Attributes:
        atoms: the atoms in the graph.
        centre: (E,) centre of each edge, counted from the first atom of the block.
        unit: (E, 3) unit vectors from centre to neighbour.
        distance: (E,) Å.
        columns: (E, 4) numbers of the splines, pair * functions + function.
        values: (E, 4) of the splines.
        slopes: (E, 4) derivatives by the distance, 1/Å.
    """

    atoms: slice
    centre: np.ndarray
    unit: np.ndarray
    distance: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    slopes: np.ndarray


class PairSplines:
    """Splines in ln r of all pairs of elements, which vanish with two derivatives at the cutoff.

    Below the start of a pair, its splines are continued with constant slope.

    Args:
        pairs: (M, 2) types of the unordered pairs; edges of other pairs are left out.
        starts: (M,) start of the splines of each pair, Å.
        functions: number of splines of each pair.
        cutoff: Å.
        num_types: number of types T of the graphs.

    Attributes:
        size: number of splines of all pairs.
    """

    def __init__(
        self,
        pairs: Sequence[Sequence[int]] | np.ndarray,
        starts: Sequence[float] | np.ndarray,
        functions: int,
        cutoff: float,
        num_types: int,
    ) -> None:
        self._starts = np.asarray(starts)
        self._functions, self._cutoff, self._num_types = functions, cutoff, num_types
        one, other = np.asarray(pairs).T
        self._pair = np.full((num_types, num_types), -1)
        self._pair[one, other] = self._pair[other, one] = np.arange(len(self._starts))
        self.size: int = len(self._starts) * functions

    def blocks(self, graph: Batch, num_atoms: int) -> Iterator[SplineBlock]:
        """Yield the splines of a graph of one configuration in blocks of `num_atoms` atoms."""
        total = len(graph["types"])
        edges, vectors = graph["edge_index"].numpy(), edge_vectors(graph).numpy()
        pair = self._pair[tuple(graph["types"].numpy()[edges])]
        begins = graph["segments"][:: self._num_types].tolist()
        for first in range(0, total, num_atoms):
            last = min(first + num_atoms, total)
            pairs = begins[first] + np.flatnonzero(pair[begins[first] : begins[last]] >= 0)
            distance = np.linalg.norm(vectors[pairs], axis=1)
            yield SplineBlock(
                slice(first, last),
                edges[0, pairs] - first,
                vectors[pairs] / distance[:, None],
                distance,
                *self._splines(distance, pair[pairs]),
            )

    def _splines(self, distance: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return columns, values and slopes (E, 4): uniform knots in ln r, so du/dr = scale / r."""
        start = self._starts[pair]
        inside = np.maximum(distance, start)
        scale = self._functions / np.log(self._cutoff / start)
        knots = scale * np.log(inside / start)
        interval = np.minimum(knots.astype(np.int64), self._functions - 1)
        t = knots - interval
        u = 1 - t
        values = np.stack([u**3, 3 * t**3 - 6 * t**2 + 4, 3 * u**3 - 6 * u**2 + 4, t**3], 1) / 6
        slopes = np.stack([-(u**2), 3 * t**2 - 4 * t, 4 * u - 3 * u**2, t**2], 1) / 2
        slopes *= (scale / inside)[:, None]
        values += slopes * (distance - inside)[:, None]
        number = interval[:, None] + np.arange(4)
        beyond = number >= self._functions  # splines that do not vanish at the cutoff
        values[beyond] = slopes[beyond] = 0.0
        columns = pair[:, None] * self._functions + np.minimum(number, self._functions - 1)
        return columns, values, slopes
