"""Coulomb energies of Gaussian charges: a sum in reciprocal space, or over all pairs.

Two charges at a distance r have the energy k q q' erf(r / (sqrt(2) w)) / r, which is that of point
charges beyond a few widths w and finite at r = 0. Its Fourier transform decays as exp(-w² k² / 2),
so that the sum over the periodic images needs no part in real space:

    E = k (2 pi / V) sum_{k != 0} exp(-w² k² / 2) / k² |S(k)|² - k sum_i q_i² / (sqrt(2 pi) w)

with S(k) = sum_i q_i exp(i k x_i); the last term removes each charge's energy with itself. The term
k = 0 is left out: a conductor surrounds the crystal, and a uniform background neutralises it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.zbl import COULOMB


def periodic_energies(
    positions: Tensor, charges: Tensor, cell: Tensor, width: float, accuracy: float
) -> Tensor:
    """Return the energy of each atom of a crystal, eV, (N,), half of each pair's; differentiable.

    Args:
        positions: (N, 3) float64, Å.
        charges: (N,) float64, elementary charges.
        cell: (3, 3) float64, rows are lattice vectors, Å.
        width: w, Å.
        accuracy: relative size of the left-out terms.

    Source: Cheng, npj Computational Materials 11, 80 (2025), arXiv 2408.15165, equation 2, with the
    self-energy removed.

    Example:
        >>> cell = 100.0 * torch.eye(3, dtype=torch.float64)  # images are far away
        >>> x = torch.tensor([[0.0, 0, 0], [3.0, 0, 0]], dtype=torch.float64)
        >>> q = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> round(float(periodic_energies(x, q, cell, 0.8, 1e-8).sum()), 3)  # -14.39964 / 3
        -4.799
    """
    reciprocal = 2 * math.pi * torch.linalg.inv(cell).T
    waves = _half_sphere(cell, math.sqrt(-2 * math.log(accuracy)) / width) @ reciprocal
    square = waves.square().sum(1)
    weight = torch.exp(-0.5 * width**2 * square) / square
    phase = positions @ waves.T
    cosines, sines = phase.cos(), phase.sin()
    real, imaginary = charges @ cosines, charges @ sines
    volume = torch.linalg.det(cell).abs()
    # Both k and -k: the potential at each atom.
    waved = cosines @ (weight * real) + sines @ (weight * imaginary)
    potential = 8 * math.pi / volume * waved - charges * math.sqrt(2 / math.pi) / width
    return 0.5 * COULOMB * charges * potential


def _half_sphere(cell: Tensor, largest: float) -> Tensor:
    """Return the integers (K, 3) of the wave vectors of a half space up to a length, 1/Å."""
    reach = (cell.detach().norm(dim=1) * largest / (2 * math.pi)).floor().long().tolist()
    axes = [torch.arange(-n, n + 1, dtype=cell.dtype, device=cell.device) for n in reach]
    whole = torch.cartesian_prod(*axes).view(-1, 3)
    # cartesian_prod is in lexicographic order, so that k and -k are at mirrored places.
    half = whole[len(whole) // 2 + 1 :]
    waves = half @ (2 * math.pi * torch.linalg.inv(cell.detach()).T)
    return half[waves.square().sum(1) <= largest**2]


def open_energies(positions: Tensor, charges: Tensor, width: float) -> Tensor:
    """Return the energy of each atom of a molecule or cluster, eV, (N,); differentiable.

    Args:
        positions: (N, 3) float64, Å.
        charges: (N,) float64, elementary charges.
        width: w, Å.
    """
    number = len(positions)
    one, other = torch.triu_indices(number, number, offset=1, device=positions.device)
    distance = (positions[other] - positions[one]).norm(dim=1)
    screened = torch.erf(distance / (math.sqrt(2) * width)) / distance
    pair = COULOMB * charges[one] * charges[other] * screened
    half = 0.5 * pair
    return place_sums(torch.cat((one, other)), half.repeat(2), number)
