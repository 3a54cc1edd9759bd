"""Geometry of edges, computed once a configuration and shared by the layers of a model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.interpolation import Grid, Placement, piecewise_polynomial
from scitoolkit.ops.radial import radial_basis
from scitoolkit.ops.spherical_harmonics import spherical_harmonics
from scitoolkit.ops.tensor_product import Edges
from scitoolkit.potentials.equivariant.layers import Geometry

GRID_STEP = 0.0125  # Å
TABLE_PAYS = 16  # edges per node of the grid from which a table is worth making anew every step


class EdgeGeometry:
    """Spherical harmonics of edges, and a way to evaluate radial networks at their distances.

    Args:
        cutoff: Å.
        lmax: largest degree of the harmonics.
        num_basis: Bessel functions of the distance.
        envelope: power of the polynomial cutoff.
        dtype: of the arithmetic.
        tabulated: evaluate radial networks on a grid and interpolate, where that is cheaper.
    """

    def __init__(
        self, cutoff: float, lmax: int, num_basis: int, envelope: int,
        dtype: torch.dtype, *, tabulated: bool,
    ) -> None:  # fmt: skip
        self.cutoff: float = cutoff
        self.dtype = dtype
        self._degrees, self._num_basis, self._envelope = (
            range(lmax + 1), num_basis, envelope,
        )  # fmt: skip
        self.grid: Grid | None = Grid(cutoff, math.ceil(cutoff / GRID_STEP)) if tabulated else None

    def __call__(self, graph: Batch, vectors: Tensor, training: bool) -> Geometry:
        """Return the geometry of edge vectors (E, 3)."""
        # Atoms receive from their neighbours, so that an atom's energy needs its own edges alone.
        centre, neighbour = graph["edge_index"]
        edges = Edges.build(neighbour, centre, len(graph["types"]))
        harmonics = spherical_harmonics(self._degrees, -vectors.to(self.dtype), True, "component")
        distances = vectors.norm(dim=1)
        grid = self.grid
        if grid is None or (training and len(distances) < TABLE_PAYS * grid.num_intervals):
            basis = self._basis(distances.to(self.dtype))
            return Geometry(edges, harmonics, lambda network: network(basis))
        nodes = self._basis(grid.nodes().to(vectors.device))
        place = Placement.build(grid, distances)
        return Geometry(
            edges,
            harmonics,
            lambda network: piecewise_polynomial(network.table(grid, nodes), place),
        )

    def _basis(self, distances: Tensor) -> Tensor:
        return radial_basis(
            distances, self.cutoff, num_basis=self._num_basis, envelope=self._envelope
        )
