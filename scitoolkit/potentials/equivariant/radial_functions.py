"""Radial bases, and distance transforms that depend on the pair of species."""

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
    """Return Gaussians centred at distances 0 to the cutoff, of width equal to their spacing."""
    centres = torch.linspace(0, cutoff, num_basis, dtype=r.dtype, device=r.device)
    width = cutoff / max(1, num_basis - 1)
    return torch.exp(-0.5 * ((r[:, None] - centres) / width).square())


def chebyshev(r: Tensor, cutoff: float, num_basis: int) -> Tensor:
    """Return Chebyshev polynomials T_1..T_num_basis of the unscaled distance, as in mace-torch."""
    values = [torch.ones_like(r), r]
    for _ in range(num_basis - 1):
        values.append(2 * r * values[-1] - values[-2])
    return torch.stack(values[1:], dim=1)


BASES: dict[str, Callable[[Tensor, float, int], Tensor]] = {
    "bessel": bessel,
    "gaussian": gaussian,
    "chebyshev": chebyshev,
}


def polynomial_cutoff(u: Tensor, power: int) -> Tensor:
    """Return 1 - (p+1)(p+2)/2 u^p + p(p+2) u^(p+1) - p(p+1)/2 u^(p+2), zero for u >= 1.

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
    """Base class of distance transforms, functions of the distance and the covalent radii.

    Args:
        type_map: chemical symbols.
    """

    def __init__(self, type_map: Sequence[str]) -> None:
        super().__init__()
        radii = element_data(type_map)[1]
        self.radii: Tensor
        self.register_buffer("radii", radii[:, None] + radii[None, :])

    @abstractmethod
    def forward(self, r: Tensor, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Return transformed distances (E,) of distances (E,), Å, and types of both atoms (E,)."""


class AgnesiTransform(DistanceTransform):
    """Agnesi transform 1 / (1 + a u^q / (1 + u^(q - p))), u = r / mean covalent radius.

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
    """Soft transform: constant at short distances, the distance beyond 4/3 of the bond length."""

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
    "agnesi": AgnesiTransform,
    "soft": SoftTransform,
}


@dataclass(frozen=True)
class RadialBasis:
    """Radial basis of edges, optionally multiplied by the polynomial cutoff.

    Args:
        cutoff: Å.
        num_basis: number of functions.
        envelope: power of the polynomial cutoff.
        kind: bessel, gaussian or chebyshev.
        apply_cutoff: whether the cutoff multiplies the basis; otherwise `cutoff_factor` must
            multiply the radial weights.
    """

    cutoff: float
    num_basis: int
    envelope: int
    kind: str = "bessel"
    apply_cutoff: bool = True

    def __call__(self, r: Tensor, transformed: Tensor | None = None) -> Tensor:
        """Return the basis (E, num_basis) at distances (E,), Å, or at their transformed values."""
        if self.kind == "bessel" and self.apply_cutoff and transformed is None:
            return radial_basis(r, self.cutoff, num_basis=self.num_basis, envelope=self.envelope)
        basis = BASES[self.kind](
            r if transformed is None else transformed, self.cutoff, self.num_basis
        )
        factor = self._polynomial(r)[:, None] if self.apply_cutoff else 1.0
        return basis * factor

    def cutoff_factor(self, r: Tensor) -> Tensor | None:
        """Return the factor (E, 1) of the radial weights, or None."""
        return None if self.apply_cutoff else self._polynomial(r)[:, None]

    def _polynomial(self, r: Tensor) -> Tensor:
        return polynomial_cutoff(r / self.cutoff, self.envelope)
