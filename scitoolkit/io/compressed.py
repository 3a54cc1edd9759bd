"""Detection of compressed variables in files, without importing the codecs."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import zipfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py

from scitoolkit.core.errors import damage_named
from scitoolkit.core.remote import STORE_FILES

MAGIC = b"SciC"
"""Magic number of a stream; a compressed .npy file is one stream."""
STREAM = "scitoolkit_stream"
"""Attribute of an HDF5 dataset whose bytes are a stream."""
FILTERED = "scitoolkit_filtered"
"""Attribute of an HDF5 dataset or Zarr array compressed by scitoolkit's filter or codec.

Every tool copies attributes to files without the filter, so that the attribute alone says nothing;
see `is_filtered`."""
FILTER_ID = 33793
"""From the range that HDF5 reserves for unregistered filters (32768 to 65535)."""
CODEC = "scitoolkit.interpolation"
"""Name of the codec in the metadata of Zarr arrays."""


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
        return any(
            mark_in_store(*_described(files, name))
            for name in files.names()
            if name.rpartition("/")[2] in ("zarr.json", ".zarray")
        )
    if not path.is_file():
        return False
    if is_stream(path):
        return True
    if not h5py.is_hdf5(path):
        return False
    with damage_named(path), h5py.File(path) as file:
        return bool(file.visititems(lambda _, item: mark_of(item) or None))


def filter_bound(item: Any) -> float | None:
    """Return the absolute bound with which the chunks of an HDF5 dataset are coded.

    0 is lossless, as after NCO; None for objects without scitoolkit's filter.
    """
    if not isinstance(item, h5py.Dataset) or item.chunks is None:
        return None
    properties = item.id.get_create_plist()
    for code, _, words, *_ in map(properties.get_filter, range(properties.get_nfilters())):
        if code == FILTER_ID:
            return struct.unpack("<d", struct.pack("<II", *words[2:4]))[0] if words[3:] else 0.0
    return None


def mark_of(item: Any) -> str:
    """Return `STREAM` or `FILTERED` if an HDF5 object is stored so, "" for all others.

    The mark of a filtered variable must state the bound of its filter: tools that apply the filter
    again, with another bound, copy the old mark.
    """
    if STREAM in item.attrs and _holds_bytes(item):
        return STREAM
    bound = filter_bound(item)
    if FILTERED not in item.attrs or bound is None:
        return ""
    try:
        stated = float(json.loads(item.attrs[FILTERED])["error_bound"])
    except (ValueError, TypeError, KeyError):
        return FILTERED  # damaged, which its reader reports
    return FILTERED if stated == bound else ""


def _holds_bytes(item: Any) -> bool:
    return isinstance(item, h5py.Dataset) and item.dtype == "u1" and item.ndim == 1


def mark_in_store(fields: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    """Return `STREAM` or `FILTERED` if a Zarr array is stored so, "" for all others.

    Args:
        fields: content of its `zarr.json` or `.zarray`.
        attributes: of the array.
    """
    dtype = fields.get("data_type", fields.get("dtype"))
    if STREAM in attributes and dtype in ("uint8", "|u1") and len(fields.get("shape", ())) == 1:
        return STREAM
    coded = f'"{CODEC}"' in json.dumps([fields.get("codecs"), fields.get("filters")])
    return FILTERED if FILTERED in attributes and coded else ""


def _described(files: StoreFiles, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fields and attributes of the array or group that a metadata file describes."""
    fields, folder = _object(files, name), name.rpartition("/")[0]
    if name.endswith("zarr.json"):
        return fields, fields.get("attributes") or {}
    # Zarr 3 keeps the attributes of an array in its `zarr.json`, Zarr 2 in a separate file.
    beside = f"{folder}/.zattrs" if folder else ".zattrs"
    return fields, _object(files, beside) if beside in files else {}


def _object(files: StoreFiles, name: str) -> dict[str, Any]:
    try:
        content = json.loads(files.read(name))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
