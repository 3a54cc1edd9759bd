"""Files that ASE reads: databases, trajectories, and vasprun.xml and OUTCAR of VASP."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.ase_frames import from_ase
from scitoolkit.io.atoms import AtomsSource, Configuration, LabelConfig, MissingLabel, ase

log = get_logger(__name__)
VASP_FILES = {"vasprun": "vasp-xml", "OUTCAR": "vasp-out"}
"""Beginnings of names of files of VASP, and ASE's names of their formats."""
_COMPRESSED = ("", ".gz", ".bz2", ".xz")


def is_readable(path: Path) -> bool:
    """Return whether the name is one of a file that `source` opens."""
    return path.is_file() and (path.suffix.lower() in (".db", ".traj") or _vasp_format(path) != "")


def source(path: Path, labels: LabelConfig | None) -> AtomsSource:
    """Return the source of a file, None as `labels` for frames without labels."""
    if path.suffix.lower() == ".db":
        return AseDatabase(path, labels)
    if path.suffix.lower() == ".traj":
        return AseTrajectory(path, labels)
    return VaspOutput(path, labels, _vasp_format(path))


def _vasp_format(path: Path) -> str:
    """Return ASE's name of the format of an output of VASP, such as OUTCAR.gz or vasprun_2.xml."""
    end = path.suffix.lower()
    name = path.stem if end in _COMPRESSED[1:] else path.name
    for start, format_name in VASP_FILES.items():
        if name.startswith(start) and (name.endswith(".xml") == (format_name == "vasp-xml")):
            return format_name
    return ""


def labelled(
    atoms: Any, labels: LabelConfig | None, where: str, names: Callable[[], set[str]]
) -> Configuration:
    """Return the configuration of a frame; names that only other frames have are no error.

    Args:
        atoms: an `ase.Atoms`.
        labels: names of the labels, None for none.
        where: file and frame.
        names: returns the names of labels in any frame of the file.
    """
    elsewhere: set[str] = set()
    while True:
        try:
            return from_ase(atoms, labels, where, elsewhere)
        except MissingLabel as missing:
            if missing.similar or missing.name in elsewhere or missing.name not in names():
                raise
            elsewhere.add(missing.name)


class AseDatabase:
    """Source of an ASE database (sqlite .db)."""

    def __init__(self, path: Path, labels: LabelConfig | None) -> None:
        self.path: Path = path
        self._labels = labels
        try:
            self._database = ase("reading an ASE database").db.connect(path)
            # ASE fetches the chosen columns of all rows at once.
            rows = self._database.select(columns=["id", "numbers"], include_data=False)
            pairs = [(row.id, row.natoms) for row in rows]
        except Exception as error:  # sqlite raises many exception types for a damaged file
            raise DataError(f"not an ASE database ({error})", where=str(path)) from None
        # A row has no columns by atom except those of ASE; it stores others as data.
        self._columns = {"aparam", *([] if labels is None else [labels.forces_key])}
        self._ids, self._sizes = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ids)

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        return self._sizes[index]

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame.

        Raises:
            DataError: forces or parameters of another shape than (N,) or (N, ...).
        """
        where = f"{self.path}: row {self._ids[index]}"
        row = self._database.get(id=self._ids[index])
        atoms = row.toatoms(add_additional_information=True)
        data = atoms.info.pop("data", {}) or {}
        atoms.info.update({**atoms.info.pop("key_value_pairs", {}), **data})
        for name in self._columns & data.keys():
            try:
                atoms.set_array(name, np.array(data[name], dtype=np.float64))
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{name} has no value for each atom ({error})", where=where
                ) from None
        return labelled(atoms, self._labels, where, lambda: self._names)

    @cached_property
    def _names(self) -> set[str]:
        """Names of the entries of all rows."""
        names: set[str] = set()
        for row in self._database.select():
            names |= {*row.key_value_pairs, *row.data, *(row.get("calculator_parameters") or {})}
            names |= {name for name in ("energy", "forces", "stress") if row.get(name) is not None}
        return names


class AseTrajectory:
    """Source of a trajectory of ASE (.traj)."""

    def __init__(self, path: Path, labels: LabelConfig | None) -> None:
        self.path: Path = path
        self._labels = labels
        with self._open() as frames:
            self._count = len(frames)

    @contextmanager
    def _open(self, where: str = "") -> Iterator[Any]:
        ase("reading a trajectory of ASE")
        from ase.io.trajectory import TrajectoryReader

        try:
            # ASE leaves a damaged file open that it opens.
            with self.path.open("rb") as file, TrajectoryReader(file) as frames:
                yield frames
        except Exception as error:  # ASE raises many exception types for a damaged file
            text = f"not a readable trajectory of ASE ({error})"
            raise DataError(text, where=where or str(self.path)) from None

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._count

    def _read(self, index: int) -> Any:
        with self._open(f"{self.path}: frame {index}") as frames:
            return frames[index]

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        with self._open(f"{self.path}: frame {index}") as frames:
            frame = frames.backend[index]
            # Written once for frames of the same elements.
            return len(frame.numbers if "numbers" in frame else frames.numbers)

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame."""
        where = f"{self.path}: frame {index}"
        return labelled(self._read(index), self._labels, where, lambda: self._names)

    @cached_property
    def _names(self) -> set[str]:
        return names_of(self._read(index) for index in range(len(self)))


class VaspOutput:
    """Source of a vasprun.xml or OUTCAR: the ionic steps whose electronic steps converged.

    Energies and forces of other steps are wrong by any amount, and only a count in the files of
    VASP shows it; they are left out, with a warning.

    Args:
        path: of the file, which may be compressed.
        labels: names of the labels, None for none.
        format: ASE's name of the format.
    """

    def __init__(self, path: Path, labels: LabelConfig | None, format: str) -> None:
        self.path: Path = path
        self._labels, self._format = labels, format

    @cached_property
    def _steps(self) -> tuple[list[int], list[Any]]:
        """Return the numbers of the converged steps, and their systems."""
        package = ase("reading an output of VASP")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of ASE, for numbers that it cannot read
                steps = package.io.read(self.path, index=":", format=self._format)
            is_xml = self._format == "vasp-xml"
            converged = (_converged_in_xml if is_xml else _converged_in_text)(_lines(self.path))
        except Exception as error:  # ASE raises many exception types for a damaged file
            raise DataError(
                f"not a whole output of VASP ({error!r:.200})",
                where=str(self.path),
                fix="remove what follows the last complete ionic step",
            ) from None
        # ASE leaves out a last step that was cut short.
        unfinished = [k for k, done in enumerate(converged[: len(steps)]) if not done]
        if unfinished and self._labels is not None:
            log.warning(
                "%s: left out, since the electronic steps did not converge: steps %s",
                self.path,
                ", ".join(map(str, unfinished)),
            )
        if len(unfinished) == len(steps):
            raise DataError("no ionic step is complete and converged", where=str(self.path))
        chosen = [k for k in range(len(steps)) if k not in unfinished]
        for step in steps:
            # VASP writes forces before its constraints, so that zeros are of symmetry.
            step.set_constraint()
        return chosen, [steps[k] for k in chosen]

    def __len__(self) -> int:
        """Return the number of converged steps."""
        return len(self._steps[0])

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        return len(self._steps[1][index])

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame."""
        numbers, steps = self._steps
        where = f"{self.path}: step {numbers[index]}"
        return labelled(steps[index], self._labels, where, lambda: names_of(steps))


def _lines(path: Path) -> Iterator[str]:
    from ase.io.formats import open_with_compression

    with open_with_compression(str(path), "rt") as file:
        yield from file


def _converged_in_xml(lines: Iterable[str]) -> list[bool]:
    """Return for each ionic step of a vasprun.xml whether its electronic steps converged.

    The last energies decide for a step that needed all NELM electronic steps.
    """
    most, tolerance, energies = np.inf, 0.0, list[list[float]]()
    is_electronic = False
    for line in lines:
        if "<calculation" in line:
            energies.append([])
        elif "scstep>" in line:
            is_electronic = "</" not in line
        elif (entry := _XML_ENTRY.search(line)) is None:
            continue
        elif entry[1] == "NELM":
            most = int(entry[2])
        elif entry[1] == "EDIFF":
            tolerance = float(entry[2])
        elif is_electronic and energies:
            energies[-1].append(float(entry[2]))
    return [len(e) < most or (len(e) > 1 and abs(e[-1] - e[-2]) < tolerance) for e in energies]


def _converged_in_text(lines: Iterable[str]) -> list[bool]:
    """Return the same for an OUTCAR, which states that the tolerance is reached."""
    most, last, is_reached, converged = np.inf, 0, False, list[bool]()
    for line in lines:
        if limit := re.search(r"NELM\s*=\s*(\d+)", line):
            most = int(limit[1])
        elif iteration := re.search(r"Iteration\s+\d+\(\s*(\d+)\)", line):
            last = int(iteration[1])
        elif "EDIFF is reached" in line:
            is_reached = True
        elif "FREE ENERGIE OF THE ION-ELECTRON SYSTEM" in line:
            converged.append(is_reached or last < most)
            last, is_reached = 0, False
    return converged


_XML_ENTRY = re.compile(r'name="(NELM|EDIFF|e_fr_energy)"\s*>\s*([-+.\dEe]+)')


def names_of(frames: Iterable[Any]) -> set[str]:
    """Return the names of the entries, columns and results of any `ase.Atoms`."""
    names: set[str] = set()
    for atoms in frames:
        names |= {*atoms.info, *atoms.arrays, *(atoms.calc.results if atoms.calc else ())}
    return names
