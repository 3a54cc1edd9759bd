"""ASE calculator of an exported potential; the calculation does not use torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.ase_frames import from_ase
from scitoolkit.io.atoms import checked
from scitoolkit.potentials.export.library import MovingSystem, PotentialLibrary
from scitoolkit.potentials.stress import voigt_stress

try:
    from ase.calculators.calculator import Calculator as _AseCalculator
    from ase.calculators.calculator import all_changes
except ImportError:
    raise missing_extra("ase", "potentials", "the ASE calculator") from None


class LibraryCalculator(_AseCalculator):
    """Energies (eV), forces (eV/Å) and stress (eV/Å³) of an exported potential.

    Args:
        folder: written by `scitoolkit export`.
        threads: of OpenMP.
        skin: Å by which the neighbour list reaches beyond the cutoff; the list is valid until an
            atom has moved by half of it, or the cell, the species or the boundary conditions
            change. 0 rebuilds the list on every call.

    Attributes:
        library: the library.
        system: the cached neighbour list; `system.lists_made` counts the rebuilds.

    Raises:
        CheckpointError: no library in `folder`, or a damaged one.
        ConfigError: a negative skin.
    """

    implemented_properties: ClassVar[list[str]] = [  # type: ignore[misc]
        "energy",
        "free_energy",
        "energies",
        "forces",
        "stress",
    ]

    def __init__(self, folder: Path | str, *, threads: int = 1, skin: float = 0.5) -> None:
        super().__init__()
        self.library: PotentialLibrary = PotentialLibrary(folder, threads=threads)
        self.system: MovingSystem = self.library.moving(skin)

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        """Fill `results` with all properties; the stress where `voigt_stress` defines one."""
        super().calculate(atoms, properties, system_changes)
        system: Any = self.atoms
        checked(from_ase(system))
        whole = system.cell.complete()
        predicted = self.system.compute(
            system.positions, self._species(system), whole.array, system.pbc
        )
        self.results: dict[str, float | Any] = {
            "energy": predicted["energy"],
            "free_energy": predicted["energy"],
            "energies": predicted["atomic_energy"],
            "forces": predicted["forces"],
        }
        stress = voigt_stress(predicted["virial"], system)
        if stress is not None:
            self.results["stress"] = stress

    def _species(self, atoms: Any) -> np.ndarray[Any, Any]:
        places = {name: place for place, name in enumerate(self.library.species)}
        symbols = atoms.get_chemical_symbols()
        for name in symbols:
            if name not in places:
                raise DataError(
                    f"the potential has no element {name!r}",
                    allowed=", ".join(places),
                    fix=nearest_name(name, list(places)) or "",
                )
        return np.array([places[name] for name in symbols], dtype=np.int32)
