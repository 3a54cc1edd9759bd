"""What a file says of its variables: shapes, dims, units and attributes, no fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import Format, format_of, formats, unreadable
from scitoolkit.io.loader.hdf5 import hdf5_dims, open_hdf5

MAX_COORDINATE = 2**20
_REFERENCES = ("DIMENSION_LIST", "REFERENCE_LIST")
_ABOUT_DIMS = (b"DIMENSION_LIST", b"DIMENSION_LABELS", b"CLASS")


@dataclass(frozen=True)
class Stored:
    """One array of a file.

    Attributes:
        dims: names of its dims, dim_0, dim_1, ... where the file has none.
        attrs: its attributes.
        dtype: of the stored values.
        chunks: extent of a chunk, None when it is stored in one piece.
        num_filters: what is done to a chunk, as a number of steps.
        offset: position in the file of values that lie in one piece as they are, -1 for others.
        complete: whether all values were written.
        virtual: whether the values are in other files.
        values: those of scalars and of vectors, None for larger arrays.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    dtype: str = "<f4"
    chunks: tuple[int, ...] | None = None
    num_filters: int = 0
    offset: int = -1
    complete: bool = True
    virtual: bool = False
    values: np.ndarray | None = None

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the values as stored, without compression."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_small(self) -> bool:
        """Whether the values are read with the header."""
        return is_small(self.shape)


@dataclass(frozen=True)
class Schema:
    """What files of one writer have in common: everything but their values.

    Attributes:
        format: name of the format.
        variables: by name, groups as path: `tasks/b`; without values.
        attrs: those of the file, and those of its groups as `GROUP/NAME`.
    """

    format: str
    variables: dict[str, Stored]
    attrs: dict[str, Any]

    @cached_property
    def small(self) -> list[Stored]:
        """The variables whose values are read with the header."""
        return [v for v in self.variables.values() if v.is_small]


@dataclass(frozen=True)
class Header:
    """The arrays and attributes of a file.

    Attributes:
        values: those of scalars and vectors, by name.
    """

    path: Path
    schema: Schema
    values: Mapping[str, np.ndarray]

    @property
    def variables(self) -> dict[str, Stored]:
        """The arrays by name; `get` gives one with its values."""
        return self.schema.variables

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the file."""
        return self.schema.attrs

    @property
    def format(self) -> type[Format]:
        """The format of the file."""
        return formats.get(self.schema.format)

    def get(self, name: str) -> Stored | None:
        """Return an array with its values, where it has few; None where there is no such array."""
        found = self.variables.get(name)
        return None if found is None else replace(found, values=self.values.get(name))

    def vector(self, name: str) -> np.ndarray | None:
        """Return the values of a vector, None where there is none of this name."""
        found = self.get(name)
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
            variables, values = {}, {}
            for key, array in dataset.variables.items():
                if array.dtype.kind not in "biufc":
                    continue
                name = str(key)
                attrs = {k: _plain(v) for k, v in array.attrs.items()}
                chunks = array.encoding.get("chunks")
                dims = tuple(map(str, array.dims))
                if kind.unnamed_dims:
                    dims = tuple(f"dim_{axis}" for axis in range(array.ndim))
                variables[name] = Stored(
                    name, array.shape, dims, attrs, array.dtype.str,
                    tuple(chunks) if chunks else None,
                )  # fmt: skip
                if is_small(array.shape):
                    values[name] = np.asarray(array.values)
            found = {str(k): _plain(v) for k, v in dataset.attrs.items()}
            return Header(path, Schema(kind.name, variables, found), values)
    except ScitoolkitError:
        raise
    except READ_ERRORS as error:
        raise unreadable(path, error) from None


def _hdf5_header(path: Path, kind: type[Format]) -> Header:
    """Return the header by the library's low-level calls: there may be many files."""
    variables: dict[str, Stored] = {}
    values: dict[str, np.ndarray] = {}
    with open_hdf5(path) as file:
        try:
            in_place = not file.userblock_size
            found: dict[str, Any] = {}
            for name, item in _objects(file):
                if isinstance(item, h5py.h5g.GroupID):
                    found |= _group_attributes(name, item)
                    continue
                dtype = item.dtype
                if dtype.kind not in "biufc" or (shape := item.shape) is None:
                    continue
                keys = _attribute_names(item)
                if b"NAME" in keys and _is_bare_dim(h5py.Dataset(item)):
                    continue
                dataset = h5py.Dataset(item)
                variables[name] = Stored(
                    name, shape, _dims(dataset, keys), _attributes(dataset.attrs) if keys else {},
                    dtype.str, *_placed(item, shape, in_place),
                )  # fmt: skip
                if is_small(shape):
                    values[name] = np.asarray(dataset[()])
            attrs = {**found, **_attributes(file.attrs)}
        except READ_ERRORS as error:
            raise unreadable(path, error) from None
    return Header(path, Schema(kind.name, variables, attrs), values)


def _group_attributes(name: str, item: Any) -> dict[str, Any]:
    if not h5py.h5a.get_num_attrs(item):
        return {}
    return {f"{name}/{k}": v for k, v in _attributes(h5py.Group(item).attrs).items()}


def _objects(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Return names and identifiers of all datasets and groups."""
    names: list[bytes] = []
    h5py.h5o.visit(file.id, lambda name: names.append(name))
    for name in names:
        item = h5py.h5o.open(file.id, name)
        if isinstance(item, h5py.h5d.DatasetID | h5py.h5g.GroupID):
            yield name.decode(errors="replace"), item


def _attribute_names(item: Any) -> list[bytes]:
    if not h5py.h5a.get_num_attrs(item):
        return []
    names: list[bytes] = []
    h5py.h5a.iterate(item, lambda name, *_: names.append(name))
    return names


def _dims(dataset: h5py.Dataset, keys: Sequence[bytes]) -> tuple[str, ...]:
    if not dataset.shape:
        return ()
    if any(key in keys for key in _ABOUT_DIMS):
        return hdf5_dims(dataset)
    return tuple(f"dim_{axis}" for axis in range(len(dataset.shape)))


def _placed(
    item: Any, shape: Sequence[int], in_place: bool
) -> tuple[tuple[int, ...] | None, int, int, bool, bool]:
    """Return chunks, filters, offset, whether all was written, and whether in other files."""
    created = item.get_create_plist()
    layout, number = created.get_layout(), created.get_nfilters()
    if layout == h5py.h5d.VIRTUAL or created.get_external_count():
        return None, number, -1, True, True
    if layout == h5py.h5d.CHUNKED:
        chunks = created.get_chunk()
        grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
        complete = item.get_num_chunks() == int(np.prod(grid, dtype=np.int64))
        return chunks, number, -1, complete, False
    if layout == h5py.h5d.CONTIGUOUS:
        offset = item.get_offset()
        complete = offset is not None or not int(np.prod(shape, dtype=np.int64))
        return None, number, (offset if offset is not None and in_place else -1), complete, False
    return None, number, -1, True, False


def _is_bare_dim(dataset: h5py.Dataset) -> bool:
    """Return whether NetCDF4 keeps nothing but the length of a dim here."""
    label = dataset.attrs.get("NAME", b"")
    text = label if isinstance(label, bytes) else str(label).encode()
    return text.startswith(b"This is a netCDF dimension but not a netCDF variable")


def is_small(shape: Sequence[int]) -> bool:
    """Return whether an array is a scalar or a vector that is read with the header."""
    return len(shape) <= 1 and int(np.prod(shape)) <= MAX_COORDINATE


def _attributes(attrs: Any) -> dict[str, Any]:
    """Return the attributes that are text or numbers."""
    return {key: _plain(attrs[key]) for key in attrs if key not in _REFERENCES}


def _plain(value: Any) -> Any:
    """Return a number, text or list, as JSON has them."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufSUO":
            return str(value)
        listed = value.ravel()[0] if value.size == 1 else value.tolist()
        return _plain(listed.item() if isinstance(listed, np.generic) else listed)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
