"""deepmd systems: arrays of frames in a folder of npy files, or in a group of an HDF5 file.

Both have `type.raw`, `type_map.raw`, `nopbc`, and `coord.npy`, `energy.npy` and others in `set.*`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Array, Configuration
from scitoolkit.io.numpy_file import load_array

_LABEL_FILES = {"energy": "energy", "forces": "force", "virial": "virial"}


class _Store(Protocol):
    """Folder or group of a system, or of one of its sets."""

    path: str

    def __contains__(self, name: str) -> bool:
        """Return whether a file or a data set exists."""

    def text(self, name: str) -> str:
        """Return the words of a text file, or of an array of words or numbers."""

    def array(self, name: str) -> Any:
        """Return an array, whose values are not read."""

    def arrays(self) -> set[str]:
        """Return the names of the arrays."""

    def sets(self) -> list[_Store]:
        """Return the stores `set.*`, sorted."""


class _Folder:
    """Folder of npy files, which are mapped."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.path = folder, str(folder)

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def text(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")

    def array(self, name: str) -> Any:
        file = f"{self.path}/{name}"
        try:
            state = os.stat(file)
        except OSError:
            return load_array(file)  # says that it is missing
        return _mapped(file, (state.st_ino, state.st_size, state.st_mtime_ns))

    def arrays(self) -> set[str]:
        return {p.name for p in self._folder.glob("*.npy")}

    def sets(self) -> list[_Store]:
        return [_Folder(path) for path in sorted(self._folder.glob("set.*"))]


# Frames are read one by one, each from several files; a bound, as every map holds a descriptor.
@lru_cache(maxsize=64)
def _mapped(file: str, state: tuple[int, ...]) -> Any:
    """Return the array of a file; another `state` is another array under the same name."""
    return load_array(file, mapped=True)


class _Group:
    """Group of an HDF5 file, as dpdata writes it."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name
        self.path = str(file / name) if name else str(file)

    @cached_property
    def _group(self) -> Any:
        file = h5py.File(self._file)
        return file[self._name] if self._name else file

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def text(self, name: str) -> str:
        values = np.ravel(self._group[name][()]).tolist()
        return " ".join(v.decode() if isinstance(v, bytes) else str(v) for v in values)

    def array(self, name: str) -> Any:
        if name not in self._group:
            raise DataError("missing", where=f"{self.path}/{name}")
        return self._group[name]

    def arrays(self) -> set[str]:
        return {name for name in self._group if name.endswith(".npy")}

    def sets(self) -> list[_Store]:
        names = sorted(name for name in self._group if name.startswith("set."))
        return [_Group(self._file, f"{self._name}/{name}".lstrip("/")) for name in names]


def is_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5 with a system in any group."""
    if path.suffix.lower() not in (".h5", ".hdf5") or not h5py.is_hdf5(path):
        return False
    try:
        with h5py.File(path) as file:
            # The search ends at the first name for which the function is true.
            return bool(file.visit(lambda name: _is_system(name) or None))
    except (OSError, RuntimeError, KeyError):
        return False  # damaged


def _is_system(name: str) -> bool:
    return name.rpartition("/")[2] == "type.raw"


def _groups(path: Path) -> list[str]:
    names: list[str] = []
    with h5py.File(path) as file:
        file.visit(names.append)
    return sorted(name.rpartition("/")[0] for name in names if _is_system(name))


def systems(path: Path, *, labelled: bool) -> Iterator[DeepmdSystem]:
    """Yield the systems of a folder at any depth, or of an HDF5 file, sorted by name.

    Args:
        path: of the folder or file.
        labelled: whether labels are read.

    Raises:
        DataError: a system is damaged.
    """
    if path.is_dir():
        for folder in sorted(p.parent for p in path.rglob("type.raw")):
            yield DeepmdSystem(_Folder(folder), labelled)
        return
    for name in _groups(path):
        yield DeepmdSystem(_Group(path, name), labelled)


class DeepmdSystem:
    """Source of a deepmd system."""

    def __init__(self, store: _Store, labelled: bool) -> None:
        self.path: str = store.path
        self._files = {name: name for name in ("fparam", "aparam")}
        self._files |= _LABEL_FILES if labelled else {}
        self._types = np.array(self._words(store, "type.raw", int), dtype=int)
        words = self._words(store, "type_map.raw", str) if "type_map.raw" in store else []
        self._names = np.array(words)
        where = f"{self.path}/type_map.raw"
        if self._types.size and len(self._names) <= self._types.max() and len(self._names):
            raise DataError(
                f"type {self._types.max()} is not among {len(self._names)} names", where=where
            )
        if len(set(words)) < len(words):
            raise DataError(f"a name is there twice: {' '.join(words)}", where=where)
        self._periodic = "nopbc" not in store
        self._sets = store.sets()
        self._ends = np.cumsum([len(self._array(s, "coord")) for s in self._sets]).tolist()
        if not self._ends:
            fix = f"dpdata {self.path} -i deepmd/raw -o deepmd/npy -O frames"
            raise DataError("no set.* folder", where=self.path, fix=fix)

    def _words(self, store: _Store, name: str, kind: type) -> list[Any]:
        try:
            return [kind(word) for word in store.text(name).split()]
        except (OSError, ValueError, TypeError) as error:
            text = " ".join(str(error).split())
            raise DataError(f"not readable ({text})", where=f"{self.path}/{name}") from None

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._ends[-1]

    def unread(self) -> set[str]:
        """Return the files of the first set that are no input and no label, such as spin.npy."""
        names = {"coord", "box", "real_atom_types", *self._files.values()}
        return self._sets[0].arrays() - {f"{name}.npy" for name in names}

    def _place(self, index: int) -> tuple[_Store, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._sets[number], index - (self._ends[number - 1] if number else 0)

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        frames, row = self._place(index)
        if "real_atom_types.npy" not in frames:
            return len(self._types)
        return int((np.asarray(self._array(frames, "real_atom_types")[row]) >= 0).sum())

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame.

        Raises:
            DataError: arrays whose sizes contradict each other, or a damaged file.
        """
        frames, row = self._place(index)
        where = f"{frames.path}: frame {row}"
        try:
            return self._frame(frames, row, where)
        except (IndexError, ValueError, TypeError) as error:
            raise DataError(f"arrays that do not fit each other ({error})", where=where) from None
        except OSError as error:
            raise DataError(f"not readable ({error})", where=where) from None

    def _frame(self, frames: _Store, row: int, where: str) -> Configuration:
        types = self._types
        if "real_atom_types.npy" in frames:
            types = self._row(frames, "real_atom_types", row).astype(int)
        present = types >= 0  # mixed_type pads with -1
        values = {
            name: self._row(frames, file, row)
            for name, file in self._files.items()
            if f"{file}.npy" in frames
        }
        positions = self._row(frames, "coord", row).reshape(-1, 3)
        cell = self._row(frames, "box", row).reshape(3, 3) if self._periodic else np.zeros((3, 3))
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

    def _row(self, frames: _Store, name: str, row: int) -> Array:
        """Return the values of one frame, float64.

        Raises:
            DataError: the array has more or fewer frames than the positions.
        """
        array, count = self._array(frames, name), len(self._array(frames, "coord"))
        if len(array) != count:
            what = f"{len(array)} frames, coord.npy has {count}"
            raise DataError(what, where=f"{frames.path}/{name}.npy")
        return np.array(array[row], dtype=np.float64)

    def _array(self, frames: _Store, name: str) -> Any:
        array = frames.array(f"{name}.npy")
        if array.dtype.kind not in "fiu":
            raise DataError(
                f"values of dtype {array.dtype}",
                where=f"{frames.path}/{name}.npy",
                allowed="real numbers",
            )
        return array
