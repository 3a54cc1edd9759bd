"""Mean interaction energy of each species, zero for an atom without neighbours.

With E0 of isolated atoms, the mean energy of binding is neither in E0 nor in an untrained network.
A separate term holds it, so that an isolated atom keeps E0:

    E_i = M_t (1 - exp(-(n_i / n_0)²)),    n_i = sum_j (1 - (r_ij / r_cut)²)³

with M_t the energy of species t, and n_0 well below n_i of the training frames: the term is
constant there and exerts no force. It vanishes smoothly when the neighbours leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import to_device, to_host
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.graph import edge_vectors

LOW_SHARE = 0.1
"""Share of the training atoms with neighbours whose n_i may be below LEAST_RATIO * n_0."""
LEAST_RATIO = 3.0
GAIN = 10.0
"""eV that a trained change of 1 adds to M: steps of an optimizer are small compared with eV."""


class MeanInteraction(nn.Module):
    """Mean interaction energies M (T,), eV, and the density n_0; see the module's equation.

    M follows the drift of the network's mean energy during training: it is the fitted energy plus
    GAIN times a trained parameter, which `absorb` moves into the energy.

    Args:
        num_types: T.
        cutoff: Å, of the potential.
    """

    def __init__(self, num_types: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.energy: Tensor
        self.density: Tensor
        self.register_buffer("energy", torch.zeros(num_types, dtype=torch.float64))
        self.register_buffer("density", torch.ones((), dtype=torch.float64))
        self.change: nn.Parameter = nn.Parameter(torch.zeros(num_types, dtype=torch.float64))

    @property
    def means(self) -> Tensor:
        """M (T,), eV."""
        return self.energy + GAIN * self.change

    @torch.no_grad()
    def absorb(self) -> None:
        """Move the trained change into the energy; M stays."""
        self.energy.copy_(self.means)
        self.change.zero_()

    def fit_density(self, graphs: Sequence[Batch]) -> None:
        """Set n_0 from the densities of the atoms of training graphs that have neighbours."""
        own = [to_device(graph, self.density.device) for graph in graphs]
        densities = torch.cat([self._densities(graph, edge_vectors(graph))[0] for graph in own])
        bound = densities[densities > 0]
        if len(bound):
            self.density.fill_(float(np.quantile(to_host(bound), LOW_SHARE)) / LEAST_RATIO)

    def shares(self, graph: Batch) -> Tensor:
        """Return the factor of M of each atom, between 0 and 1, (N,) float64."""
        densities = self._densities(graph, edge_vectors(graph))[0]
        return -torch.expm1(-((densities / self.density) ** 2))

    def forward(self, graph: Batch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return atomic energies (N,) and dE/d(edge vector) (E, 3), both float64.

        Args:
            graph: the batch.
            vectors: (E, 3) edge vectors, Å.
        """
        vectors = vectors.double()
        densities, slopes = self._densities(graph, vectors)
        means = self.means if self.training else self.means.detach()
        energies = means[graph["types"]]
        relative = densities / self.density
        fall = torch.exp(-(relative**2))
        by_density = energies * 2 * relative / self.density * fall
        centre = graph["edge_index"][0]
        return energies * -torch.expm1(-(relative**2)), (by_density[centre] * slopes)[
            :, None
        ] * vectors

    def _densities(self, graph: Batch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return n (N,) and (dw/dr)/r of each edge (E,)."""
        left = (1 - vectors.double().square().sum(1) / self.cutoff**2).clamp_min(0.0)
        densities = place_sums(graph["edge_index"][0], left**3, len(graph["types"]))
        return densities, -6 / self.cutoff**2 * left**2
