"""Generators `tight_binding_carbon` and `tight_binding_silicon` of labelled crystals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from scitoolkit.core.results import Figure, Points, Series
from scitoolkit.generators.atom_frames import FramesGenerator, distorted, labelled
from scitoolkit.generators.base import Accuracy, Sample


class TightBindingFrames(FramesGenerator):
    """Base class of rattled, strained diamond-structure crystals labelled by tight binding.

    Attributes:
        lattice: lattice constant of the cubic cell, Å.
        displacement: standard deviation of each coordinate, Å.
        strain: standard deviation of each component of a symmetric strain.
        repeats: number of cubic cells of 8 atoms along each axis.
        frames: number of independent structures in a sample.
        method: `dense` (exact), or of linear cost for large cells: `submatrix`, or `chebyshev` for
            a wide gap.
        hops: the submatrices have the sparsity pattern of this power of the Hamiltonian.
        temperature: of the electrons, eV, for structures with a small gap or none; the energy is
            then the free energy.
    """

    symbol: ClassVar[str]
    parameters: ClassVar[Mapping[str, str]] = {
        "lattice": "Å",
        "displacement": "Å",
        "strain": "1",
    }
    equations: ClassVar[str] = (
        "E = 2 tr(D H) + sum_i F(sum_j phi(r_ij)); orthogonal sp3 tight binding, closed shells"
    )
    scheme: ClassVar[str] = "Slater-Koster Hamiltonian, density matrix dense or by submatrices"

    lattice: PositiveFloat
    displacement: Annotated[NonNegativeFloat, Field(le=0.5)] = 0.1
    strain: Annotated[NonNegativeFloat, Field(le=0.1)] = 0.02
    repeats: PositiveInt = 2
    frames: PositiveInt = 8
    method: Literal["dense", "submatrix", "chebyshev"] = "dense"
    hops: PositiveInt = 2
    temperature: NonNegativeFloat = 0.0

    def geometries(self, seed: int) -> list[Any]:
        """Return the distorted crystals without labels."""
        import numpy as np
        from ase.build import bulk

        rng = np.random.default_rng(seed)
        crystal = bulk(self.symbol, "diamond", a=self.lattice, cubic=True).repeat(self.repeats)
        return [distorted(crystal, self.displacement, self.strain, rng) for _ in range(self.frames)]

    def generate(self, seed: int) -> Sample:
        """Return the labelled structures, with electron number and sum of forces as invariants."""
        import numpy as np

        frames, drifts = [], {"electrons": 0.0, "force_sum": 0.0}
        for atoms in self.geometries(seed):
            atoms.calc = self._calculator()
            forces = atoms.get_forces()
            results = atoms.calc.results
            counted = abs(results["electrons"] / (4 * len(atoms)) - 1)
            drifts["electrons"] = max(drifts["electrons"], float(counted))
            drift = float(np.abs(forces.sum(0)).max() / max(np.abs(forces).max(), 1e-3))
            drifts["force_sum"] = max(drifts["force_sum"], drift)
            # The forces are the derivatives of the free energy.
            frames.append(
                labelled(atoms, forces, energy=results["free_energy"], stress=results["stress"])
            )
        return Sample(frames, drifts)

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of the forces on the most distorted structure.

        Forces of submatrices are compared with those of dense matrices, or of a larger pattern
        where dense ones are too large; dense ones with differences of the energy.
        """
        import numpy as np

        from scitoolkit.generators.submatrix.calculator import SMALL, TightBinding

        if self.method == "dense":
            return super().accuracy(sample, seed)
        atoms = self.most_distorted(sample)
        own = atoms.get_forces()
        dense = 4 * len(atoms) <= SMALL
        atoms.calc = (
            TightBinding(self.hops, self.temperature, "dense")
            if dense
            else TightBinding(self.hops + 1, self.temperature, self.method)
        )
        exact = atoms.get_forces()
        size = max(float(np.sqrt(np.mean(exact**2))), 1e-3)
        error = float(np.sqrt(np.mean((own - exact) ** 2))) / size
        than = "of dense matrices" if dense else f"with hops={self.hops + 1}"
        method = f"forces of {self.method} on the structure with the largest ones against {than}"
        return Accuracy(error, self.tolerance, method)

    def _calculator(self) -> Any:
        from scitoolkit.generators.submatrix.calculator import TightBinding

        return TightBinding(self.hops, self.temperature, self.method)

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bounds of the number of electrons and of the sum of forces."""
        exact = self.method == "dense" or self.temperature > 0
        return {"electrons": 1e-8 if exact else 1e-3, "force_sum": 1e-9}

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return a figure of the energies over the volumes."""
        volumes = [float(a.get_volume()) / len(a) for a in frames]
        energies = [float(a.get_potential_energy()) / len(a) for a in frames]
        series = [Series(label="first sample", x=volumes, y=list(energies), style="points")]
        return [
            Points(
                title="Energies",
                x_label="volume an atom (Å³)",
                y_label="energy per atom (eV)",
                series=series,
            )
        ]


class TightBindingCarbonFrames(TightBindingFrames):
    """Rattled, strained diamond with tight-binding energies, forces and stress, as extxyz."""

    name: Literal["tight_binding_carbon"] = "tight_binding_carbon"
    symbol: ClassVar[str] = "C"
    reference: ClassVar[str] = (
        "Xu, Wang, Chan and Ho 1992, J. Phys.: Condens. Matter 4, 6047; Lass et al. 2020, SC20"
    )

    lattice: Annotated[PositiveFloat, Field(ge=3.2, le=4.0)] = 3.56


class TightBindingSiliconFrames(TightBindingFrames):
    """Rattled, strained silicon with tight-binding energies, forces and stress, as extxyz."""

    name: Literal["tight_binding_silicon"] = "tight_binding_silicon"
    symbol: ClassVar[str] = "Si"
    reference: ClassVar[str] = (
        "Kwon, Biswas, Wang, Ho and Soukoulis 1994, Phys. Rev. B 49, 7242; Lass et al. 2020, SC20"
    )

    lattice: Annotated[PositiveFloat, Field(ge=5.0, le=6.0)] = 5.43
    temperature: NonNegativeFloat = 0.1
