"""Files of a campaign with sizes and modification times, found without reading them."""

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
from scitoolkit.io.formats.adaptive import is_plotfile
from scitoolkit.io.formats.base import format_of
from scitoolkit.io.loader.stores import is_store

_SUFFIXES = (".h5", ".hdf5", ".nc", ".nc4", ".npy", ".npz", ".zarr")


@dataclass(frozen=True)
class CampaignFiles:
    """Files of a campaign.

    Attributes:
        paths: names, sorted unless `ordered`.
        sizes: bytes; for a store, of all its files.
        modified: modification times in ns; for a store, of its newest file.
        ordered: whether the user gave the order.
    """

    paths: list[str]
    sizes: np.ndarray
    modified: np.ndarray
    ordered: bool = False

    def of(self, paths: Sequence[str]) -> CampaignFiles:
        """Return a subset of the files in the given order."""
        number = {path: i for i, path in enumerate(self.paths)}
        chosen = [number[path] for path in paths]
        return CampaignFiles(list(paths), self.sizes[chosen], self.modified[chosen], self.ordered)

    def digest(self, options: str) -> str:
        """Return a hash of options, names, sizes and modification times."""
        digest = hashlib.sha256(options.encode())
        digest.update("\0".join(self.paths).encode())
        digest.update(self.sizes.tobytes() + self.modified.tobytes() + bytes([self.ordered]))
        return digest.hexdigest()


def natural_key(path: Path | str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders numbers in names by value: `s9` before `s10`.

    Example:
        >>> sorted(["s10.h5", "s9.h5"], key=natural_key)
        ['s9.h5', 's10.h5']
    """
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts if p]


def find_files(path: PathLike | Sequence[PathLike]) -> CampaignFiles:
    """Return the candidate files of a file name, glob, list or directory.

    Raises:
        DataError: a file does not exist, or is given twice.
    """
    states: list[tuple[str, int, int]] = []
    is_list = not isinstance(path, str | os.PathLike) and len(path) > 1
    for one in _given(path):
        if os.path.isdir(one) and not _is_one(one):
            states += _below(one)
        else:
            states.append(_state(one))
    if not is_list:
        states.sort()
    names = [name for name, _, _ in states]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DataError("the file is given twice", where=twice)
    numbers = np.array([(s, m) for _, s, m in states], np.int64).reshape(-1, 2)
    return CampaignFiles(names, numbers[:, 0].copy(), numbers[:, 1].copy(), is_list)


def _given(path: PathLike | Sequence[PathLike]) -> list[str]:
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if glob.has_magic(text) and not os.path.exists(text):
            # Files found by glob exist: checking 100,000 of them again would be slow.
            matching = glob.glob(text, recursive=True)
            if matching:
                return matching
    return [str(p) for p in expand_paths(path)]


def campaign_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the files of a campaign of known formats, in natural order; a list keeps its order.

    Raises:
        DataError: a file does not exist, or a directory has no file of a known format.
    """
    return [Path(p) for p in of_known_formats(find_files(path), path)]


def campaign_packages(path: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    """Return the packages required to read the first file; none if files are missing."""
    try:
        return packages_for(campaign_files(path)[0])
    except DataError:
        return ()  # missing files are reported elsewhere


def of_known_formats(found: CampaignFiles, given: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the files of known formats, in natural order; a list keeps its order.

    Files that the user named explicitly are kept in any format, so that their reader raises.
    """
    named = {str(p) for p in _given(given)} if len(found.paths) <= 1000 else set()
    paths = [p for p in found.paths if p in named or _may_be_known(p)]
    if not paths:
        raise DataError("no file of a known format in this folder", where=str(given))
    return paths if found.ordered else sorted(paths, key=natural_key)


def _may_be_known(path: str) -> bool:
    """Return whether a format reads the file; with a known suffix the file is not opened."""
    if path.endswith(_SUFFIXES):
        return True
    try:
        format_of(Path(path))
    except ScitoolkitError:
        return False
    return True


def _below(folder: str) -> list[tuple[str, int, int]]:
    states: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda e: e.name)
        # The parts of an output of Enzo belong to its file of parameters.
        whole = [e.name.removesuffix(".hierarchy") for e in listed if e.name.endswith(".hierarchy")]
        parts = tuple(f"{name}." for name in whole)
        for entry in listed:
            if entry.name.startswith((".", *parts)):
                continue
            if entry.is_dir() and not _is_one(entry.path):
                # Skip the parts of a virtual file: `run_s1/run_s1_p0.h5` belongs to `run_s1.h5`.
                states += [] if os.path.exists(f"{entry.path}.h5") else _below(entry.path)
            elif entry.is_dir():
                states.append(_state(entry.path))
            else:
                states.append(_of(entry.path, entry.stat))
    return states


def _is_one(folder: str) -> bool:
    """Return whether a folder is read as one file."""
    return is_store(folder) or is_plotfile(folder)


def _state(path: str) -> tuple[str, int, int]:
    """Return name, size and modification time; for a folder, over all its files."""
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
