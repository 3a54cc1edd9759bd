"""ZBL: screened nuclear repulsion at short distances, added to any potential."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.core.suggest import nearest_name
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.zbl_config import ZblConfig

COULOMB = 14.399645478425668  # e²/(4 pi epsilon_0) in eV Å, CODATA 2018
SCREENING_LENGTH, SCREENING_POWER = 0.46850, 0.23  # Å
AMPLITUDES = (0.18175, 0.50986, 0.28022, 0.02817)
DECAYS = (3.19980, 0.94229, 0.40290, 0.20162)


class Zbl(nn.Module):
    """ZBL pair energies V(r) = w(r) e²/(4 pi epsilon_0) Z Z' / r · sum_k c_k exp(-d_k r / a).

    a = 0.4685 Å / (Z^0.23 + Z'^0.23); w is 1 up to `inner`, 0 beyond `outer` and a quintic with two
    continuous derivatives between. It has no trainable parameters.

    Args:
        config: `inner` and `outer`, Å.
        type_map: chemical symbols.
        cutoff: of the potential, Å.

    Source: Ziegler, Biersack, Littmark, The Stopping and Range of Ions in Solids (1985), the
    universal screening function.

    Raises:
        ConfigError: a type is not a chemical element, or the switch extends beyond the cutoff.

    Example:
        >>> from scitoolkit.potentials.zbl_config import ZblConfig
        >>> term = Zbl(ZblConfig(inner=0.8, outer=1.4), ["O", "Si"], cutoff=5.0)
        >>> [round(float(each), 3) for each in term.pairs[2:, 0, 1]]
        [0.8, 1.4]
    """

    def __init__(self, config: ZblConfig, type_map: Sequence[str], cutoff: float) -> None:
        super().__init__()
        numbers, radii = element_data(type_map)
        self.cutoff = cutoff
        outer = radii[:, None] + radii[None, :]
        if config.outer is not None:
            outer = torch.full_like(outer, config.outer)
        inner = 0.5 * outer if config.inner is None else torch.full_like(outer, config.inner)
        if bool((outer > cutoff).any()) or bool((inner >= outer).any()):
            raise ConfigError(
                f"the repulsion is switched off between {inner.max():.3f} and {outer.max():.3f} Å",
                where="model.zbl",
                allowed=f"inner < outer <= cutoff, {cutoff} Å",
            )
        power = numbers**SCREENING_POWER
        charges = COULOMB * numbers[:, None] * numbers[None, :]
        table = [charges, (power[:, None] + power[None, :]) / SCREENING_LENGTH, inner, outer]
        self.pairs: Tensor
        self.register_buffer("pairs", torch.stack(table), persistent=False)

    def forward(self, graph: Batch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return atomic energies (N,) and dE/d(edge vector) (E, 3), both float64.

        Each atom of a pair has half of its energy; both directions of a pair are edges.
        """
        vectors = vectors.double()
        atomic = vectors.new_zeros(len(graph["types"]))
        gradient = torch.zeros_like(vectors)
        distance = vectors.norm(dim=1)
        near = (distance < self.pairs[3].max()).nonzero().squeeze(1)
        centre, neighbour = graph["edge_index"][:, near]
        r = distance[near]
        types = graph["types"]
        charge, scale, inner, outer = self.pairs[:, types[centre], types[neighbour]]
        energy, slope = screened(r, charge, scale)
        weight, fall = _switch(r, inner, outer)
        slope = weight * slope + fall * energy
        atomic = atomic + place_sums(centre, 0.5 * weight * energy, len(atomic))
        gradient[near] = (0.5 * slope / r)[:, None] * vectors[near]
        return atomic, gradient


def screened(r: Tensor, charge: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return charge/r · phi(scale r) in eV and its derivative in eV/Å, without the switch.

    Args:
        r: Å.
        charge: e²/(4 pi epsilon_0) Z Z', eV Å.
        scale: 1/a, 1/Å.
    """
    amplitudes, decays = r.new_tensor(AMPLITUDES), r.new_tensor(DECAYS)
    terms = amplitudes * torch.exp(-decays * (scale * r)[:, None])
    energy = charge / r * terms.sum(1)
    return energy, -energy / r - charge / r * scale * (decays * terms).sum(1)


def _switch(r: Tensor, inner: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    """Return w(r) and dw/dr."""
    width = outer - inner
    u = ((r - inner) / width).clamp(0.0, 1.0)
    return (1 - u) ** 3 * (1 + u * (3 + 6 * u)), -30 * (u * (1 - u)) ** 2 / width


def element_data(type_map: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return atomic numbers and covalent radii (Å), float64."""
    try:
        from ase.data import atomic_numbers, covalent_radii
    except ImportError:
        raise missing_extra("ase", "potentials", "the repulsion of nuclei") from None
    for name in type_map:
        if atomic_numbers.get(name, 0) < 1:
            raise ConfigError(
                f"type {name!r} is not a chemical element, whose charge the repulsion requires",
                where="model.zbl",
                fix=nearest_name(name, list(atomic_numbers)) or "zbl: null",
            )
    numbers = [atomic_numbers[name] for name in type_map]
    radii = [float(covalent_radii[number]) for number in numbers]
    return torch.tensor(numbers, dtype=torch.float64), torch.tensor(radii, dtype=torch.float64)
