"""Base class of generators of labelled atomic structures, written as extxyz."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.core.results import Figure, Points, Series
from scitoolkit.generators.base import ORIGIN, Accuracy, Generator, Origin, Sample

DECIMALS = 8  # of extxyz, so that the written structure is the labelled one


class FramesGenerator(Generator):
    """Base class of generators of labelled structures; a sample is a file of several structures."""

    suffix: ClassVar[str] = ".xyz"
    requires: ClassVar[tuple[str, ...]] = ("ase",)

    @abstractmethod
    def _calculator(self) -> Any:
        """Return the ASE calculator of the labels."""

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of the forces on the most distorted structure.

        They are compared with differences of the energy along a random direction.
        """
        from scitoolkit.generators.resolution import difference_error

        error = difference_error(self.most_distorted(sample), seed)
        method = "forces on the structure with the largest ones against differences of its energy"
        return Accuracy(error, self.tolerance, method)

    def most_distorted(self, sample: Sample) -> Any:
        """Return the structure of a sample with the largest force, with the calculator."""
        import numpy as np

        frames: Any = sample.frames
        atoms = max(frames, key=lambda a: float(np.abs(a.get_forces()).max())).copy()
        atoms.calc = self._calculator()
        return atoms

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return a figure of the energies over the largest forces."""
        import numpy as np

        forces = [float(np.linalg.norm(a.get_forces(), axis=1).max()) for a in frames]
        energies = [float(a.get_potential_energy()) / len(a) for a in frames]
        series = [Series(label="first sample", x=forces, y=list(energies), style="points")]
        return [
            Points(
                title="Energies",
                x_label="largest force (eV/Å)",
                y_label="energy per atom (eV)",
                series=series,
            )
        ]

    def write(self, sample: Sample, origin: Origin, path: Path) -> None:
        """Write extxyz; the first frame has the provenance of all frames."""
        import ase.io

        frames: Any = list(sample.frames)
        labels, frames[0] = frames[0].calc, frames[0].copy()
        frames[0].calc = labels
        frames[0].info[ORIGIN] = json.loads(origin.text())
        path = Path(path)
        temporary = temporary_name(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ase.io.write(temporary, frames, format="extxyz")
            move_into_place(temporary, path)
        except OSError as error:
            raise DataError(f"{error}", where=str(path)) from error
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> tuple[Any, Origin]:
        """Return the frames and the provenance of a file written by `write`."""
        import ase.io

        frames: Any = ase.io.read(path, ":", format="extxyz")
        about = frames[0].info.pop(ORIGIN, None)
        if about is None:
            raise DataError("not a sample of `scitoolkit generate`", where=str(path))
        return frames, Origin.parse(json.dumps(about))


def distorted(atoms: Any, displacement: float, strain: float, rng: Any) -> Any:
    """Return a copy with random displacements, and a random symmetric strain if it has a cell.

    Only the properties that an energy depends on are copied. Labels, constraints and other entries
    belong to the original structure: its virial would be read as that of the distorted one, and ASE
    sets the forces on constrained atoms to zero.

    Args:
        atoms: ASE atoms.
        displacement: standard deviation of each coordinate, Å.
        strain: standard deviation of each component of the strain.
        rng: NumPy's generator.
    """
    import numpy as np
    from ase import Atoms

    made = Atoms(
        numbers=atoms.numbers,
        positions=atoms.positions,
        cell=atoms.cell,
        pbc=atoms.pbc,
        charges=atoms.get_initial_charges(),
        magmoms=atoms.get_initial_magnetic_moments(),
    )
    if made.cell.rank == 3:
        change = strain * rng.standard_normal((3, 3))
        made.set_cell(made.cell @ (np.eye(3) + (change + change.T) / 2), scale_atoms=True)
    rattled = made.positions + displacement * rng.standard_normal((len(made), 3))
    made.positions[:] = rattled.round(DECIMALS)
    return made


def labelled(atoms: Any, forces: Any, **labels: Any) -> Any:
    """Attach labels to the atoms and return them; forces are rounded as in extxyz."""
    from ase.calculators.singlepoint import SinglePointCalculator

    atoms.calc = SinglePointCalculator(atoms, forces=forces.round(DECIMALS), **labels)
    return atoms
