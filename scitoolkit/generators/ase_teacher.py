"""Generator `ase_teacher`: structures labelled by an ASE calculator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.config import DataPath
from scitoolkit.core.errors import (
    BackendError,
    ConfigError,
    DataError,
    NumericalError,
    ScitoolkitError,
)
from scitoolkit.generators.atom_frames import FramesGenerator, distorted, labelled
from scitoolkit.generators.base import Sample

# Configurations are untrusted: they may only select one of these modules.
CALCULATORS = {
    "emt": ("ase", "ase.calculators.emt", "EMT"),
    "lj": ("ase", "ase.calculators.lj", "LennardJones"),
    "pyscf": ("pyscf", "scitoolkit.generators.pyscf_calculator", "PySCF"),
    "tblite": ("tblite", "tblite.ase", "TBLite"),
    "xtb": ("xtb", "xtb.ase.calculator", "XTB"),
}
"""{name: (package to install, module, class)}."""
SMALLEST_FORCE = 1e-3  # eV/Å, lower bound of the force that the sum of forces is divided by


class AseTeacher(FramesGenerator):
    """Rattled, strained structures labelled by an ASE calculator: xTB, PySCF, EMT, LJ.

    Attributes:
        structures: extxyz file of the structures that are distorted.
        molecule: name of a molecule of ASE's g2 collection, instead of a file.
        calculator: computes the labels; pyscf, tblite and xtb require the packages of these names.
        options: arguments of the calculator, such as `method: GFN2-xTB`, or of PySCF `method: PBE`
            and `basis: def2-svp`; see `scitoolkit.generators.pyscf_calculator`.
        displacement: standard deviation of each coordinate, Å.
        strain: standard deviation of each component of the symmetric strain of periodic structures.
        frames: number of structures in a sample.
        force_sum: largest accepted ratio of the sum of forces to the largest force.
    """

    name: Literal["ase_teacher"] = "ase_teacher"
    parameters: ClassVar[Mapping[str, str]] = {"displacement": "Å", "strain": "1"}
    equations: ClassVar[str] = "those of the calculator; labels are energy, forces and stress"
    scheme: ClassVar[str] = "single points of randomly displaced and strained structures"
    reference: ClassVar[str] = (
        "Larsen et al. 2017, J. Phys.: Condens. Matter 29, 273002 (ASE); that of the calculator"
    )

    structures: DataPath | None = None
    molecule: str | None = None
    calculator: Literal["emt", "lj", "pyscf", "tblite", "xtb"] = "tblite"
    options: Mapping[str, str | float | int | bool] = {}
    displacement: Annotated[NonNegativeFloat, Field(le=1)] = 0.1
    strain: Annotated[NonNegativeFloat, Field(le=0.2)] = 0.0
    frames: PositiveInt = 8
    force_sum: PositiveFloat = 1e-3

    @model_validator(mode="after")
    def _one_source(self) -> AseTeacher:
        """Require either a file of structures or a molecule."""
        if (self.structures is None) == (self.molecule is None):
            raise ValueError("give either structures (an extxyz file) or molecule (a name of g2)")
        return self

    def geometries(self, seed: int) -> list[Any]:
        """Return the distorted structures of a sample without labels."""
        import numpy as np

        rng, starts, structures = np.random.default_rng(seed), self._starts(), []
        for _ in range(self.frames):
            chosen = starts[int(rng.integers(len(starts)))]
            structures.append(distorted(chosen, self.displacement, self.strain, rng))
        return structures

    def generate(self, seed: int) -> Sample:
        """Return the labelled structures.

        Raises:
            BackendError: the calculator's package is missing.
            ConfigError: the calculator does not support an element or an option.
            NumericalError: a label is not finite.
        """
        import numpy as np

        calculator, made, worst = self._calculator(), [], 0.0
        for number, atoms in enumerate(self.geometries(seed)):
            labels = self._labels(atoms, calculator)
            if not all(np.isfinite(label).all() for label in labels.values()):
                raise NumericalError(
                    "a label is not finite",
                    where=f"{self.calculator}, structure {number}",
                    fix="a smaller displacement",
                )
            largest = max(float(np.abs(labels["forces"]).max()), SMALLEST_FORCE)
            worst = max(worst, float(np.abs(labels["forces"].sum(0)).max()) / largest)
            made.append(labelled(atoms, **labels))
        return Sample(made, {"force_sum": worst})

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bound of the sum of forces, which is zero for converged calculators."""
        return {"force_sum": self.force_sum}

    def _labels(self, atoms: Any, calculator: Any) -> dict[str, Any]:
        atoms.calc = calculator
        try:
            labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
            if atoms.cell.rank == 3 and "stress" in calculator.implemented_properties:
                labels["stress"] = atoms.get_stress()
        except ScitoolkitError:
            raise
        except (NotImplementedError, KeyError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"{self.calculator} cannot label {atoms.get_chemical_formula()} ({error})",
                where="generator.calculator",
            ) from None
        return labels

    def _starts(self) -> list[Any]:
        import ase.io
        from ase.build import molecule

        if self.molecule is not None:
            try:
                return [molecule(self.molecule)]
            except (KeyError, NotImplementedError):
                raise ConfigError(
                    f"molecule {self.molecule!r}", allowed="a name of ase.collections.g2"
                ) from None
        try:
            structures: Any = ase.io.read(str(self.structures), ":", format="extxyz")
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise DataError(
                f"not an extxyz file ({type(error).__name__}: {error})", where=str(self.structures)
            ) from None
        if not structures:
            raise DataError("no structure", where=str(self.structures))
        return list(structures)

    def _calculator(self) -> Any:
        """Return the calculator, after a check of its options."""
        package, module, name = CALCULATORS[self.calculator]
        try:
            kind = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise BackendError(
                f"calculator={self.calculator} needs the package {package!r} ({error})",
                fix=f"pip install {package}, or calculator=emt",
            ) from None
        for key in self.options:  # ASE calculators ignore unknown options
            if key not in kind.default_parameters:
                raise ConfigError(
                    f"{key!r} is not an option of {self.calculator}",
                    where="generator.options",
                    allowed=", ".join(kind.default_parameters),
                )
        return kind(**self.options)
