"""Small vasprun.xml and OUTCAR files of two atoms, with the numbers that VASP would print."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Step:
    """One ionic step, as VASP prints it: Å, eV, eV/Å, kbar with VASP's sign.

    Attributes:
        cell: (3, 3).
        scaled: (2, 3) positions in units of the cell.
        forces: (2, 3).
        stress: (3, 3), positive under compression.
        energies: free energies of the electronic steps.
        energy: extrapolated to no smearing.
    """

    cell: np.ndarray
    scaled: np.ndarray
    forces: np.ndarray
    stress: np.ndarray
    energies: list[float]
    energy: float


def steps(number: int, electronic: int = 3) -> list[Step]:
    """Return steps of NaCl in a skewed cell; energies converge to 1e-6 eV."""
    rng = np.random.default_rng(5)
    out = []
    for index in range(number):
        stress = rng.normal(size=(3, 3)).round(3)
        cell = np.array([[4.0, 0, 0], [0.5, 4.2, 0], [0.1, 0.2, 4.4]]) + 0.01 * index
        last = -7.0 - 0.1 * index
        out.append(
            Step(
                cell,
                np.array([[0.0, 0, 0], [0.5, 0.5, 0.45]]),
                rng.normal(size=(2, 3)).round(4),
                stress + stress.T,
                [last + 10.0 ** (-3 * k) for k in range(electronic - 1)] + [last],
                last + 0.02,
            )
        )
    return out


def _vectors(name: str, rows: np.ndarray) -> str:
    lines = "".join(f"<v> {' '.join(f'{x:.8f}' for x in row)} </v>\n" for row in rows)
    return f'<varray name="{name}" >\n{lines}</varray>\n'


def _structure(step: Step, name: str = "") -> str:
    crystal = f"<crystal>\n{_vectors('basis', step.cell)}</crystal>\n"
    return f"<structure{name}>\n{crystal}{_vectors('positions', step.scaled)}</structure>\n"


def _energy(free: float, energy: float) -> str:
    return (
        f'<energy>\n<i name="e_fr_energy"> {free:.8f} </i>\n'
        f'<i name="e_0_energy"> {energy:.8f} </i>\n</energy>\n'
    )


def vasprun(trajectory: list[Step], most: int = 60, fixed: bool = False) -> str:
    """Return the text of a vasprun.xml whose electronic steps may be `most`.

    Args:
        trajectory: the ionic steps.
        most: NELM.
        fixed: whether selective dynamics fixes the first atom.
    """
    first = _structure(trajectory[0], ' name="initialpos"')
    if fixed:
        flags = '<varray name="selective" ><v type="logical"> F F F </v>'
        flags += '<v type="logical"> T T T </v></varray>\n'
        first = first.replace("</structure>", f"{flags}</structure>")
    text = (
        "<modeling>\n<kpoints>\n"
        f"{_vectors('kpointlist', np.zeros((1, 3)))}{_vectors('weights', np.ones((1, 1)))}"
        "</kpoints>\n<parameters>\n<separator>\n"
        f'<i type="int" name="NELM"> {most} </i>\n<i name="EDIFF"> 0.00001000</i>\n'
        "</separator>\n</parameters>\n<atominfo>\n"
        '<array name="atoms" ><set>\n<rc><c>Na</c><c> 1</c></rc>\n<rc><c>Cl</c><c> 2</c></rc>\n'
        f"</set></array>\n</atominfo>\n{first}"
    )
    for step in trajectory:
        text += "<calculation>\n"
        for free in step.energies:
            text += f"<scstep>\n{_energy(free, free + step.energy - step.energies[-1])}</scstep>\n"
        text += _structure(step) + _vectors("forces", step.forces)
        text += _vectors("stress", step.stress) + _energy(step.energies[-1], step.energy)
        text += "</calculation>\n"
    return text + "</modeling>\n"


def outcar(trajectory: list[Step], most: int = 60) -> str:
    """Return the text of an OUTCAR whose electronic steps may be `most`."""
    text = (
        " POTCAR:    PAW_PBE Na 08Apr2002\n POTCAR:    PAW_PBE Cl 06Sep2000\n"
        " POTCAR:    PAW_PBE Na 08Apr2002\n POTCAR:    PAW_PBE Cl 06Sep2000\n"
        "   k-points           NKPTS =      1   k-points in BZ     NKDIM =      1   "
        "number of bands    NBANDS=      8\n"
        f"   NELM   =     {most};   NELMIN=  2; NELMDL= -5     # of ELM steps\n"
        "   ISPIN  =      1    spin polarized calculation?\n"
        "   ions per type =               1   1\n"
        " k-points in reciprocal lattice and weights: K-Points\n"
        "   0.00000000  0.00000000  0.00000000       1.000\n\n"
    )
    for number, step in enumerate(trajectory, 1):
        for k in range(len(step.energies)):
            text += f"----- Iteration {number:6d}({k + 1:4d})  -----\n"
        if len(step.energies) < most:
            text += "------------ aborting loop because EDIFF is reached -----------\n"
        s, numbers = step.stress, " ".join
        order = (s[0, 0], s[1, 1], s[2, 2], s[0, 1], s[1, 2], s[2, 0])
        text += f"  in kB {numbers(f'{x:12.5f}' for x in order)}\n"
        text += "  direct lattice vectors                 reciprocal lattice vectors\n"
        inverse = np.linalg.inv(step.cell).T
        for row, other in zip(step.cell, inverse, strict=True):
            text += numbers(f"{x:13.9f}" for x in (*row, *other)) + "\n"
        text += "\n POSITION                                       TOTAL-FORCE (eV/Angst)\n ----\n"
        for row, force in zip(step.scaled @ step.cell, step.forces, strict=True):
            text += numbers(f"{x:13.6f}" for x in (*row, *force)) + "\n"
        text += "  FREE ENERGIE OF THE ION-ELECTRON SYSTEM (eV)\n  -----\n"
        text += f"  free  energy   TOTEN  = {step.energies[-1]:16.8f} eV\n\n"
        text += f"  energy  without entropy= {step.energy:16.8f}  "
        text += f"energy(sigma->0) = {step.energy:16.8f}\n"
    return text
