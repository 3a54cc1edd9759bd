"""Orthogonal sp3 tight-binding model of one element with an embedded repulsion.

Energies in eV, lengths in Å. Orbitals of an atom: s, px, py, pz, with four electrons. The total
energy is twice the sum of the occupied levels and, for each atom, a polynomial of the sum of a
function of the distances to its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from scitoolkit.core.errors import NumericalError

ORBITALS = 4
ELECTRONS = 4


@dataclass(frozen=True)
class Decay:
    """Decay scale (r0 / r)^n exp(n ((r0 / rc)^nc - (r / rc)^nc)) up to `join`, a cubic up to `end`.

    Attributes:
        tail: coefficients of the cubic in r - join, lowest order first.
    """

    scale: float
    r0: float
    n: float
    rc: float
    nc: float
    join: float
    end: float
    tail: tuple[float, float, float, float]

    @classmethod
    def smooth(
        cls, scale: float, r0: float, n: float, rc: float, nc: float, join: float, end: float
    ) -> Decay:
        """Return the function whose cubic has continuous value and slope at both ends.

        Example:
            >>> decay = Decay.smooth(1.0, 2.0, 2.0, 3.0, 6.0, join=3.5, end=4.0)
            >>> all(abs(part[0]) < 1e-9 for part in decay(np.array([4.0 - 1e-9])))
            True
        """
        power = (join / rc) ** nc
        value = scale * (r0 / join) ** n * np.exp(n * ((r0 / rc) ** nc - power))
        slope = -value * n * (1 + nc * power) / join
        h = end - join
        # Cubic Hermite interpolation from (value, slope) at `join` to (0, 0) at `end`.
        second = -(3 * value + 2 * slope * h) / h**2
        third = (2 * value + slope * h) / h**3
        tail = (float(value), float(slope), float(second), float(third))
        return cls(scale, r0, n, rc, nc, join, end, tail)

    def __call__(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values and derivatives at distances r, Å."""
        power = (r / self.rc) ** self.nc
        value = self.scale * (self.r0 / r) ** self.n
        value = value * np.exp(self.n * ((self.r0 / self.rc) ** self.nc - power))
        slope = -value * self.n * (1 + self.nc * power) / r
        x = r - self.join
        c0, c1, c2, c3 = self.tail
        inside, outside = r < self.join, r >= self.end
        value = np.where(inside, value, c0 + x * (c1 + x * (c2 + x * c3)))
        slope = np.where(inside, slope, c1 + x * (2 * c2 + x * 3 * c3))
        return np.where(outside, 0.0, value), np.where(outside, 0.0, slope)


@dataclass(frozen=True)
class NeighbourPairs:
    """Directed pairs of atoms within a cutoff: `vector` points from i to j, (pairs, 3)."""

    i: np.ndarray
    j: np.ndarray
    vector: np.ndarray
    num_atoms: int

    @classmethod
    def of(cls, atoms: Any, cutoff: float) -> NeighbourPairs:
        """Return the pairs of an ASE structure."""
        from ase.neighborlist import neighbor_list

        i, j, vector = neighbor_list("ijD", atoms, cutoff)
        return cls(i, j, vector, len(atoms))


@dataclass(frozen=True)
class SlaterKoster:
    """Tight-binding parameters of an element.

    Attributes:
        symbol: of the element.
        onsite: levels of s and p, eV.
        ss: hopping integral, eV, as factor and decay function.
        sp: likewise.
        pp_sigma: likewise.
        pp_pi: likewise.
        repulsion: function of the distance that is summed over the neighbours.
        embedding: coefficients of the polynomial of that sum, lowest order first, eV.
        cutoff: distance beyond which all functions are zero, Å.
    """

    symbol: str
    onsite: tuple[float, float]
    ss: tuple[float, Decay]
    sp: tuple[float, Decay]
    pp_sigma: tuple[float, Decay]
    pp_pi: tuple[float, Decay]
    repulsion: Decay
    embedding: tuple[float, float, float, float, float]
    cutoff: float

    def blocks(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return hopping blocks (pairs, 4, 4), eV, and their derivatives (pairs, 3, 4, 4), eV/Å.

        Args:
            vector: from the first atom to the second, (pairs, 3), Å.
        """
        r = np.linalg.norm(vector, axis=1)
        d = vector / r[:, None]
        (ss, ss_slope), (sp, sp_slope), (sigma, sigma_slope), (pi, pi_slope) = self._integrals(r)
        # Slater and Koster (1954), Phys. Rev. 94, 1498, table I, with direction cosines d: E_s,a =
        # d_a V_sp and E_a,b = d_a d_b (V_sigma - V_pi) + delta_ab V_pi.
        dd = d[:, :, None] * d[:, None]
        turn = (np.eye(3) - dd) / r[:, None, None]  # d d_a / d r_c
        block = np.empty((len(r), 4, 4))
        block[:, 0, 0] = ss[:, 0, 0]
        block[:, 0, 1:], block[:, 1:, 0] = sp[:, 0] * d, -sp[:, 0] * d
        block[:, 1:, 1:] = (sigma - pi) * dd + pi * np.eye(3)
        gradient = np.empty((len(r), 3, 4, 4))
        gradient[:, :, 0, 0] = ss_slope[:, 0] * d
        gradient[:, :, 0, 1:] = sp_slope * dd + sp * turn
        gradient[:, :, 1:, 0] = -gradient[:, :, 0, 1:]
        radial = (sigma_slope - pi_slope) * dd + pi_slope * np.eye(3)
        outer = turn[:, :, :, None] * d[:, None, None] + d[:, None, :, None] * turn[:, :, None]
        gradient[:, :, 1:, 1:] = d[:, :, None, None] * radial[:, None]
        gradient[:, :, 1:, 1:] += (sigma - pi)[:, None] * outer
        return block, gradient

    def hamiltonian(self, pairs: NeighbourPairs, block: np.ndarray) -> sparse.csr_array:
        """Return the Hamiltonian, (4 atoms, 4 atoms), eV, summed over the images of each pair."""
        within, across = np.indices((ORBITALS, ORBITALS))
        rows = (ORBITALS * pairs.i[:, None, None] + within).ravel()
        cols = (ORBITALS * pairs.j[:, None, None] + across).ravel()
        n = ORBITALS * pairs.num_atoms
        hops = sparse.csr_array(sparse.coo_array((block.ravel(), (rows, cols)), shape=(n, n)))
        s, p = self.onsite
        return sparse.csr_array(hops + sparse.diags_array(np.tile([s, p, p, p], pairs.num_atoms)))

    def repulsive(self, pairs: NeighbourPairs) -> tuple[float, np.ndarray]:
        """Return the repulsive energy and its derivatives (pairs, 3) by the pair vectors.

        Raises:
            NumericalError: atoms are so close that the fitted polynomial decreases.
        """
        r = np.linalg.norm(pairs.vector, axis=1)
        value, slope = self.repulsion(r)
        x = np.bincount(pairs.i, value, pairs.num_atoms)
        polynomial = np.polynomial.Polynomial(self.embedding)
        if x.max(initial=0.0) > self.largest_sum():
            atom = int(np.argmax(x))
            raise NumericalError(
                f"{self.symbol} atoms {r[pairs.i == atom].min():.2f} Å apart: the parameters' "
                "repulsion is not valid there",
                where=f"atom {atom}",
                fix="a smaller displacement",
            )
        change = polynomial.deriv()(x)[pairs.i] * slope / r
        return float(np.sum(polynomial(x))), change[:, None] * pairs.vector

    def largest_sum(self) -> float:
        """Return the argument at which the embedding polynomial has its maximum, or inf."""
        turns = np.polynomial.Polynomial(self.embedding).deriv().roots()
        real = turns[(abs(turns.imag) < 1e-9 * abs(turns)) & (turns.real > 0)].real
        return float(real.min(initial=np.inf))

    def _integrals(self, r: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the four hopping integrals and their derivatives, (pairs, 1, 1) each."""
        integrals = (self.ss, self.sp, self.pp_sigma, self.pp_pi)
        decays = {decay: decay(r[:, None, None]) for _, decay in integrals}
        return [
            (factor * decays[decay][0], factor * decays[decay][1]) for factor, decay in integrals
        ]


def pair_density(d: sparse.csr_array, pairs: NeighbourPairs) -> np.ndarray:
    """Return the blocks of the density matrix of each pair, (pairs, 4, 4)."""
    blocked = sparse.bsr_array(d, blocksize=(ORBITALS, ORBITALS))
    blocked.sort_indices()
    starts = blocked.indptr
    keys = np.repeat(np.arange(pairs.num_atoms), np.diff(starts)) * pairs.num_atoms
    place = np.searchsorted(keys + blocked.indices, pairs.i * pairs.num_atoms + pairs.j)
    return blocked.data[place]
