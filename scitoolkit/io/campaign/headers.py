"""What a file says of its variables: shapes, dims, units and attributes, no fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.fields import PathLike, expand_paths
from scitoolkit.io.formats.base import Format, format_of, unreadable
from scitoolkit.io.loader.hdf5 import hdf5_dims, open_hdf5

MAX_COORDINATE = 2**20


@dataclass(frozen=True)
class Stored:
    """One array of a file.

    Attributes:
        dims: names of its dims, dim_0, dim_1, ... where the file has none.
        attrs: its attributes.
        values: those of scalars and of vectors, None for larger arrays.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    values: np.ndarray | None = None


@dataclass(frozen=True)
class Header:
    """The arrays and attributes of a file.

    Attributes:
        variables: by name, groups as path: `tasks/b`.
        attrs: those of the file.
    """

    path: Path
    format: type[Format]
    variables: dict[str, Stored]
    attrs: dict[str, Any]

    def vector(self, name: str) -> np.ndarray | None:
        """Return the values of a vector, None where there is none of this name."""
        found = self.variables.get(name)
        return None if found is None or len(found.shape) != 1 else found.values


def read_header(path: Path) -> Header:
    """Return the header of a file of any installed format.

    Raises:
        DataError: the file is damaged, or of no known format.
    """
    kind = format_of(path)
    if kind.native_hdf5:
        return _hdf5_header(path, kind)
    try:
        with kind.open_dataset(path, decode=False) as dataset:
            variables = {
                str(name): Stored(
                    str(name), array.shape, tuple(map(str, array.dims)), dict(array.attrs),
                    np.asarray(array.values) if _is_small(array.shape) else None,
                )
                for name, array in dataset.variables.items() if array.dtype.kind in "biufc"
            }  # fmt: skip
            return Header(path, kind, variables, dict(dataset.attrs))
    except ScitoolkitError:
        raise
    except READ_ERRORS as error:
        raise unreadable(path, error) from None


def _hdf5_header(path: Path, kind: type[Format]) -> Header:
    variables: dict[str, Stored] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or item.shape is None:
            return
        if item.dtype.kind in "biufc" and not _is_bare_dim(item):
            values = np.asarray(item[()]) if _is_small(item.shape) else None
            dims = hdf5_dims(item) if item.shape else ()
            variables[name] = Stored(name, item.shape, dims, _attributes(item.attrs), values)

    with open_hdf5(path) as file:
        try:
            file.visititems(visit)
            return Header(path, kind, variables, _attributes(file.attrs))
        except READ_ERRORS as error:
            raise unreadable(path, error) from None


def _is_bare_dim(dataset: h5py.Dataset) -> bool:
    """Return whether NetCDF4 keeps nothing but the length of a dim here."""
    label = dataset.attrs.get("NAME", b"")
    text = label if isinstance(label, bytes) else str(label).encode()
    return text.startswith(b"This is a netCDF dimension but not a netCDF variable")


def _is_small(shape: Sequence[int]) -> bool:
    return len(shape) <= 1 and int(np.prod(shape)) <= MAX_COORDINATE


def _attributes(attrs: Any) -> dict[str, Any]:
    """Return the attributes that are text or numbers."""
    found = {}
    for key in attrs:
        if key in ("DIMENSION_LIST", "REFERENCE_LIST"):
            continue
        value = attrs[key]
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biufSO":
            value = value.ravel()[0]
        found[key] = value
    return found


def natural_key(path: Path | str) -> list[tuple[int, int, str]]:
    """Return a sort key that counts numbers in names: `s9` before `s10`.

    Example:
        >>> sorted(["s10.h5", "s9.h5"], key=natural_key)
        ['s9.h5', 's10.h5']
    """
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts if p]


def campaign_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the files of a campaign: of a file, a glob, a list or a directory, in natural order.

    A list keeps its order.

    Raises:
        DataError: a file does not exist, or a directory has none of a known format.
    """
    given = expand_paths(path)
    found: list[Path] = []
    for one in given:
        found += _below(one) if one.is_dir() and not _is_store(one) else [one]
    is_list = not isinstance(path, str | Path) and len(given) > 1
    return found if is_list else sorted(found, key=natural_key)


def _below(folder: Path) -> list[Path]:
    names = sorted(folder.iterdir(), key=natural_key)
    found: list[Path] = []
    for path in names:
        if path.name.startswith("."):
            continue
        if path.is_dir() and not _is_store(path):
            # Parts of a virtual file: `run_s1/run_s1_p0.h5` belong to `run_s1.h5`.
            found += [] if path.with_suffix(".h5").exists() else _below_or_none(path)
        elif _is_known(path):
            found.append(path)
    if not found:
        raise DataError("no file of a known format in this folder", where=str(folder))
    return found


def _below_or_none(folder: Path) -> list[Path]:
    try:
        return _below(folder)
    except DataError:
        return []


def _is_store(path: Path) -> bool:
    return _is_known(path) and path.is_dir()


def _is_known(path: Path) -> bool:
    try:
        format_of(path)
    except ScitoolkitError:
        return False
    return True
