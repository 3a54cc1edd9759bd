"""Tight binding of carbon: Slater-Koster sp3 with the parameters of Xu, Wang, Chan and Ho.

Source: Xu, Wang, Chan and Ho 1992, "A transferable tight-binding potential for carbon", J. Phys.:
Condens. Matter 4, 6047. Energies in eV, lengths in Å. Orbitals of an atom: s, px, py, pz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

ONSITE = np.array([-2.99, 3.71, 3.71, 3.71])
SS, SP, PP_SIGMA, PP_PI = -5.0, 4.7, 5.5, -1.55
CUTOFF = 2.6
ORBITALS = 4
ELECTRONS = 4


@dataclass(frozen=True)
class Decay:
    """scale (r0 / r)^n exp(n ((r0 / rc)^nc - (r / rc)^nc)) up to `join`, a cubic to the cutoff."""

    scale: float
    r0: float
    n: float
    rc: float
    nc: float
    join: float
    tail: tuple[float, float, float, float]

    def __call__(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values and derivatives at distances."""
        power = (r / self.rc) ** self.nc
        value = self.scale * (self.r0 / r) ** self.n
        value = value * np.exp(self.n * ((self.r0 / self.rc) ** self.nc - power))
        slope = -value * self.n * (1 + self.nc * power) / r
        x = r - self.join
        c0, c1, c2, c3 = self.tail
        inside, outside = r < self.join, r >= CUTOFF
        value = np.where(inside, value, c0 + x * (c1 + x * (c2 + x * c3)))
        slope = np.where(inside, slope, c1 + x * (2 * c2 + x * 3 * c3))
        return np.where(outside, 0.0, value), np.where(outside, 0.0, slope)


HOPPING = Decay(
    1.0, 1.536329, 2.0, 2.18, 6.5, 2.45,
    (6.7392620074314e-3, -8.1885359517898e-2, 0.1932365259144, 0.3542874332380),
)  # fmt: skip
REPULSION = Decay(
    8.18555, 1.64, 3.30304, 2.1052, 8.6655, 2.57,
    (2.2504290109e-8, -1.4408640561e-6, 2.1043303374e-5, 6.6024390226e-5),
)  # fmt: skip
EMBEDDING = (
    -2.5909765118191, 0.5721151498619, -1.7896349903996e-3, 2.3539221516757e-5,
    -1.24251169551587e-7,
)  # fmt: skip


@dataclass(frozen=True)
class Pairs:
    """Directed pairs of atoms within the cutoff: `vector` points from i to j, (pairs, 3)."""

    i: np.ndarray
    j: np.ndarray
    vector: np.ndarray
    num_atoms: int

    @classmethod
    def of(cls, atoms: Any) -> Pairs:
        """Return the pairs of an ASE structure."""
        from ase.neighborlist import neighbor_list

        i, j, vector = neighbor_list("ijD", atoms, CUTOFF)
        return cls(i, j, vector, len(atoms))


def blocks(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hopping blocks (pairs, 4, 4) and their derivatives by the vector (pairs, 3, 4, 4)."""
    r = np.linalg.norm(vector, axis=1)
    d = vector / r[:, None]
    value, slope = HOPPING(r)
    angular = np.zeros((len(r), 4, 4))
    angular[:, 0, 0] = SS
    angular[:, 0, 1:], angular[:, 1:, 0] = SP * d, -SP * d
    angular[:, 1:, 1:] = (PP_SIGMA - PP_PI) * d[:, :, None] * d[:, None] + PP_PI * np.eye(3)
    turn = (np.eye(3) - d[:, :, None] * d[:, None]) / r[:, None, None]  # d d_a / d r_c
    change = np.zeros((len(r), 3, 4, 4))
    change[:, :, 0, 1:], change[:, :, 1:, 0] = SP * turn, -SP * turn
    outer = turn[:, :, :, None] * d[:, None, None] + d[:, None, :, None] * turn[:, :, None]
    change[:, :, 1:, 1:] = (PP_SIGMA - PP_PI) * outer
    gradient = slope[:, None, None, None] * d[:, :, None, None] * angular[:, None]
    return value[:, None, None] * angular, gradient + value[:, None, None, None] * change


def hamiltonian(pairs: Pairs, block: np.ndarray) -> sp.csr_array:
    """Return the Hamiltonian, (4 atoms, 4 atoms); images of a pair add up."""
    within, across = np.indices((ORBITALS, ORBITALS))
    rows = (ORBITALS * pairs.i[:, None, None] + within).ravel()
    cols = (ORBITALS * pairs.j[:, None, None] + across).ravel()
    n = ORBITALS * pairs.num_atoms
    hops = sp.csr_array(sp.coo_array((block.ravel(), (rows, cols)), shape=(n, n)))
    return sp.csr_array(hops + sp.diags_array(np.tile(ONSITE, pairs.num_atoms)))


def repulsion(pairs: Pairs) -> tuple[float, np.ndarray]:
    """Return the repulsive energy and its derivative by the vector of each pair, (pairs, 3)."""
    r = np.linalg.norm(pairs.vector, axis=1)
    value, slope = REPULSION(r)
    x = np.bincount(pairs.i, value, pairs.num_atoms)
    energy = np.polynomial.polynomial.polyval(x, EMBEDDING)
    change = np.polynomial.polynomial.polyval(x, np.arange(1, 5) * np.array(EMBEDDING[1:]))
    return float(np.sum(energy)), (change[pairs.i] * slope / r)[:, None] * pairs.vector


def pair_density(d: sp.csr_array, pairs: Pairs) -> np.ndarray:
    """Return the blocks of the density matrix of each pair, (pairs, 4, 4)."""
    blocked = sp.bsr_array(d, blocksize=(4, 4))
    blocked.sort_indices()
    starts = blocked.indptr
    keys = np.repeat(np.arange(pairs.num_atoms), np.diff(starts)) * pairs.num_atoms
    place = np.searchsorted(keys + blocked.indices, pairs.i * pairs.num_atoms + pairs.j)
    return blocked.data[place]
