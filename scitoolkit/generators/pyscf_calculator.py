"""ASE calculator of molecules with PySCF: Hartree-Fock and density functional theory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from ase.calculators.calculator import Calculator, all_changes
from ase.units import Bohr, Hartree

from scitoolkit.core.errors import ConfigError, NumericalError

ORBITAL_GRADIENT = 1e-6
"""Convergence of the orbital gradient, Hartree; PySCF's default leaves 1e-3 eV/Å in the forces."""


class PySCF(Calculator):
    """ASE calculator of energy (eV) and forces (eV/Å) of a molecule; open shells are unrestricted.

    Args:
        method: `HF`, or PySCF's name of a functional, such as `PBE` or `B3LYP`.
        basis: PySCF's name of a basis, with its effective core potentials, if any.
        charge: of the molecule, in elementary charges.
        multiplicity: 2 S + 1; by default 1 or 2, by the number of electrons.
        grid: level of the integration grid, 0 (coarse) to 9.
        convergence: of the energy between iterations, eV.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "forces"]  # type: ignore[misc]
    default_parameters: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "method": "PBE",
        "basis": "def2-svp",
        "charge": 0,
        "multiplicity": None,
        "grid": 3,
        "convergence": 1e-8,
    }

    def calculate(
        self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes
    ) -> None:
        """Compute energy and forces.

        Raises:
            ConfigError: the structure is periodic, the basis is for pseudopotentials (gth), or
                charge and multiplicity are inconsistent.
            NumericalError: the self-consistent field does not converge.
        """
        from pyscf import gto

        super().calculate(atoms, properties, system_changes)
        system, settings = self.atoms, self.parameters
        assert system is not None
        if system.pbc.any():
            raise ConfigError(
                "a periodic structure; calculator=pyscf only labels molecules",
                fix="pbc=False, or calculator=tblite",
            )
        electrons = int(system.numbers.sum()) - settings["charge"]
        unpaired = (
            electrons % 2 if settings["multiplicity"] is None else settings["multiplicity"] - 1
        )
        if unpaired < 0 or (electrons - unpaired) % 2 or unpaired > electrons:
            raise ConfigError(
                f"multiplicity {unpaired + 1} with {electrons} electrons",
                allowed="odd for an even number of electrons, even for an odd one",
            )
        symbols = system.get_chemical_symbols()
        molecule = gto.M(
            atom=list(zip(symbols, system.positions.tolist(), strict=True)),
            basis=settings["basis"],
            ecp=_core_potentials(settings["basis"], symbols),
            charge=settings["charge"],
            spin=unpaired,
            unit="Angstrom",
            verbose=0,
        )
        field = _field(molecule, settings["method"], settings["grid"])
        field.conv_tol, field.conv_tol_grad = settings["convergence"] / Hartree, ORBITAL_GRADIENT
        energy = field.kernel()
        if not field.converged:
            raise NumericalError(
                f"{settings['method']}/{settings['basis']} does not converge",
                where=system.get_chemical_formula(),
                fix="a smaller displacement",
            )
        gradient = np.asarray(field.nuc_grad_method().kernel())
        self.results = {"energy": float(energy) * Hartree, "forces": -gradient * Hartree / Bohr}


def _core_potentials(basis: str, symbols: Sequence[str]) -> dict[str, str]:
    """Return the effective core potential of each element for which the basis has one.

    PySCF does not add them by itself: core electrons would then occupy a basis for valence
    electrons.

    Raises:
        ConfigError: the basis is for pseudopotentials of periodic codes.
    """
    from pyscf.data.elements import charge
    from pyscf.gto.mole import bse_predefined_ecp

    if basis.lower().startswith("gth"):
        raise ConfigError(
            f"basis {basis}, which needs pseudopotentials",
            where="generator.options",
            allowed="a basis of molecules, such as def2-svp",
        )
    potential, replaced = bse_predefined_ecp(basis, symbols)
    return {s: potential for s in set(symbols) if charge(s) in (replaced or ())}


def _field(molecule: Any, method: str, grid: int) -> Any:
    """Return the mean field: restricted for closed shells, unrestricted otherwise."""
    from pyscf import dft, scf

    closed = molecule.spin == 0
    if method.upper() == "HF":
        return scf.RHF(molecule) if closed else scf.UHF(molecule)
    field = dft.RKS(molecule) if closed else dft.UKS(molecule)
    field.xc, field.grids.level = method, grid
    return field
