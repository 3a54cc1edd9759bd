"""Edge geometry, computed once per batch and shared by the layers of a model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.interpolation import EquidistantGrid, Placement, piecewise_polynomial
from scitoolkit.ops.spherical_harmonics import spherical_harmonics
from scitoolkit.ops.tensor_product import Edges
from scitoolkit.potentials.equivariant.layers import Geometry
from scitoolkit.potentials.equivariant.radial_functions import DistanceTransform, RadialBasis

GRID_STEP = 0.0125  # Å
TABLE_PAYS = 16  # edges per grid node above which a new table in every training step is cheaper


class EdgeGeometry:
    """Computes spherical harmonics of edges, and evaluates radial networks at their distances.

    Args:
        radial: radial basis.
        lmax: largest degree of the harmonics.
        dtype: of the arithmetic.
        tabulated: evaluate radial networks on a grid and interpolate, if that is cheaper; ignored
            with a transform, whose basis differs between pairs of species.
        transform: of the distances in the radial basis, or None.
    """

    def __init__(
        self,
        radial: RadialBasis,
        lmax: int,
        dtype: torch.dtype,
        *,
        tabulated: bool,
        transform: DistanceTransform | None = None,
    ) -> None:
        self.radial: RadialBasis = radial
        self.transform: DistanceTransform | None = transform
        self.dtype: torch.dtype = dtype
        self._degrees = range(lmax + 1)
        cutoff, table = radial.cutoff, tabulated and transform is None
        self.grid: EquidistantGrid | None = (
            EquidistantGrid(cutoff, math.ceil(cutoff / GRID_STEP)) if table else None
        )

    def __call__(self, graph: Batch, vectors: Tensor, edges: Edges, training: bool) -> Geometry:
        """Return the geometry of edge vectors (E, 3)."""
        centre = graph["edge_index"][0]
        harmonics = spherical_harmonics(self._degrees, -vectors.to(self.dtype), True, "component")
        distances = vectors.norm(dim=1)
        grid, factor = self.grid, self.radial.cutoff_factor(distances.to(self.dtype))
        if grid is None or (training and len(distances) < TABLE_PAYS * grid.num_intervals):
            basis = self._basis(distances, graph)
            return Geometry(edges, harmonics, centre, lambda network: network(basis), factor)
        nodes = self.radial(grid.nodes(vectors.device))
        place = Placement.build(grid, distances)
        return Geometry(
            edges,
            harmonics,
            centre,
            lambda network: piecewise_polynomial(network.table(grid, nodes), place),
            factor,
        )

    def _basis(self, distances: Tensor, graph: Batch) -> Tensor:
        if self.transform is None:
            return self.radial(distances.to(self.dtype))
        types = graph["types"][graph["edge_index"]]
        transformed = self.transform(distances.double(), *types).to(self.dtype)
        return self.radial(distances.to(self.dtype), transformed)
