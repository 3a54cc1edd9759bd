"""Detection of compressed variables in files, without importing the codecs."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import h5py

MAGIC = b"SciC"
"""Magic number of a stream; a compressed .npy file is one stream."""
STREAM = "scitoolkit_stream"
"""Attribute of an HDF5 dataset whose bytes are a stream."""
FILTERED = "scitoolkit_filtered"
"""Attribute of an HDF5 dataset or Zarr array compressed by scitoolkit's filter or codec."""
STORE_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
"""Metadata files, of which a Zarr store has at least one at its root."""


class StoreFiles:
    """Files of a Zarr store in a folder or zip file.

    Args:
        path: of the store.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.zipped = Path(path), not Path(path).is_dir()

    @cached_property
    def _sizes(self) -> dict[str, int]:
        if self.zipped:
            with zipfile.ZipFile(self.path) as archive:
                return {f.filename: f.file_size for f in archive.infolist() if not f.is_dir()}
        files = (p for p in self.path.rglob("*") if p.is_file())
        return {p.relative_to(self.path).as_posix(): p.stat().st_size for p in sorted(files)}

    def names(self) -> list[str]:
        """Return the names of all files relative to the root of the store."""
        return list(self._sizes)

    def __contains__(self, name: str) -> bool:
        """Return whether a file exists."""
        return name in self._sizes if self.zipped else (self.path / name).is_file()

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._sizes[name]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        if not self.zipped:
            return (self.path / name).read_bytes()
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)

    def copy(self, names: Iterable[str], folder: Path) -> None:
        """Copy files into a folder under their names."""
        with contextlib.ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(self.path)) if self.zipped else None
            for name in names:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if archive is None:
                    shutil.copyfile(self.path / name, target)
                    continue
                with archive.open(name) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)


def is_store(path: Path) -> bool:
    """Return whether a folder or a zip file is a Zarr store.

    Example:
        >>> is_store(Path("no_such_store.zarr"))
        False
    """
    if path.is_dir():
        return any((path / name).is_file() for name in STORE_FILES)
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not set(STORE_FILES).isdisjoint(archive.namelist())


def is_stream(path: Path) -> bool:
    """Return whether a file is a stream, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def holds_streams(path: Path) -> bool:
    """Return whether a file is a stream, or has compressed variables (HDF5, Zarr)."""
    if is_store(path):
        files = StoreFiles(path)
        quoted = [f'"{mark}"'.encode() for mark in (STREAM, FILTERED)]
        described = (files.read(n) for n in files.names() if n.endswith(("zarr.json", ".zattrs")))
        return any(name in text for text in described for name in quoted)
    if not path.is_file():
        return False
    if is_stream(path):
        return True
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path) as file:
        marks = {STREAM, FILTERED}
        return bool(file.visititems(lambda _, item: not marks.isdisjoint(item.attrs) or None))
