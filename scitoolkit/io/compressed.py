"""How a file shows that it holds compressed variables, found without importing the codecs."""

from __future__ import annotations

from pathlib import Path

import h5py

MAGIC = b"SciC"
"""First bytes of a stream; a compressed .npy file is one stream."""
STREAM = "scitoolkit_stream"
"""Attribute of an HDF5 dataset whose bytes are a stream."""
FILTERED = "scitoolkit_filtered"
"""Attribute of an HDF5 dataset whose values were compressed by our filter."""


def is_stream(path: Path) -> bool:
    """Return whether a file is one stream."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def holds_streams(path: Path) -> bool:
    """Return whether a file is a stream, or an HDF5 file with one."""
    if not path.is_file():
        return False
    if is_stream(path):
        return True
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path) as file:
        marks = {STREAM, FILTERED}
        return bool(file.visititems(lambda _, item: not marks.isdisjoint(item.attrs) or None))
