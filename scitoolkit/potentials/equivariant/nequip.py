"""NequIP: equivariant message passing with tensor products and gated nonlinearities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.equivariant.layers import (
    Convolution,
    DegreeLinear,
    Factory,
    Geometry,
    Grouped,
    SpeciesLinear,
    silu_scale,
)
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig


class NequipLayer(nn.Module):
    """Message-passing layer: convolution, species-dependent shortcut and gate."""

    def __init__(self, config: NequipConfig, number: int, num_types: int, factory: Factory) -> None:
        super().__init__()
        harmonics, channels = range(config.lmax + 1), config.channels
        before = range(1 if number == 0 else config.lmax + 1)
        after = range(1 if number == config.layers - 1 else config.lmax + 1)
        self.convolution: Convolution = Convolution(
            before, harmonics, channels, [config.num_basis, *config.radial_widths], factory, after
        )
        shared = [degree for degree in before if degree in after]
        self.shortcut: SpeciesLinear = SpeciesLinear(shared, channels, num_types, factory)
        self.gated: int = len(after) - 1
        if self.gated:
            width = self.gated * channels
            scalars = [degree for degree in self.convolution.segments if degree == 0]
            self.gates: DegreeLinear = DegreeLinear(scalars, [0], channels, width, factory)
            self.gates_shortcut: SpeciesLinear = SpeciesLinear(
                [0], channels, num_types, factory, width
            )

    def forward(self, x: Tensor, geometry: Geometry, groups: Grouped, neighbours: Tensor) -> Tensor:
        """Return the next features, shape (N, D, C); `neighbours` is their average number."""
        messages = self.convolution.messages(x, geometry) * neighbours.rsqrt()
        out, skip = self.convolution.down(messages), self.shortcut(x, groups)
        if skip.shape[1] < out.shape[1]:
            skip = nn.functional.pad(skip, (0, 0, 0, out.shape[1] - skip.shape[1]))
        out = out + skip
        scalars = silu(out[:, :1]) * silu_scale()
        if not self.gated:
            return scalars
        rows = self.convolution.segments.count(0)
        gates = self.gates(messages[:, :rows]) + self.gates_shortcut(x[:, :1], groups)
        gates = silu(gates).view(len(x), self.gated, -1) * silu_scale()
        # One gate for the components of a degree; a tensor of sizes would be sent to a GPU.
        components = [
            gates[:, degree - 1 : degree].expand(-1, 2 * degree + 1, -1)
            for degree in range(1, self.gated + 1)
        ]
        return torch.cat([scalars, out[:, 1:] * torch.cat(components, dim=1)], dim=1)


class Nequip(EquivariantPotential):
    """NequIP potential, with a readout of the last layer; see `NequipConfig`.

    Source: Batzner et al., Nature Communications 13, 2453 (2022), arXiv 2101.03164.
    """

    readout: ClassVar[tuple[str, ...]] = ("hidden", "output")

    def __init__(self, config: NequipConfig, type_map: Sequence[str]) -> None:
        super().__init__(config, type_map, config.lmax)
        factory, types = Factory(self.dtype, config.seed), len(type_map)
        self.embedding: nn.Parameter = factory.normal(types, config.channels)
        self.layers: nn.ModuleList = nn.ModuleList(
            NequipLayer(config, number, types, factory) for number in range(config.layers)
        )
        self.hidden: nn.Parameter = factory.normal(config.channels, config.readout_width)
        self.output: nn.Parameter = factory.normal(config.readout_width, 1)

    def _atomic_energies(self, graph: Batch, vectors: Tensor) -> Tensor:
        types = graph["types"]
        edges, groups = self.topology.of(graph)
        geometry = self.geometry(graph, vectors, edges, self.training)
        neighbours = self.average_neighbours.to(self.dtype)
        x = self.embedding[types][:, None]
        for layer in self.layers:
            x = layer(x, geometry, groups, neighbours)
        energy = x[:, 0] @ (self.hidden / math.sqrt(self.hidden.shape[0]))
        energy = (energy @ (self.output / math.sqrt(len(self.output)))).squeeze(1)
        return self.shift[types] + self.scale * energy.double()
