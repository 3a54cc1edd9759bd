"""ZBL repulsion of mace-torch, which is part of its models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.equivariant.radial_functions import polynomial_cutoff
from scitoolkit.potentials.zbl import element_data

COULOMB, BOHR = 14.3996, 0.529  # eV Å and Å, with the digits of mace-torch
DECAYS = (3.2, 0.9423, 0.4028, 0.2016)


class PairRepulsion(nn.Module):
    """ZBL pair energies w(r) e² Z Z' / r · sum_k c_k exp(-d_k r / a), w a polynomial cutoff.

    a = a0 · `prefactor` / (Z^`power` + Z'^`power`); w falls to zero at the sum of the covalent
    radii. Unlike that of `ZblConfig` it is part of the energy that is fitted to the labels. It has
    no trainable parameters.

    Args:
        type_map: chemical symbols.
        envelope: power of the polynomial cutoff.

    Source: Ziegler, Biersack, Littmark, The Stopping and Range of Ions in Solids (1985), with the
    constants of mace-torch.
    """

    def __init__(self, type_map: Sequence[str], envelope: int) -> None:
        super().__init__()
        numbers, radii = element_data(type_map)
        self.envelope = envelope
        for name, value in {
            "charges": numbers,
            "amplitudes": torch.tensor([0.1818, 0.5099, 0.2802, 0.02817]),
            "power": torch.tensor(0.3, dtype=torch.float64),
            "prefactor": torch.tensor(0.4543, dtype=torch.float64),
            "radii": radii[:, None] + radii[None, :],
        }.items():
            self.register_buffer(name, value.double())

    def pair_table(self) -> tuple[Tensor, Tensor]:
        """Return e² Z Z', 1/a, 0 and the end of the switch of each pair, (4, T, T), and the c_k."""
        charges, radii, amplitudes, power, prefactor = (
            self.get_buffer(name)
            for name in ("charges", "radii", "amplitudes", "power", "prefactor")
        )
        powers = charges**power
        inverse = (powers[:, None] + powers[None, :]) / (prefactor * BOHR)
        product = COULOMB * charges[:, None] * charges[None, :]
        return torch.stack([product, inverse, torch.zeros_like(radii), radii]), amplitudes

    def forward(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return atomic energies in eV (N,), float64; both directions of a pair are edges."""
        charges, radii, amplitudes, power, prefactor = (
            self.get_buffer(name)
            for name in ("charges", "radii", "amplitudes", "power", "prefactor")
        )
        types = graph["types"]
        distance = vectors.norm(dim=1).double()
        near = (distance.detach() < radii.max()).nonzero().squeeze(1)
        centre, neighbour = graph["edge_index"][:, near]
        one, other, r = types[centre], types[neighbour], distance[near]
        screened = prefactor * BOHR / (charges[one] ** power + charges[other] ** power)
        decays = r.new_tensor(DECAYS)
        phi = (amplitudes * torch.exp(-decays * (r / screened)[:, None])).sum(1)
        weight = polynomial_cutoff(r / radii[one, other], self.envelope)
        energy = 0.5 * COULOMB * charges[one] * charges[other] / r * phi * weight
        return place_sums(centre, energy, len(types))
