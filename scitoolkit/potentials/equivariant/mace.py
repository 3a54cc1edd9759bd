"""MACE: message passing whose messages a symmetric contraction raises to many-body features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.equivariant.layers import (
    Convolution,
    Factory,
    Geometry,
    Grouped,
    ManyBodyProduct,
    RadialNetwork,
    Readout,
    SpeciesLinear,
    natural,
)
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.equivariant.pair_repulsion import PairRepulsion
from scitoolkit.potentials.equivariant.radial_functions import TRANSFORMS, RadialBasis
from scitoolkit.potentials.export import streaming
from scitoolkit.potentials.export.library import PotentialLibrary

STREAMED_ATOMS = 64
"""Number of atoms from which the C library is used; smaller systems avoid its compilation."""


class MaceLayer(nn.Module):
    """Message-passing layer: convolution, many-body product and species-dependent shortcut."""

    def __init__(self, config: MaceConfig, number: int, num_types: int, factory: Factory) -> None:
        super().__init__()
        last = number == config.layers - 1
        harmonics = natural(range(config.lmax + 1))
        before = natural(range(1 if number == 0 else config.lmax_hidden + 1))
        after = natural(range(1 if last else config.lmax_hidden + 1))
        channels = config.channels
        self.residual: bool = config.residual if number else config.first_residual
        self.convolution: Convolution = Convolution(
            before, harmonics, channels, [config.num_basis, *config.radial_widths], factory
        )
        shared = [irrep for irrep in before if irrep in after] if self.residual else harmonics
        self.shortcut: SpeciesLinear = SpeciesLinear(shared, channels, num_types, factory)
        self.product: ManyBodyProduct = ManyBodyProduct(
            harmonics, after, config.correlation, channels, num_types, factory
        )
        width = config.readout_width if last and number else None
        self.readout: Readout = Readout(channels, width, factory, config.gate)
        dense = config.density if number else config.first_density
        self.density: RadialNetwork | None = (
            RadialNetwork([config.num_basis, 1], factory) if dense else None
        )

    def forward(self, x: Tensor, geometry: Geometry, groups: Grouped, neighbours: Tensor) -> Tensor:
        """Return the next features, shape (N, D, C); `neighbours` is their average number."""
        if self.density is not None:
            neighbours = 1 + geometry.density(self.density, len(x))[:, :, None]
        sums = self.convolution(x, geometry) / neighbours
        if not self.residual:
            return self.product(self.shortcut(sums, groups), groups)
        out, skip = self.product(sums, groups), self.shortcut(x, groups)
        if skip.shape[1] < out.shape[1]:
            skip = torch.nn.functional.pad(skip, (0, 0, 0, out.shape[1] - skip.shape[1]))
        return out + skip


class Mace(EquivariantPotential):
    """MACE potential, with a readout of every layer; see `MaceConfig`.

    Source: Batatia et al., NeurIPS 2022 (arXiv 2206.07697), equations 8-13.
    """

    readout: ClassVar[tuple[str, ...]] = ("layers.*.readout.*",)
    divided: ClassVar[tuple[str, ...]] = ("embedding", "shortcut.")

    def __init__(self, config: MaceConfig, type_map: Sequence[str]) -> None:
        radial = RadialBasis(
            config.cutoff,
            config.num_basis,
            config.envelope,
            config.radial_type,
            config.apply_cutoff,
        )
        transform = TRANSFORMS.get(config.distance_transform)
        made = None if transform is None else transform(type_map)
        super().__init__(config, type_map, config.lmax, radial, made)
        self.repulsion = PairRepulsion(type_map, config.envelope) if config.pair_repulsion else None
        factory, types = Factory(self.dtype, config.seed), len(type_map)
        self.embedding: nn.Parameter = factory.normal(types, config.channels)
        self.layers: nn.ModuleList = nn.ModuleList(
            MaceLayer(config, number, types, factory) for number in range(config.layers)
        )

    def streams(self, num_atoms: int) -> bool:
        """Return whether the C library evaluates `num_atoms` atoms; see `Potential.streams`."""
        return num_atoms >= STREAMED_ATOMS and self._streamed() is not None

    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies, edge vectors and dE/d(edge vector); see `Potential`."""
        library = self._streamed() if len(graph["types"]) >= STREAMED_ATOMS else None
        if library is None or graph["positions"].device.type != "cpu":
            return super().edge_gradients(graph)
        return streaming.edge_gradients(library, graph)

    def _streamed(self) -> PotentialLibrary | None:
        config = self.config
        assert isinstance(config, MaceConfig)
        if self.training:
            return None
        return streaming.streamed_library(self, config.library)

    def _atomic_energies(self, graph: Batch, vectors: Tensor) -> Tensor:
        types = graph["types"]
        edges, groups = self.topology.of(graph)
        geometry = self.geometry(graph, vectors, edges, self.training)
        neighbours = self.average_neighbours.to(self.dtype)
        x = (self.embedding * len(self.type_map) ** -0.5)[types][:, None]
        energy = x.new_zeros(len(types))
        for layer in self.layers:
            x = layer(x, geometry, groups, neighbours)
            energy = energy + layer.readout(x)  # type: ignore[operator]
        total = energy.double()
        if self.repulsion is not None:
            total = total + self.repulsion(graph, vectors)
        return self.shift[types] + self.scale * total
