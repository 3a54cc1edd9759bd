"""ZBL repulsion of mace-torch and nequip, which is part of their models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.equivariant.radial_functions import polynomial_cutoff
from scitoolkit.potentials.zbl import (
    AMPLITUDES,
    DECAYS,
    SCREENING_LENGTH,
    SCREENING_POWER,
    element_data,
)


@dataclass(frozen=True)
class ScreeningConstants:
    """Constants of the screened repulsion of a program.

    Attributes:
        coulomb: e²/(4 pi epsilon_0), eV Å.
        length: a0, Å.
        prefactor, power: of a = a0 · `prefactor` / (Z^`power` + Z'^`power`).
        amplitudes, decays: c_k and d_k of the four exponentials.
    """

    coulomb: float
    length: float
    prefactor: float
    power: float
    amplitudes: tuple[float, ...]
    decays: tuple[float, ...]


MACE = ScreeningConstants(
    14.3996, 0.529, 0.4543, 0.3, (0.1818, 0.5099, 0.2802, 0.02817), (3.2, 0.9423, 0.4028, 0.2016)
)
UNIVERSAL = ScreeningConstants(
    14.399645, SCREENING_LENGTH, 1.0, SCREENING_POWER, AMPLITUDES, DECAYS
)


class PairRepulsion(nn.Module):
    """ZBL pair energies w(r) e² Z Z' / r · sum_k c_k exp(-d_k r / a), w a polynomial cutoff.

    a = a0 · `prefactor` / (Z^`power` + Z'^`power`). Unlike that of `ZblConfig` it is part of the
    energy that is fitted to the labels. It has no trainable parameters.

    Args:
        type_map: chemical symbols.
        envelope: power of the polynomial cutoff.
        constants: of mace-torch (`MACE`) or nequip (`UNIVERSAL`).
        outer: distance at which w falls to zero, Å; by default the sum of the covalent radii.

    Source: Ziegler, Biersack, Littmark, The Stopping and Range of Ions in Solids (1985).
    """

    def __init__(
        self,
        type_map: Sequence[str],
        envelope: int,
        constants: ScreeningConstants = MACE,
        outer: float | None = None,
    ) -> None:
        super().__init__()
        numbers, radii = element_data(type_map)
        self.envelope, self.constants = envelope, constants
        ends = radii[:, None] + radii[None, :]
        for name, value in {
            "charges": numbers,
            "amplitudes": torch.tensor(constants.amplitudes, dtype=torch.float64),
            "power": torch.tensor(constants.power, dtype=torch.float64),
            "prefactor": torch.tensor(constants.prefactor, dtype=torch.float64),
            "radii": ends if outer is None else torch.full_like(ends, outer),
        }.items():
            self.register_buffer(name, value.double())

    def pair_table(self) -> tuple[Tensor, Tensor]:
        """Return e² Z Z', 1/a, 0 and the end of the switch of each pair, (4, T, T), and the c_k."""
        charges, radii, amplitudes, power, prefactor = (
            self.get_buffer(name)
            for name in ("charges", "radii", "amplitudes", "power", "prefactor")
        )
        powers = charges**power
        inverse = (powers[:, None] + powers[None, :]) / (prefactor * self.constants.length)
        product = self.constants.coulomb * charges[:, None] * charges[None, :]
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
        length = prefactor * self.constants.length
        screened = length / (charges[one] ** power + charges[other] ** power)
        decays = r.new_tensor(self.constants.decays)
        phi = (amplitudes * torch.exp(-decays * (r / screened)[:, None])).sum(1)
        weight = polynomial_cutoff(r / radii[one, other], self.envelope)
        energy = 0.5 * self.constants.coulomb * charges[one] * charges[other] / r * phi * weight
        return place_sums(centre, energy, len(types))
