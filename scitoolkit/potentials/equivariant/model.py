"""Base class of equivariant potentials: edge geometry, shift, scale and edge gradients."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.potentials.equivariant.geometry import EdgeGeometry
from scitoolkit.potentials.equivariant.layers import ManyBodyProduct, SpeciesLinear
from scitoolkit.potentials.equivariant.radial_functions import DistanceTransform, RadialBasis
from scitoolkit.potentials.equivariant.topology import Topology
from scitoolkit.potentials.graph import edge_vectors
from scitoolkit.potentials.long_range_config import LongRangeConfig
from scitoolkit.potentials.model import DTYPES, Potential, autograd_edge_gradients
from scitoolkit.potentials.statistics import composition, energy_shifts
from scitoolkit.potentials.zbl_config import ZblConfig

OF_ELEMENTS = {"radii", "charges"}
"""Buffers that are determined by the elements."""


class EquivariantConfig(Protocol):
    """Common settings of equivariant models; see `MaceConfig`."""

    cutoff: float
    num_basis: int
    envelope: int
    radial_table: bool
    precision: Literal["float32", "float64"]
    zbl: ZblConfig | None
    long_range: LongRangeConfig | None
    seed: int


class EquivariantPotential(Potential):
    """Equivariant potential with atomic energies shift[type] + scale · network.

    Args:
        config: of the model.
        type_map: species by type index.
        lmax: largest degree of the spherical harmonics.
        radial: radial basis; by default Bessel functions times the polynomial cutoff.
        transform: of the distances in the radial basis, or None.

    Attributes:
        geometry: from edge vectors to harmonics and radial functions.
        topology: from graphs to sorted edges and atoms.
        shift: energy of each species, eV, shape (T,), float64.
        scale: rms force of the training frames, eV/Å.
        average_neighbours: mean number of neighbours of an atom of the training frames.
        divided: parts of the names of weights that are divided by the square root of the number of
            elements.
    """

    dtype: torch.dtype
    divided: ClassVar[tuple[str, ...]] = ("shortcut.",)

    def __init__(
        self,
        config: EquivariantConfig,
        type_map: Sequence[str],
        lmax: int,
        radial: RadialBasis | None = None,
        transform: DistanceTransform | None = None,
    ) -> None:
        super().__init__(type_map, config.cutoff, config.zbl, config.long_range, config.seed)
        self.config: EquivariantConfig = config
        self.dtype = DTYPES[config.precision]
        self.transform: DistanceTransform | None = transform
        self.geometry: EdgeGeometry = EdgeGeometry(
            radial or RadialBasis(config.cutoff, config.num_basis, config.envelope),
            lmax,
            self.dtype,
            tabulated=config.radial_table and config.precision == "float32",
            transform=transform,
        )
        self.topology: Topology = Topology(len(type_map))
        self.shift: Tensor
        self.scale: Tensor
        self.average_neighbours: Tensor
        self.register_buffer("shift", torch.zeros(len(type_map), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("average_neighbours", torch.ones((), dtype=torch.float64))

    def species_weights(self) -> list[Tensor]:
        """Return the embedding, shortcuts and products; see `Potential.species_weights`."""
        out: list[Tensor] = [self.get_parameter("embedding")]
        for module in self.modules():
            if isinstance(module, SpeciesLinear):
                out += list(module.weight)
            elif isinstance(module, ManyBodyProduct):
                out.append(module.weight)
        return out

    @torch.no_grad()
    def extend(self, source: Potential) -> None:
        """Copy the weights of a model with fewer elements; see `Potential.extend`."""
        if self.long_range is not None:
            raise ConfigError(
                "elements cannot be added to a model with a long range",
                where="start.new_elements",
                fix="train from the beginning: leave out start",
            )
        number, theirs = len(source.type_map), source.state_dict()
        factor = math.sqrt(len(self.type_map) / number)
        for name, value in self.state_dict().items():
            if name.rpartition(".")[2] in OF_ELEMENTS:
                continue
            scaled = any(part in name for part in self.divided)
            part = value[:number] if value.ndim and len(value) != len(theirs[name]) else value
            part.copy_(theirs[name] * factor if scaled else theirs[name])

    @abstractmethod
    def _atomic_energies(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the energies of atoms, shape (N,), float64, from edge vectors, shape (E, 3)."""

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set each species' energy, the scale (rms force, eV/Å) and the mean neighbour number."""
        graphs = list(graphs)
        counts, energies = composition(graphs, len(self.shift))
        atoms = sum(len(graph["types"]) for graph in graphs)
        edges = sum(graph["edge_index"].shape[1] for graph in graphs)
        forces = [graph["forces"].flatten() for graph in graphs if "forces" in graph]
        with torch.no_grad():
            self.shift.copy_(torch.from_numpy(energy_shifts(counts, energies)))
            self.average_neighbours.fill_(max(1.0, edges / max(1, atoms)))
            if forces:
                scale = float(torch.cat(forces).square().mean().sqrt())
                self.scale.fill_(scale or 1.0)

    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies, edge vectors and dE/d(edge vector); see `Potential`."""
        return autograd_edge_gradients(
            self, edge_vectors(graph), lambda vectors: self._atomic_energies(graph, vectors)
        )
