"""ASE calculator of tight-binding carbon or silicon."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from ase.calculators.calculator import Calculator, all_changes

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.submatrix.carbon import CARBON
from scitoolkit.generators.submatrix.chebyshev import ChebyshevSubmatrices
from scitoolkit.generators.submatrix.density import DensityMethod, occupations
from scitoolkit.generators.submatrix.functions import Submatrices
from scitoolkit.generators.submatrix.pattern import compact_blocks, powers
from scitoolkit.generators.submatrix.silicon import SILICON
from scitoolkit.generators.submatrix.slater_koster import (
    ELECTRONS,
    ORBITALS,
    NeighbourPairs,
    SlaterKoster,
    pair_density,
)

GROUP = 8
SMALL = 1024
"""Number of orbitals up to which dense diagonalisation takes less than a second."""
ELEMENTS = {model.symbol: model for model in (CARBON, SILICON)}
Method = Literal["submatrix", "chebyshev", "dense"]


class TightBinding(Calculator):
    """Tight-binding energy (eV), forces (eV/Å) and stress (eV/Å³) of carbon or silicon at Gamma.

    Args:
        hops: the submatrices have the sparsity pattern of H**hops; a larger value is more accurate.
        temperature: of the electrons, eV; 0 requires a gap. At a finite temperature the forces are
            the derivatives of `free_energy`.
        method: `submatrix`, of linear cost in the number of atoms; `chebyshev`, likewise without
            diagonalisation, faster for large gaps; `dense`, exact.
        error: largest accepted estimated error of the density matrix at temperature 0. Structures
            of at most 1,024 orbitals with a larger one are computed by the dense method, others are
            refused. Energy, electrons and forces, which are derivatives of the dense energy, have
            errors of this order.
    """

    implemented_properties: ClassVar[list[str]] = [  # type: ignore[misc]
        "energy",
        "free_energy",
        "forces",
        "stress",
    ]

    def __init__(
        self,
        hops: int = 3,
        temperature: float = 0.0,
        method: Method = "submatrix",
        error: float = 5e-3,
    ) -> None:
        super().__init__()
        if hops < 1 or temperature < 0:
            raise ConfigError(
                f"hops {hops}, temperature {temperature:g}", allowed="hops >= 1, >= 0"
            )
        self.hops: int = hops
        self.temperature: float = temperature
        self.method: Method = method
        self.bound: float = error

    def calculate(
        self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes
    ) -> None:
        """Compute all properties; `results` also has the estimated error and the gap.

        Raises:
            ConfigError: the structure is neither pure carbon nor pure silicon.
            NumericalError: there is no gap at temperature 0, the pattern is too small, or atoms are
                closer than the parameters are valid for.
        """
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        model = _parameters(self.atoms)
        pairs = NeighbourPairs.of(self.atoms, model.cutoff)
        block, gradient = model.blocks(pairs.vector)
        matrix = model.hamiltonian(pairs, block)
        parts = self._parts(matrix, self.method)
        density_parts = parts.density(ELECTRONS * pairs.num_atoms / 2, self.temperature)
        estimated = self.temperature == 0  # only then
        if estimated and not density_parts.error <= self.bound and matrix.shape[0] <= SMALL:
            parts = self._parts(matrix, "dense")
            density_parts = parts.density(ELECTRONS * pairs.num_atoms / 2, self.temperature)
        if estimated and not density_parts.error <= self.bound:
            raise NumericalError(
                f"the estimated error of the density matrix is {density_parts.error:.2g}",
                allowed=f"{self.bound:.2g}",
                fix=f"hops={self.hops + 1}",
            )
        repulsion, pushed = model.repulsive(pairs)
        density = pair_density(density_parts.matrix, pairs)
        # Closed shells: every orbital is doubly occupied.
        slope = 2 * np.einsum("pab,pcab->pc", density, gradient, optimize=True) + pushed
        energy = repulsion + 2 * density_parts.energy
        forces = np.zeros((pairs.num_atoms, 3))
        for c in range(3):
            # `slope` is dE/d(r_j - r_i): the force is its positive on atom i and its negative on
            # atom j.
            forces[:, c] = np.bincount(pairs.i, slope[:, c], pairs.num_atoms)
            forces[:, c] -= np.bincount(pairs.j, slope[:, c], pairs.num_atoms)
        self.results = {
            "energy": energy,
            "free_energy": energy - self._entropy(parts, density_parts.mu),
            "forces": forces,
            "density_error": density_parts.error,
            "gap": density_parts.gap,
            "electrons": 2 * density_parts.electrons,
        }
        if self.atoms.cell.rank == 3:
            virial = np.einsum("pc,pd->cd", slope, pairs.vector) / self.atoms.get_volume()
            self.results["stress"] = virial[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]

    def _parts(self, matrix: Any, method: Method) -> DensityMethod:
        assert self.atoms is not None
        n = len(self.atoms)
        if method == "dense":
            every = np.arange(ORBITALS * n)
            return Submatrices(matrix, [every], np.ones((every.size, every.size)))
        kind = ChebyshevSubmatrices if method == "chebyshev" else Submatrices
        groups = compact_blocks(self.atoms.positions, GROUP, ORBITALS)
        return kind(matrix, groups, powers(matrix, self.hops))

    def _entropy(self, parts: DensityMethod, mu: float) -> float:
        """Return the product of temperature and electronic entropy, eV."""
        if self.temperature == 0:
            return 0.0
        from scipy.special import entr

        assert self.atoms is not None
        levels = parts.levels(ELECTRONS * len(self.atoms) / 2, self.temperature)
        f = occupations(levels.values, mu, self.temperature)
        return 2 * self.temperature * float(levels.weights @ (entr(f) + entr(1 - f)))


def _parameters(atoms: Any) -> SlaterKoster:
    symbols = set(atoms.get_chemical_symbols())
    if len(symbols) != 1 or not symbols <= set(ELEMENTS):
        raise ConfigError(
            f"no tight-binding parameters for {', '.join(sorted(symbols)) or 'no atoms'}",
            allowed=" alone, or ".join(ELEMENTS) + " alone",
        )
    return ELEMENTS[symbols.pop()]
