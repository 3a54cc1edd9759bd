"""Worker in an environment with tblite: frames of a molecule at a temperature, by GFN2-xTB.

`python _xtb_frames.py MOLECULE KELVIN EVERY FILE:NUMBER ...` (a molecule of ASE's g2 collection)
writes extxyz files of consecutive frames of one trajectory, `EVERY` femtoseconds apart.
"""

from __future__ import annotations

import sys

import numpy as np
from ase import units
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from tblite.ase import TBLite

WARM_UP = 200  # steps of 1 fs


def main(name: str, kelvin: float, every: int, files: list[str]) -> None:
    rng = np.random.default_rng(0)
    atoms = molecule(name)
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    MaxwellBoltzmannDistribution(atoms, temperature_K=kelvin, rng=rng)
    motion = Langevin(atoms, units.fs, temperature_K=kelvin, friction=0.02 / units.fs, rng=rng)
    motion.run(WARM_UP)
    for each in files:
        file, number = each.rsplit(":", 1)
        frames = []
        for _ in range(int(number)):
            motion.run(every)
            frame = atoms.copy()
            energy, forces = atoms.get_potential_energy(), atoms.get_forces()
            frame.calc = SinglePointCalculator(frame, energy=energy, forces=forces)
            frames.append(frame)
        write(file, frames, format="extxyz")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
