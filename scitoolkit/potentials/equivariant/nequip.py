"""NequIP: equivariant message passing with tensor products and gated nonlinearities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.irreps import Irrep
from scitoolkit.potentials.equivariant.layers import (
    Convolution,
    DegreeLinear,
    Factory,
    Geometry,
    Grouped,
    SpeciesLinear,
    activation_scale,
    first_row,
    natural,
    silu_scale,
)
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig
from scitoolkit.potentials.equivariant.pair_repulsion import UNIVERSAL, PairRepulsion
from scitoolkit.potentials.model import Potential

SCALAR, PSEUDOSCALAR = Irrep(0, 1), Irrep(0, -1)


def layer_irreps(config: NequipConfig) -> list[list[Irrep]]:
    """Return the irreps of the input of the first layer and of the outputs of all layers.

    With both parities, an irrep first occurs in the layer whose tensor products reach it.

    Example:
        >>> layer_irreps(NequipConfig(lmax=1, layers=4, parity=True))
        [[0e], [0e, 1o], [0e, 1o, 1e], [0e, 0o, 1o, 1e], [0e]]
    """
    harmonics, out = natural(range(config.lmax + 1)), [[SCALAR]]
    wanted = [
        irrep
        for of_harmonics in harmonics
        for irrep in (of_harmonics, Irrep(of_harmonics.degree, -of_harmonics.parity))
        if config.parity or irrep == of_harmonics
    ]
    for _ in range(config.layers - 1):
        reached = {irrep for x in out[-1] for edge in harmonics for irrep in x.product(edge)}
        out.append([irrep for irrep in wanted if irrep in reached])
    return [*out, [SCALAR]]


class NequipLayer(nn.Module):
    """Message-passing layer: convolution, species-dependent shortcut and gate.

    Attributes:
        irreps_out: of its features; 0e is the first.
        irreps_shared: those of them that the shortcut copies from the input.
    """

    def __init__(self, config: NequipConfig, number: int, num_types: int, factory: Factory) -> None:
        super().__init__()
        harmonics, channels = natural(range(config.lmax + 1)), config.channels
        before, after = layer_irreps(config)[number : number + 2]
        self.irreps_out: list[Irrep] = after
        self.convolution: Convolution = Convolution(
            before, harmonics, channels, [config.num_basis, *config.radial_widths], factory, after
        )
        self.irreps_shared: list[Irrep] = [irrep for irrep in before if irrep in after]
        self.shortcut: SpeciesLinear = SpeciesLinear(
            self.irreps_shared, channels, num_types, factory, irreps_in=before
        )
        rows = [
            first_row(after, irrep) + m for irrep in self.irreps_shared for m in range(irrep.dim)
        ]
        self.register_buffer("shared_rows", torch.tensor(rows), persistent=False)
        self.pseudoscalar: bool = PSEUDOSCALAR in after
        self.gated: list[Irrep] = [irrep for irrep in after if irrep.degree]
        if self.gated:
            width = len(self.gated) * channels
            scalars = [irrep for irrep in self.convolution.segments if irrep.degree == 0]
            self.gates: DegreeLinear = DegreeLinear(scalars, [SCALAR], channels, width, factory)
            self.gates_shortcut: SpeciesLinear = SpeciesLinear(
                [SCALAR], channels, num_types, factory, width
            )

    def forward(self, x: Tensor, geometry: Geometry, groups: Grouped, neighbours: Tensor) -> Tensor:
        """Return the next features, shape (N, D, C); `neighbours` is their average number."""
        messages = self.convolution.messages(x, geometry) * neighbours.rsqrt()
        out, skip = self.convolution.down(messages), self.shortcut(x, groups)
        if self.irreps_shared == self.irreps_out[: len(self.irreps_shared)]:
            out = out + nn.functional.pad(skip, (0, 0, 0, out.shape[1] - skip.shape[1]))
        else:
            out = out.index_add(1, self.get_buffer("shared_rows"), skip)
        parts = [silu(out[:, :1]) * silu_scale()]
        if self.pseudoscalar:
            parts.append(torch.tanh(out[:, 1:2]) * activation_scale("tanh"))
        if not self.gated:
            return parts[0]
        rows = len(self.gates.segments)
        gates = self.gates(messages[:, :rows]) + self.gates_shortcut(x[:, :1], groups)
        gates = silu(gates).view(len(x), len(self.gated), -1) * silu_scale()
        # One gate for the components of an irrep; a tensor of sizes would be sent to a GPU.
        components = [
            gates[:, k : k + 1].expand(-1, irrep.dim, -1) for k, irrep in enumerate(self.gated)
        ]
        return torch.cat([*parts, out[:, len(parts) :] * torch.cat(components, dim=1)], dim=1)


class Nequip(EquivariantPotential):
    """NequIP potential, with a readout of the last layer; see `NequipConfig`.

    Source: Batzner et al., Nature Communications 13, 2453 (2022), arXiv 2101.03164.
    """

    readout: ClassVar[tuple[str, ...]] = ("hidden", "output")

    def __init__(self, config: NequipConfig, type_map: Sequence[str]) -> None:
        super().__init__(config, type_map, config.lmax)
        self.repulsion: PairRepulsion | None = None
        if config.repulsion_envelope is not None:
            self.repulsion = PairRepulsion(
                type_map, config.repulsion_envelope, UNIVERSAL, config.cutoff
            )
        if config.species_scale:
            self.register_buffer("scale", torch.ones(len(type_map), dtype=torch.float64))
        factory, types = Factory(self.dtype, config.seed), len(type_map)
        self.embedding: nn.Parameter = factory.normal(types, config.channels)
        self.layers: nn.ModuleList = nn.ModuleList(
            NequipLayer(config, number, types, factory) for number in range(config.layers)
        )
        self.hidden: nn.Parameter = factory.normal(config.channels, config.readout_width)
        self.output: nn.Parameter = factory.normal(config.readout_width, 1)

    def extend(self, source: Potential) -> None:
        """Copy the weights of a model with fewer elements; see `Potential.extend`."""
        super().extend(source)
        if self.scale.ndim:
            self.scale[len(source.type_map) :] = source.get_buffer("scale").mean()

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set the constants of `EquivariantPotential`, or one scale of each species."""
        graphs = list(graphs)
        super().fit_statistics(graphs)
        labelled = [graph for graph in graphs if "forces" in graph]
        if not self.scale.ndim or not labelled:
            return
        types = torch.cat([graph["types"] for graph in labelled])
        squares = torch.cat([graph["forces"] for graph in labelled]).double().square().mean(1)
        for number in types.unique().tolist():
            scale = float(squares[types == number].mean().sqrt())
            self.scale[number] = scale or 1.0

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
        scale = self.scale[types] if self.scale.ndim else self.scale
        total = self.shift[types] + scale * energy.double()
        return total if self.repulsion is None else total + self.repulsion(graph, vectors)
