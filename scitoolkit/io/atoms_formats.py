"""Formats of atomic configurations: indexing of files and reading of frames."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.ase_frames import from_ase
from scitoolkit.io.atoms import Array, AtomsSource, Configuration, LabelConfig, MissingLabel, ase
from scitoolkit.io.numpy_file import load_array

log = get_logger(__name__)
_LABEL_FILES = {"energy": "energy", "forces": "force", "virial": "virial"}


class DeepmdFormat:
    """deepmd systems: folders with type.raw and set.*/*.npy, or a folder of such systems."""

    described: ClassVar[str] = "a deepmd folder"
    fixed_names: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the folder contains a system at any depth."""
        return path.is_dir() and any(path.rglob("type.raw"))

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the systems sorted by name."""
        told: set[str] = set()
        for folder in sorted(p.parent for p in path.rglob("type.raw")):
            system = DeepmdSystem(folder, labelled=labels is not None)
            if labels is not None and (new := system.unread() - told):
                log.warning("%s: not read: %s", folder, ", ".join(sorted(new)))
                told |= new
            yield system


class ExtendedXYZFormat:
    """Extended XYZ files, recognised by suffix."""

    described: ClassVar[str] = ".xyz or .extxyz"
    fixed_names: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ("ase",)

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the suffix is .xyz or .extxyz."""
        return path.is_file() and path.suffix.lower() in (".xyz", ".extxyz")

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the source of the file."""
        yield ExtendedXYZ(path, labels)


class AseDatabaseFormat:
    """ASE databases, recognised by suffix."""

    described: ClassVar[str] = ".db (ASE)"
    fixed_names: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ("ase",)

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the suffix is .db."""
        return path.is_file() and path.suffix.lower() == ".db"

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the source of the database."""
        yield AseDatabase(path, labels)


class DeepmdSystem:
    """Source of a deepmd system: type.raw and memory-mapped set.*/{coord,box,...}.npy."""

    def __init__(self, folder: Path, labelled: bool) -> None:
        self.folder = folder
        self._files = {name: name for name in ("fparam", "aparam")}
        self._files |= _LABEL_FILES if labelled else {}
        names = folder / "type_map.raw"
        try:
            self._types = np.loadtxt(folder / "type.raw", dtype=int, ndmin=1)
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            raise DataError(f"not readable ({text})", where=str(folder / "type.raw")) from None
        try:
            text = names.read_text(encoding="utf-8") if names.is_file() else ""
        except (OSError, ValueError) as error:
            raise DataError(f"not readable ({error})", where=str(names)) from None
        self._names = np.array(text.split())
        if self._types.size and len(self._names) <= self._types.max() and len(self._names):
            raise DataError(
                f"type {self._types.max()} is not among {len(self._names)} names", where=str(names)
            )
        if len(set(self._names)) < len(self._names):
            raise DataError(f"a name is there twice: {' '.join(self._names)}", where=str(names))
        self._periodic = not (folder / "nopbc").is_file()
        self._sets = sorted(folder.glob("set.*"))
        self._ends = np.cumsum([len(self._array(s, "coord")) for s in self._sets]).tolist()
        if not self._ends:
            raise DataError("no set.* folder", where=str(folder))

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._ends[-1]

    def unread(self) -> set[str]:
        """Return the files of the first set that are no input and no label, such as spin.npy."""
        names = {"coord", "box", "real_atom_types", *self._files.values()}
        return {p.name for p in self._sets[0].glob("*.npy") if p.stem not in names}

    def _place(self, index: int) -> tuple[Path, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._sets[number], index - (self._ends[number - 1] if number else 0)

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        folder, row = self._place(index)
        if not (folder / "real_atom_types.npy").is_file():
            return len(self._types)
        return int((np.asarray(self._array(folder, "real_atom_types")[row]) >= 0).sum())

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame.

        Raises:
            DataError: arrays whose sizes contradict each other.
        """
        folder, row = self._place(index)
        where = f"{folder}: frame {row}"
        try:
            return self._frame(folder, row, where)
        except (IndexError, ValueError, TypeError) as error:
            raise DataError(f"arrays that do not fit each other ({error})", where=where) from None

    def _frame(self, folder: Path, row: int, where: str) -> Configuration:
        types = self._types
        if (folder / "real_atom_types.npy").is_file():
            types = self._row(folder, "real_atom_types", row).astype(int)
        present = types >= 0  # mixed_type pads with -1
        values = {
            name: self._row(folder, file, row)
            for name, file in self._files.items()
            if (folder / f"{file}.npy").is_file()
        }
        positions = self._row(folder, "coord", row).reshape(-1, 3)
        if self._periodic:
            cell = self._row(folder, "box", row).reshape(3, 3)
        else:
            cell = np.zeros((3, 3))
        forces = values["forces"].reshape(-1, 3)[present] if "forces" in values else None
        return Configuration(
            self._species(types[present], where),
            positions[present],
            cell,
            np.full(3, self._periodic),
            float(values["energy"].reshape(())) if "energy" in values else None,
            forces,
            values["virial"].reshape(3, 3) if "virial" in values else None,
            where,
            values.get("fparam"),
            values["aparam"].reshape(len(types), -1)[present] if "aparam" in values else None,
        )

    def _species(self, types: Array, where: str) -> Array:
        if not len(self._names):
            return np.array([f"Type_{t}" for t in types])
        if len(types) and types.max() >= len(self._names):
            raise DataError(f"type {types.max()} has no name in type_map.raw", where=where)
        return self._names[types]

    def _row(self, folder: Path, name: str, row: int) -> Array:
        """Return the values of one frame, float64.

        Raises:
            DataError: the array has more or fewer frames than the positions.
        """
        array, frames = self._array(folder, name), len(self._array(folder, "coord"))
        if len(array) != frames:
            raise DataError(
                f"{len(array)} frames, coord.npy has {frames}", where=str(folder / f"{name}.npy")
            )
        return np.array(array[row], dtype=np.float64)

    def _array(self, folder: Path, name: str) -> Array:
        array = load_array(folder / f"{name}.npy", mapped=True)
        if array.dtype.kind not in "fiu":
            raise DataError(
                f"values of dtype {array.dtype}",
                where=str(folder / f"{name}.npy"),
                allowed="real numbers",
            )
        return array


class ExtendedXYZ:
    """Source of an extxyz file; the offsets of frames are found in one pass."""

    def __init__(self, path: Path, labels: LabelConfig | None) -> None:
        self.path: Path = path
        self._labels = labels

    @cached_property
    def _skimmed(self) -> tuple[list[int], list[int]]:
        """Return the offsets of frames and of the end of the file, and the numbers of atoms."""
        offsets: list[int] = []
        sizes: list[int] = []
        line_number = 0
        with self.path.open("rb") as file:
            while True:
                position = file.tell()
                line = file.readline()
                line_number += 1
                if not line.strip():
                    if not line:
                        return [*offsets, position], sizes
                    continue
                try:
                    atoms = int(line)
                except ValueError:
                    atoms = -1
                if atoms < 0:
                    raise DataError(
                        f"expected a number of atoms of frame {len(sizes)}, found {line[:40]!r}",
                        where=f"{self.path}:{line_number}",
                    )
                offsets.append(position)
                sizes.append(atoms)
                for _ in range(atoms + 1):
                    if not file.readline():
                        raise DataError(
                            f"frame {len(offsets) - 1} is cut short", where=str(self.path)
                        )
                line_number += atoms + 1

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._skimmed[1])

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        return self._skimmed[1][index]

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame."""
        start, stop = self._skimmed[0][index : index + 2]
        with self.path.open("rb") as file:
            file.seek(start)
            frame = file.read(stop - start)
        where = f"{self.path}: frame {index}"
        package = ase("reading extxyz")
        try:
            text = _whole_tensors(frame.decode())
            _check_entries(text, labelled=self._labels is not None)
            _check_columns(text)
            atoms = package.io.read(io.StringIO(text), format="extxyz")
        except KeyError as error:
            raise DataError(f"element {error} is not known", where=where) from None
        except Exception as error:  # ASE raises many exception types for a damaged frame
            raise DataError(f"not extxyz ({error})", where=where) from None
        return _labelled(atoms, self._labels, where, lambda: self._names)

    @cached_property
    def _names(self) -> set[str]:
        """Names of the entries and columns of all frames."""
        names: set[str] = set()
        with self.path.open("rb") as file:
            for start in self._skimmed[0][:-1]:
                file.seek(start)
                file.readline()
                comment = file.readline().decode(errors="replace")
                columns = re.search(r'\bProperties="?([^\s"]+)', comment)
                names |= set(columns[1].split(":")[::3]) if columns else set()
                names |= set(re.findall(r'([^\s="]+)"?\s*=', comment))
        return names


def _labelled(
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


def _whole_tensors(frame: str) -> str:
    """Return the text with six numbers of a virial or stress as nine: ASE refuses six there."""
    first, comment, rest = (*frame.split("\n", 2), "")[:3]

    def whole(entry: re.Match[str]) -> str:
        numbers = entry[2].split()
        if len(numbers) != 6:
            return entry[0]
        xx, yy, zz, yz, xz, xy = numbers
        return f'{entry[1]}="{" ".join((xx, xy, xz, xy, yy, yz, xz, yz, zz))}"'

    comment = re.sub(r'(?<!\S)(virial|stress)\s*=\s*"([^"]*)"', whole, comment)
    return "\n".join((first, comment, rest))


_SPECIAL_ENTRIES = {
    "lattice": "Lattice",
    "cell": "Lattice",
    "pbc": "pbc",
    "properties": "Properties",
}
"""Entries that ASE reads under one spelling alone; it takes others for data of the user."""


def _check_entries(frame: str, labelled: bool) -> None:
    """Raise ValueError for a cell under another name, and for two entries of one name.

    Args:
        frame: text of the frame.
        labelled: whether labels are read.
    """
    comment = frame.split("\n", 2)[1]
    # Values in quotes may contain anything, names have neither spaces nor quotes.
    names = re.findall(r"([^\s=]+)\s*=", re.sub(r'"[^"]*"', '""', comment))
    for name in names:
        special = _SPECIAL_ENTRIES.get(name.lower(), name)
        if special not in names:
            raise ValueError(f"{name} is not read. Fix: {special}=")
        is_label = re.search("energy|stress|virial", name.lower())
        if names.count(name) > 1 and (name in _SPECIAL_ENTRIES.values() or (is_label and labelled)):
            raise ValueError(f"{name} is there {names.count(name)} times")


def _check_columns(frame: str) -> None:
    """Raise ValueError for missing columns: ASE allocates memory for any number in Properties."""
    comment, _, rest = frame.partition("\n")[2].partition("\n")
    named = re.search(r'\bProperties="?([^\s"]+)', comment)
    columns = sum(int(n) for n in named[1].split(":")[2::3]) if named else 0
    words = len(rest.partition("\n")[0].split())
    if columns > words > 0:
        raise ValueError(f"Properties has {columns} columns, the first atom has {words}")


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
        return _labelled(atoms, self._labels, where, lambda: self._names)

    @cached_property
    def _names(self) -> set[str]:
        """Names of the entries of all rows."""
        names: set[str] = set()
        for row in self._database.select():
            names |= {*row.key_value_pairs, *row.data, *(row.get("calculator_parameters") or {})}
            names |= {name for name in ("energy", "forces", "stress") if row.get(name) is not None}
        return names
