"""Charges that a network computes from the neighbours of each atom, learned without labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.radial_densities import NUM_BASIS, radial_densities


class LatentCharges(nn.Module):
    """Charges q_i = q0[t_i] + net[t_i](densities of the neighbours of each species around i).

    The densities are sums of radial functions that vanish at the cutoff, so that a charge depends
    on distances only and is the same for every family of models.

    Args:
        num_types: number of species T.
        cutoff: Å, of the potential.
        neurons: width of the network.
        seed: of the initial weights.
    """

    def __init__(self, num_types: int, cutoff: float, neurons: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        inputs = num_types * NUM_BASIS

        def normal(*shape: int, scale: float) -> nn.Parameter:
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(values * scale)

        self.cutoff, self.num_types = cutoff, num_types
        # Not zero: the energy is of second order in the charges, so its derivative vanishes there.
        self.charge: nn.Parameter = normal(num_types, scale=0.3)
        self.first: nn.Parameter = normal(num_types, inputs, neurons, scale=inputs**-0.5)
        self.bias: nn.Parameter = normal(num_types, neurons, scale=1.0)
        self.last: nn.Parameter = normal(num_types, neurons, scale=0.3 * neurons**-0.5)

    def forward(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the charges (N,), elementary charges, float64.

        Args:
            graph: the batch.
            vectors: (E, 3) edge vectors, Å, float64.
        """
        types = graph["types"]
        densities = radial_densities(graph, vectors, self.num_types, self.cutoff)
        out = self.charge[types]
        for kind in range(self.num_types):
            chosen = (types == kind).nonzero().squeeze(1)
            hidden = torch.tanh(densities[chosen] @ self.first[kind] + self.bias[kind])
            out = out.index_add(0, chosen, hidden @ self.last[kind])
        return out
