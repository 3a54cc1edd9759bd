"""Radial bases of distances, and transforms of distances that depend on the pair of species."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scitoolkit.ops.radial import radial_basis
from scitoolkit.potentials.zbl import element_data


def bessel(r: Tensor, cutoff: float, num_basis: int) -> Tensor:
    """Return sqrt(2/c) sin(n pi r/c) / r for n = 1..num_basis, shape (E, num_basis)."""
    n = torch.arange(1, num_basis + 1, dtype=r.dtype, device=r.device) / cutoff
    return math.sqrt(2 / cutoff) * math.pi * n * torch.sinc(n * r[:, None])


def gaussian(r: Tensor, cutoff: float, num_basis: int) -> Tensor:
    """Return Gaussians at distances 0 to the cutoff, as wide as they are apart."""
    centres = torch.linspace(0, cutoff, num_basis, dtype=r.dtype, device=r.device)
    width = cutoff / max(1, num_basis - 1)
    return torch.exp(-0.5 * ((r[:, None] - centres) / width).square())


def chebyshev(r: Tensor, cutoff: float, num_basis: int) -> Tensor:
    """Return Chebyshev polynomials T_1..T_num_basis of the distance itself, as mace-torch does."""
    values = [torch.ones_like(r), r]
    for _ in range(num_basis - 1):
        values.append(2 * r * values[-1] - values[-2])
    return torch.stack(values[1:], dim=1)


BASES: dict[str, Callable[[Tensor, float, int], Tensor]] = {
    "bessel": bessel, "gaussian": gaussian, "chebyshev": chebyshev,
}  # fmt: skip


def polynomial_cutoff(u: Tensor, power: int) -> Tensor:
    """Return 1 - (p+1)(p+2)/2 u^p + p(p+2) u^(p+1) - p(p+1)/2 u^(p+2), zero from u = 1 on.

    Source: Klicpera et al. 2020, Directional Message Passing, equation 8.
    """
    p = power
    inside = (
        1
        - (p + 1) * (p + 2) / 2 * u**p
        + p * (p + 2) * u ** (p + 1)
        - p * (p + 1) / 2 * u ** (p + 2)
    )
    return inside * (u < 1)


class DistanceTransform(nn.Module, ABC):
    """Replaces the distance in a radial basis by a function of it and the pair's radii.

    Args:
        type_map: species, elements.
    """

    def __init__(self, type_map: Sequence[str]) -> None:
        super().__init__()
        radii = element_data(type_map)[1]
        self.radii: Tensor
        self.register_buffer("radii", radii[:, None] + radii[None, :])

    @abstractmethod
    def forward(self, r: Tensor, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Return (E,) of distances in Å (E,) and types of both atoms (E,)."""


class AgnesiTransform(DistanceTransform):
    """1 / (1 + a u^q / (1 + u^(q - p))), u the distance over the mean covalent radius of the pair.

    Source: Witt et al., J. Chem. Phys. 159, 164101 (2023), section on radial transforms.
    """

    def __init__(self, type_map: Sequence[str]) -> None:
        super().__init__(type_map)
        for name, value in (("a", 1.0805), ("q", 0.9183), ("p", 4.5791)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def forward(self, r: Tensor, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Return the transformed distances; see `DistanceTransform`."""
        a, q, p = (self.get_buffer(name) for name in "aqp")
        u = r / (0.5 * self.radii[centre, neighbour])
        return 1 / (1 + a * u**q / (1 + u ** (q - p)))


class SoftTransform(DistanceTransform):
    """Constant at short distances and the distance itself from 4/3 of the pair's bond length on."""

    def __init__(self, type_map: Sequence[str]) -> None:
        super().__init__(type_map)
        self.alpha: Tensor
        self.register_buffer("alpha", torch.tensor(4.0, dtype=torch.float64))

    def forward(self, r: Tensor, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Return the transformed distances; see `DistanceTransform`."""
        bond = self.radii[centre, neighbour]
        low, high = 3 / 4 * bond, 4 / 3 * bond
        steepness = self.alpha / (high - low)
        share = 0.5 * (1 + torch.tanh(steepness * (r - 0.5 * (low + high))))
        return low + (r - low) * share


TRANSFORMS: dict[str, type[DistanceTransform]] = {
    "agnesi": AgnesiTransform, "soft": SoftTransform,
}  # fmt: skip


@dataclass(frozen=True)
class RadialBasis:
    """Radial functions of edges, times the polynomial cutoff unless that multiplies the weights.

    Args:
        cutoff: Å.
        num_basis: number of functions.
        envelope: power of the polynomial cutoff.
        kind: bessel, gaussian or chebyshev.
        apply_cutoff: multiply the functions; else `cutoff_factor` multiplies what is made of them.
    """

    cutoff: float
    num_basis: int
    envelope: int
    kind: str = "bessel"
    apply_cutoff: bool = True

    def __call__(self, r: Tensor, transformed: Tensor | None = None) -> Tensor:
        """Return the basis (E, num_basis) at distances in Å, or at their transformed values."""
        if self.kind == "bessel" and self.apply_cutoff and transformed is None:
            return radial_basis(r, self.cutoff, num_basis=self.num_basis, envelope=self.envelope)
        basis = BASES[self.kind](
            r if transformed is None else transformed, self.cutoff, self.num_basis
        )
        factor = self._polynomial(r)[:, None] if self.apply_cutoff else 1.0
        return basis * factor

    def cutoff_factor(self, r: Tensor) -> Tensor | None:
        """Return (E, 1) that multiplies the radial weights, or None."""
        return None if self.apply_cutoff else self._polynomial(r)[:, None]

    def _polynomial(self, r: Tensor) -> Tensor:
        return polynomial_cutoff(r / self.cutoff, self.envelope)
