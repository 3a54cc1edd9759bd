"""Which files a campaign has, their sizes and times of change; nothing of them is read."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.io.fields import PathLike, expand_paths, packages_for
from scitoolkit.io.formats.base import format_of

_SUFFIXES = (".h5", ".hdf5", ".nc", ".nc4", ".npy", ".npz", ".zarr")
_STORE_NAMES = ("zarr.json", ".zgroup", ".zmetadata", ".zarray")


@dataclass(frozen=True)
class Found:
    """Files by name, sorted.

    Attributes:
        sizes: bytes; of a store those of all its files.
        modified: time of the last change in ns; of a store that of its newest file.
        ordered: whether the order is the user's.
    """

    paths: list[str]
    sizes: np.ndarray
    modified: np.ndarray
    ordered: bool = False

    def of(self, paths: Sequence[str]) -> Found:
        """Return some of the files, in another order."""
        number = {path: i for i, path in enumerate(self.paths)}
        chosen = [number[path] for path in paths]
        return Found(list(paths), self.sizes[chosen], self.modified[chosen], self.ordered)

    def digest(self, options: str) -> str:
        """Return what changes whenever a name, size or time of change does."""
        digest = hashlib.sha256(options.encode())
        digest.update("\0".join(self.paths).encode())
        digest.update(self.sizes.tobytes() + self.modified.tobytes() + bytes([self.ordered]))
        return digest.hexdigest()


def natural_key(path: Path | str) -> list[tuple[int, int, str]]:
    """Return a sort key that counts numbers in names: `s9` before `s10`.

    Example:
        >>> sorted(["s10.h5", "s9.h5"], key=natural_key)
        ['s9.h5', 's10.h5']
    """
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts if p]


def find_files(path: PathLike | Sequence[PathLike]) -> Found:
    """Return whatever may be a file of a campaign: of a file, a glob, a list or a directory.

    Raises:
        DataError: a file does not exist, or is given twice.
    """
    found: list[tuple[str, int, int]] = []
    is_list = not isinstance(path, str | os.PathLike) and len(path) > 1
    for one in _given(path):
        if os.path.isdir(one) and not _is_store(one):
            found += _below(one)
        else:
            found.append(_state(one))
    if not is_list:
        found.sort()
    names = [name for name, _, _ in found]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DataError("the file is given twice", where=twice)
    numbers = np.array([(s, m) for _, s, m in found], np.int64).reshape(-1, 2)
    return Found(names, numbers[:, 0].copy(), numbers[:, 1].copy(), is_list)


def _given(path: PathLike | Sequence[PathLike]) -> list[str]:
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if glob.has_magic(text) and not os.path.exists(text):
            # These exist: of 100,000 none is looked at once more.
            matching = glob.glob(text, recursive=True)
            if matching:
                return matching
    return [str(p) for p in expand_paths(path)]


def campaign_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the files of a campaign of known formats, in natural order; a list keeps its order.

    Raises:
        DataError: a file does not exist, or a directory has none of a known format.
    """
    return [Path(p) for p in of_known_formats(find_files(path), path)]


def campaign_packages(path: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    """Return the packages that reading the first file needs; none where files are missing."""
    try:
        return packages_for(campaign_files(path)[0])
    except DataError:
        return ()  # files that are missing are reported as such


def of_known_formats(found: Found, given: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the files of known formats, in natural order; a list keeps its order.

    What is named, not found in a folder, is kept whatever it is: its reader says what is wrong.
    """
    named = {str(p) for p in _given(given)} if len(found.paths) <= 1000 else set()
    known = [p for p in found.paths if p in named or _may_be_known(p)]
    if not known:
        raise DataError("no file of a known format in this folder", where=str(given))
    return known if found.ordered else sorted(known, key=natural_key)


def _may_be_known(path: str) -> bool:
    """Return whether a format knows the file; what is called like one is not opened."""
    if path.endswith(_SUFFIXES):
        return True
    try:
        format_of(Path(path))
    except ScitoolkitError:
        return False
    return True


def _below(folder: str) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir() and not _is_store(entry.path):
                # Parts of a virtual file: `run_s1/run_s1_p0.h5` belong to `run_s1.h5`.
                found += [] if os.path.exists(f"{entry.path}.h5") else _below(entry.path)
            elif entry.is_dir():
                found.append(_state(entry.path))
            else:
                found.append(_of(entry.path, entry.stat))
    return found


def _is_store(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in _STORE_NAMES)


def _state(path: str) -> tuple[str, int, int]:
    """Return name, size and time of change; of a folder over all its files."""
    if not os.path.isdir(path):
        return _of(path, lambda: os.stat(path))
    size = newest = 0
    for parent, _, names in os.walk(path):
        for name in names:
            status = os.stat(os.path.join(parent, name))
            size, newest = size + status.st_size, max(newest, status.st_mtime_ns)
    return path, size, newest


def _of(path: str, stat: Callable[[], os.stat_result]) -> tuple[str, int, int]:
    try:
        status = stat()
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", where=path) from None
    return path, status.st_size, status.st_mtime_ns
