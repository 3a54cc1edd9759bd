"""An ASE calculator over an exported potential: no torch in the calculation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.suggest import nearest_name
from scitoolkit.potentials.export.library import MovingSystem, PotentialLibrary

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
        skin: Å by which the neighbour list reaches beyond the cutoff; it is kept until an atom has
            moved by half of it, or the cell, the species or the boundaries change. 0 makes a list
            every time.

    Attributes:
        library: the library.
        system: the kept list; `system.lists_made` counts.

    Raises:
        CheckpointError: no library there, or a damaged one.
        ConfigError: a negative skin.
    """

    implemented_properties: ClassVar[list[str]] = [  # type: ignore[misc]
        "energy", "free_energy", "energies", "forces", "stress",
    ]  # fmt: skip

    def __init__(self, folder: Path | str, *, threads: int = 1, skin: float = 0.5) -> None:
        super().__init__()
        self.library: PotentialLibrary = PotentialLibrary(folder, threads=threads)
        self.system: MovingSystem = self.library.moving(skin)

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        """Fill `results` with all properties; a stress needs a periodic direction and a cell."""
        super().calculate(atoms, properties, system_changes)
        system: Any = self.atoms
        whole = system.cell.complete()
        found = self.system.compute(
            system.positions, self._species(system), whole.array, system.pbc
        )
        self.results: dict[str, float | Any] = {
            "energy": found["energy"], "free_energy": found["energy"],
            "energies": found["atomic_energy"], "forces": found["forces"],
        }  # fmt: skip
        if system.pbc.any() and system.cell.rank == 3:
            stress = -found["virial"] / system.get_volume()
            stress = 0.5 * (stress + stress.T)
            self.results["stress"] = stress[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]

    def _species(self, atoms: Any) -> np.ndarray[Any, Any]:
        known = {name: place for place, name in enumerate(self.library.species)}
        symbols = atoms.get_chemical_symbols()
        for name in symbols:
            if name not in known:
                raise DataError(
                    f"the potential has no element {name!r}", allowed=", ".join(known),
                    fix=nearest_name(name, list(known)) or "",
                )  # fmt: skip
        return np.array([known[name] for name in symbols], dtype=np.int32)
