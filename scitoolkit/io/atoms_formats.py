"""Formats of atomic configurations: indexing of files and reading of frames."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.ase_files import is_readable, labelled, source
from scitoolkit.io.ase_frames import from_ase as from_ase
from scitoolkit.io.atoms import AtomsSource, Configuration, LabelConfig, ase
from scitoolkit.io.deepmd_systems import is_hdf5, systems

log = get_logger(__name__)
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class DeepmdFormat:
    """deepmd systems: type.raw and set.*/*.npy in a folder, any below it, or an HDF5 file."""

    described: ClassVar[str] = "a deepmd folder or HDF5 file"
    fixed_names: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the folder or file contains a system at any depth."""
        return any(path.rglob("type.raw")) if path.is_dir() else is_hdf5(path)

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the systems sorted by name."""
        told: set[str] = set()
        for system in systems(path, labelled=labels is not None):
            if labels is not None and (new := system.unread() - told):
                log.warning("%s: not read: %s", system.path, ", ".join(sorted(new)))
                told |= new
            yield system


class ExtendedXYZFormat:
    """Extended XYZ files, recognised by suffix, also compressed (.gz, .bz2, .xz)."""

    described: ClassVar[str] = ".xyz or .extxyz"
    fixed_names: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ("ase",)

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the suffix is .xyz or .extxyz, perhaps before that of a compression."""
        suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
        if suffixes and suffixes[-1] in COMPRESSIONS:
            suffixes.pop()
        return path.is_file() and suffixes[-1:] in ([".xyz"], [".extxyz"])

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the source of the file."""
        yield ExtendedXYZ(path, labels)


class AseDatabaseFormat:
    """Databases and trajectories of ASE, and vasprun.xml and OUTCAR of VASP, by name."""

    described: ClassVar[str] = ".db or .traj (ASE), vasprun.xml or OUTCAR (VASP)"
    fixed_names: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ("ase",)

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether the name is one of such a file."""
        return is_readable(path)

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the source of the file."""
        yield source(path, labels)


class ExtendedXYZ:
    """Source of an extxyz file; the offsets of frames are found in one pass."""

    def __init__(self, path: Path, labels: LabelConfig | None) -> None:
        self.path: Path = path
        self._labels = labels

    def _open(self) -> BinaryIO:
        return open(self._plain.name if self._plain else self.path, "rb")

    @cached_property
    def _plain(self) -> Any:
        """Temporary copy of a compressed file, None for others: frames are read at any place."""
        opened = COMPRESSIONS.get(self.path.suffix.lower())
        if opened is None:
            return None
        copy = tempfile.NamedTemporaryFile()  # deleted with this object
        try:
            with opened(self.path, "rb") as file:
                shutil.copyfileobj(file, copy)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"not readable ({error})", where=str(self.path)) from None
        copy.flush()
        return copy

    @cached_property
    def _skimmed(self) -> tuple[list[int], list[int]]:
        """Return the offsets of frames and of the end of the file, and the numbers of atoms."""
        offsets: list[int] = []
        sizes: list[int] = []
        line_number = 0
        with self._open() as file:
            while True:
                position = file.tell()
                line = file.readline()
                line_number += 1
                # Blank lines may separate frames; only an empty read is the end of the file.
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
        with self._open() as file:
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
        return labelled(atoms, self._labels, where, lambda: self._names)

    @cached_property
    def _names(self) -> set[str]:
        """Names of the entries and columns of all frames."""
        names: set[str] = set()
        with self._open() as file:
            for start in self._skimmed[0][:-1]:
                file.seek(start)
                file.readline()
                comment = file.readline().decode(errors="replace")
                # Properties is a list of name:type:count, such as species:S:1:pos:R:3.
                columns = re.search(r'\bProperties="?([^\s"]+)', comment)
                names |= set(columns[1].split(":")[::3]) if columns else set()
                names |= set(re.findall(r'([^\s="]+)"?\s*=', comment))
        return names


def _whole_tensors(frame: str) -> str:
    """Return the text with six numbers of a virial or stress as nine: ASE refuses six there."""
    first, comment, rest = (*frame.split("\n", 2), "")[:3]

    def whole(entry: re.Match[str]) -> str:
        numbers = entry[2].split()
        if len(numbers) != 6:
            return entry[0]
        # Voigt order, as ASE orders the six numbers of a stress.
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
