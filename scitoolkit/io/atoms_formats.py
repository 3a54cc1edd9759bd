"""Formats of atomic configurations: indexing of files and reading of frames."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import (
    Array,
    AtomsSource,
    Configuration,
    LabelConfig,
    MissingLabel,
    ase,
)
from scitoolkit.io.numpy_file import load_array

log = get_logger(__name__)
_PARAMETER_FILES = {"fparam": "fparam", "aparam": "aparam"}
_WEIGHT = re.compile("config_(|energy_|forces_|stress_|virials_)weight")
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
        self._files = {**_PARAMETER_FILES, **(_LABEL_FILES if labelled else {})}
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


def from_ase(
    atoms: Any,
    labels: LabelConfig | None = None,
    where: str = "atoms",
    elsewhere: Collection[str] = (),
) -> Configuration:
    """Return the configuration of an `ase.Atoms`.

    Args:
        atoms: the system.
        labels: names of its labels, in `info`, `arrays` or a calculator; None for no labels.
        where: of the frame, for messages.
        elsewhere: names of labels that other frames have, and this one may lack.

    Raises:
        DataError: energy or forces exist, but under other names than in `labels`; a label that is
            no number; a ghost atom.
    """
    ghosts = np.flatnonzero(atoms.numbers == 0)
    if len(ghosts):
        raise DataError(
            f"atom {ghosts[0]} is a ghost atom, species X",
            where=where,
            allowed="elements",
            fix="remove ghost atoms",
        )
    energy, forces, virial = (
        (None,) * 3 if labels is None else _labels_of(atoms, labels, where, elsewhere)
    )
    return Configuration(
        np.array(atoms.get_chemical_symbols()),
        np.array(atoms.positions, dtype=np.float64),
        np.array(atoms.cell.array, dtype=np.float64),
        np.array(atoms.pbc, dtype=bool),
        energy,
        forces,
        virial,
        where,
        *given_parameters(atoms),
        str(atoms.info.get("config_type", "")),
        (1.0, 1.0, 1.0) if labels is None else _weights(atoms, where),
        frozenset() if labels is None else _unread(atoms),
    )


_ELECTRONIC = re.compile(
    "(?i:(.+_)?(charges?|mag(netic_)?mom(ent)?s?|spins?|(spin_)?multiplicity|dipoles?|"
    "(electric|magnetic|external)_field|efield))"
)


def _unread(atoms: Any) -> frozenset[str]:
    """Return the names of charges, moments and fields of an `ase.Atoms` that are not zero."""
    results = {} if atoms.calc is None else atoms.calc.results
    values = {**results, **atoms.arrays, **atoms.info}
    named = {name for name in values if _ELECTRONIC.fullmatch(name)}
    return frozenset(n for n in named if _is_numeric(values[n]) and np.any(values[n]))


def _weights(atoms: Any, where: str) -> tuple[float, float, float]:
    """Return the weights of energy, forces and virial, by the names of mace-torch.

    Raises:
        DataError: a weight is negative or no number.
    """
    weights = dict.fromkeys(("", "energy_", "forces_", "stress_", "virials_"), 1.0)
    for name, value in atoms.info.items():
        named = _WEIGHT.fullmatch(name)
        if named is None:
            continue
        if not (_is_numeric(value) and np.ndim(value) == 0 and 0 <= value < np.inf):
            raise DataError(f"{name} is {value!r}", where=where, allowed="a number from 0")
        weights[named[1]] = float(value)
    whole = weights[""]
    return (
        whole * weights["energy_"],
        whole * weights["forces_"],
        whole * weights["stress_"] * weights["virials_"],
    )


def _labels_of(
    atoms: Any, labels: LabelConfig, where: str, elsewhere: Collection[str]
) -> tuple[float | None, Array | None, Array | None]:
    """Return energy, forces and virial; `elsewhere` are names that only other frames have."""
    _refuse_other_quantities(labels, where)
    held = dict(atoms.calc.results) if atoms.calc is not None else {}
    # A value under the name that was asked for is no other label, of whatever kind it is.
    scalars = {
        k: v
        for k, v in atoms.info.items()
        if k == labels.energy_key
        or (np.isscalar(v) and not isinstance(v, str) and not _WEIGHT.fullmatch(k))
    }
    energy = _found(held, scalars, labels.energy_key, "energy", where, elsewhere)
    _refuse_rivals(energy, scalars, labels, "energy_key", where)
    columns = {
        k: v
        for k, v in atoms.arrays.items()
        if k == labels.forces_key or (np.shape(v)[1:] == (3,) and k not in ("positions", "momenta"))
    }
    # Files of isolated atoms often leave out their forces, which are zero.
    absent = {*elsewhere, labels.forces_key} if len(atoms) == 1 else elsewhere
    forces = _found(held, columns, labels.forces_key, "forces", where, absent)
    _refuse_rivals(forces, columns, labels, "forces_key", where)
    virial = _virial_of(atoms, held, labels, where, elsewhere)
    return (
        None if energy is None else float(_numbers(energy, 1, "energy", where)[0]),
        None if forces is None else _real(forces, "forces", where),
        virial,
    )


_OTHER_QUANTITIES = (
    ("energy_key", "per_?atom", "an energy per atom", "write the total energies"),
    ("forces_key", "grad", "a gradient, of the opposite sign", "write forces, -gradient"),
    ("virial_key", "stress", "a stress", "data.labels.stress_key={name}, and virial_key left out"),
    ("stress_key", "virial", "a virial", "data.labels.virial_key={name}, and stress_key left out"),
    ("stress_key", "bar|[gmk]pa", "another unit than energy per volume", "convert it"),
)
"""Parts of names of labels that tell another quantity: key, pattern, quantity, what to do."""


def _refuse_other_quantities(labels: LabelConfig, where: str) -> None:
    for key, pattern, quantity, fix in _OTHER_QUANTITIES:
        name = getattr(labels, key)
        if re.search(pattern, name.lower()):
            raise DataError(
                f"{key} names {quantity}: {name!r}", where=where, fix=fix.format(name=name)
            )


def _refuse_rivals(value: Any, others: dict, labels: LabelConfig, key: str, where: str) -> None:
    """Refuse a label under its default name beside another one that is called the reference.

    Programs keep their own predictions under the default names, beside `REF_energy` and others. A
    name that the configuration states is taken.
    """
    kind = key.partition("_")[0]
    if value is None or key in labels.model_fields_set:
        return
    for name, other in others.items():
        lower = name.lower()
        is_reference = re.search("(?<![a-z])ref", lower) and kind.rstrip("s") in lower
        if name == getattr(labels, key) or not is_reference:
            continue
        if not np.allclose(other, value, rtol=1e-6, atol=1e-6, equal_nan=True):
            raise DataError(
                f"{getattr(labels, key)} and {name} differ",
                where=where,
                fix=f"data.labels.{key}={name}, or ={getattr(labels, key)}",
            )


def _virial_of(
    atoms: Any, held: dict, labels: LabelConfig, where: str, elsewhere: Collection[str]
) -> Array | None:
    """Return the virial (3, 3) of a virial or a stress, None if the frame has neither.

    Raises:
        DataError: a configured name that the frame lacks, another name, or two that contradict.
    """
    solid = bool(np.any(atoms.pbc)) and abs(np.linalg.det(atoms.cell.array)) > 0
    wanted = (labels.virial_key, labels.stress_key)
    tensors = {
        k: v
        for k, v in atoms.info.items()
        if k in wanted or (np.size(v) in (6, 9) and _is_numeric(v))
    }
    named = {k: v for k, v in held.items() if k in ("stress", "virial")}
    virial = _tensor(
        named | tensors,
        labels.virial_key,
        "virial",
        solid and labels.virial_key not in elsewhere,
        where,
    )
    stress = _tensor(
        named | tensors,
        labels.stress_key,
        "stress",
        solid and labels.stress_key not in elsewhere,
        where,
    )
    alike = {k: _tensor(tensors, k, k, False, where) for k in tensors}
    _refuse_rivals(stress, alike, labels, "stress_key", where)
    _refuse_rivals(virial, alike, labels, "virial_key", where)
    if stress is None or not solid:
        # Without a periodic cell there is no stress: programs write zeros for molecules.
        if stress is not None and atoms.cell.rank == 3 and stress.any():
            raise DataError(
                f"{labels.stress_key} of a frame without a periodic direction",
                where=where,
                fix='pbc="T T T" in the file, or the frame without its stress',
            )
        return virial
    from_stress = -atoms.get_volume() * stress
    if virial is None:
        return from_stress
    largest = np.abs(from_stress).max()
    if not bool((np.abs(virial - from_stress) <= 1e-2 * largest).all()):
        raise DataError(
            f"{labels.virial_key} and -volume * {labels.stress_key} differ "
            f"({virial[0, 0]:.6g} and {from_stress[0, 0]:.6g} for xx)",
            where=where,
            fix="remove the wrong one, or name the other: data.labels.virial_key=NAME",
        )
    return virial


def _is_numeric(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iuf"


def _tensor(values: dict, key: str, kind: str, solid: bool, where: str) -> Array | None:
    """Return a symmetric tensor (3, 3) of six (Voigt) or nine numbers; None if there is none."""
    if key not in values:
        similar = [name for name in values if kind in name.lower()]
        if solid and (similar or key != kind):
            other = "stress" if kind == "virial" else "virial"
            raise MissingLabel(kind, key, [n for n in values if other not in n.lower()], where)
        return None
    numbers = _real(values[key], key, where)
    if numbers.size == 6:
        xx, yy, zz, yz, xz, xy = numbers.reshape(6)
        return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return _numbers(numbers, 9, key, where).reshape(3, 3)


def given_parameters(atoms: Any) -> tuple[Array | None, Array | None]:
    """Return `info["fparam"]` as (F,) and `arrays["aparam"]` as (N, A) of an `ase.Atoms`."""
    fparam, aparam = atoms.info.get("fparam"), atoms.arrays.get("aparam")
    return (
        None if fparam is None else np.array(fparam, dtype=np.float64).reshape(-1),
        None if aparam is None else np.array(aparam, dtype=np.float64).reshape(len(atoms), -1),
    )


def _numbers(value: Any, count: int, name: str, where: str) -> Array:
    """Return a flat float64 array of `count` numbers.

    Raises:
        DataError: the value is text, or has another size.
    """
    numbers = _real(value, name, where)
    if numbers.size != count:
        allowed = "a number" if count == 1 else f"{count} numbers"
        raise DataError(f"{name} is {value!r:.60}", where=where, allowed=allowed)
    return numbers.reshape(count)


def _real(value: Any, name: str, where: str) -> Array:
    """Return a float64 copy of real numbers.

    Raises:
        DataError: text, truth values, complex numbers or rows of different lengths.
    """
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.array(None)
    if numbers.dtype.kind not in "fiu":
        raise DataError(f"{name} is {value!r:.60}", where=where, allowed="real numbers")
    return numbers.astype(np.float64)


def _found(
    held: dict, others: dict, key: str, kind: str, where: str, elsewhere: Collection[str]
) -> Any:
    """Return the label, or None if the frame has no label of this kind.

    Raises:
        MissingLabel: the frame has one under another name, or no frame has one.
        DataError: two labels of this name contradict each other.
    """
    if key in others and key in held and np.shape(others[key]) == np.shape(held[key]):
        if not np.allclose(others[key], held[key], rtol=1e-6, atol=1e-6, equal_nan=True):
            raise DataError(
                f"two values of {key}, in the frame and in its calculator, differ",
                where=where,
                fix="remove the wrong one",
            )
    if key in others:
        return others[key]
    if key in held:
        return held[key]
    named = [name for name in others if kind.rstrip("s") in name.lower()]
    if named or (key != kind and key not in elsewhere):
        raise MissingLabel(kind, key, [*others, *(k for k in held if k == kind)], where)
    return None
