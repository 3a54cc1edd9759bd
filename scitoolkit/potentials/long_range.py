"""Electrostatic energy beyond the cutoff, added to the energy of a potential.

Charges are fixed numbers of the elements, or latent: a network computes them and they are learned
from energies and forces alone. Forces and virial are derivatives of one energy with respect to
positions and strain, through the charges too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.ewald import open_energies, periodic_energies
from scitoolkit.potentials.latent_charges import LatentCharges
from scitoolkit.potentials.long_range_config import LongRangeConfig

NEUTRAL = 1e-6
"""Largest net fixed charge of a periodic frame, in elementary charges."""


class LongRange(nn.Module):
    """Coulomb energy of the charges of all atoms of a frame; see `LongRangeConfig`.

    Args:
        config: of the term.
        type_map: species by type index.
        cutoff: Å, of the neighbours that determine latent charges.
        seed: of the initial weights of latent charges.

    Raises:
        ConfigError: a species has no fixed charge, or a charge is of an unknown species.
    """

    def __init__(
        self, config: LongRangeConfig, type_map: Sequence[str], cutoff: float, seed: int
    ) -> None:
        super().__init__()
        self.config: LongRangeConfig = config
        self.latent: LatentCharges | None = None
        if config.charges == "latent":
            self.latent = LatentCharges(len(type_map), cutoff, config.neurons, seed)
            return
        self.values: Tensor
        self.register_buffer("values", _values(config, type_map), persistent=False)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is learned, so that the energy is subtracted from labels."""
        return self.latent is None

    def charges(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the charges (N,), elementary charges, float64, for edge vectors (E, 3), Å."""
        if self.latent is None:
            return self.values[graph["types"]]
        return self.latent(graph, vectors)

    def forward(self, graph: Batch) -> dict[str, Tensor]:
        """Return `atomic_energy` (N,), `energy` (B,), `forces` (N, 3) and `virial` (B, 3, 3).

        In training mode they can be differentiated with respect to the parameters.

        Raises:
            DataError: a frame is periodic in one or two directions, or is periodic and its fixed
                charges are not neutral.
        """
        frames = len(graph["num_atoms"])
        training = self.training and not self.is_fixed
        with torch.enable_grad():
            positions = graph["positions"].detach().double().requires_grad_()
            strain = positions.new_zeros(frames, 3, 3).requires_grad_()
            deformation = torch.eye(3, dtype=strain.dtype, device=strain.device) + strain
            moved = _deformed(positions, deformation[graph["frame"]])
            centre, neighbour = graph["edge_index"]
            shift = _deformed(graph["edge_shift"].double(), deformation[graph["frame"][centre]])
            charges = self.charges(graph, moved[neighbour] - moved[centre] + shift)
            cells = graph["cell"].double() @ deformation
            atomic = self._energies(graph, moved, charges, cells)
            slope, by_strain = torch.autograd.grad(
                atomic.sum(), [positions, strain], create_graph=training, materialize_grads=True
            )
        if not training:
            atomic = atomic.detach()
        energy = place_sums(graph["frame"], atomic, frames)
        return {"atomic_energy": atomic, "energy": energy, "forces": -slope, "virial": -by_strain}

    def _energies(self, graph: Batch, positions: Tensor, charges: Tensor, cells: Tensor) -> Tensor:
        sizes, config, parts = graph["num_atoms"].tolist(), self.config, []
        split = zip(positions.split(sizes), charges.split(sizes), cells, graph["pbc"], strict=True)
        for x, q, cell, pbc in split:
            if not bool(pbc.any()):
                parts.append(open_energies(x, q, config.width))
                continue
            self._check(pbc, q)
            parts.append(periodic_energies(x, q, cell, config.width, config.accuracy))
        return torch.cat(parts)

    def _check(self, pbc: Tensor, charges: Tensor) -> None:
        if not bool(pbc.all()):
            raise DataError(
                f"a frame with periodic directions {pbc.tolist()}, and a long range",
                allowed="periodic in three directions, or in none",
                fix="pbc = True with a vacuum that is wide",
            )
        total = float(charges.detach().sum())
        if self.is_fixed and abs(total) > NEUTRAL:
            raise DataError(
                f"the fixed charges of a periodic frame add up to {total:g}",
                allowed="0",
                fix="model.long_range.charges=latent, or other model.long_range.values",
            )


def _deformed(vectors: Tensor, deformation: Tensor) -> Tensor:
    """Return row vectors (n, 3) times the matrix (n, 3, 3) of each."""
    return (vectors[:, None] @ deformation).squeeze(1)


def _values(config: LongRangeConfig, type_map: Sequence[str]) -> Tensor:
    where = "model.long_range.values"
    for name in type_map:
        if name not in config.values:
            raise ConfigError(f"no charge of {name!r}", where=where, fix=f"{{{name}: 0}}")
    for name in config.values:
        if name not in type_map:
            raise ConfigError(
                f"a charge of {name!r}",
                where=where,
                allowed=", ".join(type_map),
                fix=nearest_name(name, list(type_map)) or "",
            )
    return torch.tensor([config.values[name] for name in type_map], dtype=torch.float64)
