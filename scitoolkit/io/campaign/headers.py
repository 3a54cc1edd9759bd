"""Headers of files: shapes, dims, units, attributes, and the values of scalars and vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import Format, format_of, formats, unreadable
from scitoolkit.io.loader.hdf5 import hdf5_dims, hdf5_scales, implied_fill, open_hdf5
from scitoolkit.io.loader.mapped import unwritten
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.text_times import UNITS, may_be_text_times, seconds_of_text

if TYPE_CHECKING:
    import xarray as xr

MAX_COORDINATE = 2**20
_REFERENCES = ("DIMENSION_LIST", "REFERENCE_LIST")
_ABOUT_DIMS = (b"DIMENSION_LIST", b"DIMENSION_LABELS", b"CLASS")


@dataclass(frozen=True)
class StoredArray:
    """Metadata of an array in a file.

    Attributes:
        name: path of the array.
        shape: of the array.
        dims: names of the dims; dim_0, dim_1, ... if the file has none.
        attrs: attributes.
        dtype: of the stored values.
        chunks: shape of a chunk; None for contiguous storage.
        num_filters: number of filters applied to a chunk.
        offset: position (bytes) of contiguous values in the file; -1 for other storage.
        complete: whether all values were written.
        virtual: whether the values are in other files.
        values: of scalars and vectors; None for larger arrays.
        scales: path of the HDF5 dimension scale of each dim, "" without; () if none has one.
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
    scales: tuple[str, ...] = ()

    @cached_property
    def nbytes(self) -> int:
        """Uncompressed size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def points(self) -> np.ndarray | None:
        """The values of a coordinate in its unit, NaN where they are missing; None without any."""
        if self.values is None:
            return None
        return Packing.of(self.values.dtype, self.attrs).unpack(self.values, exact=True)

    @property
    def is_small(self) -> bool:
        """Whether the values are read with the header."""
        return is_small(self.shape)


@dataclass(frozen=True)
class Schema:
    """Schema shared by files of one writer: their headers without values.

    Attributes:
        format: name of the format.
        variables: by path, such as `tasks/b`; without values.
        attrs: attributes of the file, and of its groups as `GROUP/NAME`.
    """

    format: str
    variables: dict[str, StoredArray]
    attrs: dict[str, Any]

    @cached_property
    def small(self) -> list[StoredArray]:
        """The variables whose values are read with the header."""
        return [v for v in self.variables.values() if v.is_small]


@dataclass(frozen=True)
class FileHeader:
    """Arrays and attributes of a file.

    Attributes:
        path: of the file.
        schema: arrays and attributes.
        values: of scalars and vectors, by name.
    """

    path: Path
    schema: Schema
    values: Mapping[str, np.ndarray]

    @property
    def variables(self) -> dict[str, StoredArray]:
        """The arrays by name, without values; see `get`."""
        return self.schema.variables

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the file."""
        return self.schema.attrs

    @property
    def format(self) -> type[Format]:
        """The format of the file."""
        return formats.get(self.schema.format)

    def get(self, name: str) -> StoredArray | None:
        """Return an array, with values if it is a scalar or vector; None if it does not exist."""
        stored = self.variables.get(name)
        return None if stored is None else replace(stored, values=self.values.get(name))

    def vector(self, name: str) -> np.ndarray | None:
        """Return the values of a vector; None if there is no vector of this name."""
        stored = self.get(name)
        return None if stored is None or len(stored.shape) != 1 else stored.values


def full_name(group: str, path: str) -> str:
    """Return the name in a file of an array of a group, which may be a pattern of names.

    Example:
        >>> full_name("tasks", "u"), full_name("", "u"), full_name("{}_0001", "u")
        ('tasks/u', 'u', 'u_0001')
    """
    if "{}" in group:
        return group.replace("{}", path)
    return f"{group}/{path}" if group else path


def read_header(path: Path) -> FileHeader:
    """Return the header of a file of any installed format.

    Raises:
        DataError: the file is damaged or in an unknown format.
    """
    kind = format_of(path)
    if kind.native_hdf5:
        return _hdf5_header(path, kind)
    try:
        with kind.open_dataset(path, decode=False) as dataset:
            variables, values, refers, texts = {}, {}, kind.refers(path), {}
            for key, array in dataset.variables.items():
                name = str(key)
                if array.dtype.kind not in "biufc":
                    if may_be_text_times(name, array.shape, array.dtype.kind):
                        texts[name] = (str(array.dims[0]), array.values)
                    continue
                attrs = {k: _plain(v) for k, v in array.attrs.items()}
                chunks = array.encoding.get("chunks")
                dims = tuple(map(str, array.dims))
                if kind.unnamed_dims:
                    dims = tuple(f"dim_{axis}" for axis in range(array.ndim))
                variables[name] = StoredArray(
                    name,
                    array.shape,
                    dims,
                    attrs,
                    array.dtype.str,
                    tuple(chunks) if chunks else None,
                    virtual=refers,
                )
                if is_small(array.shape):
                    values[name] = _without_holes(kind, path, name, array)
            _add_text_times(path, variables, values, texts)
            file_attributes = {str(k): _plain(v) for k, v in dataset.attrs.items()}
            return FileHeader(path, Schema(kind.name, variables, file_attributes), values)
    except ScitoolkitError:
        raise
    except READ_ERRORS as error:
        raise unreadable(path, error) from None


def _hdf5_header(path: Path, kind: type[Format]) -> FileHeader:
    """Return the header through h5py's low-level API, which is faster for many files."""
    variables: dict[str, StoredArray] = {}
    values: dict[str, np.ndarray] = {}
    with open_hdf5(path) as file:
        try:
            # Whether the library counts a user block in its offsets depends on its release, so that
            # files with one are not read at offsets.
            in_place, texts = not file.userblock_size, {}
            group_attributes: dict[str, Any] = {}
            for name, item in _objects(file):
                if isinstance(item, h5py.h5g.GroupID):
                    group_attributes |= _group_attributes(name, item)
                    continue
                dtype = item.dtype
                if dtype.kind not in "biufc" or (shape := item.shape) is None:
                    if may_be_text_times(name, item.shape or (), dtype.kind):
                        dataset = h5py.Dataset(item)
                        texts[name] = (_dims(dataset, _attribute_names(item))[0], dataset[()])
                    continue
                keys = _attribute_names(item)
                if b"NAME" in keys and _is_bare_dim(h5py.Dataset(item)):
                    continue
                dataset = h5py.Dataset(item)
                stated = _attributes(dataset.attrs) if keys else {}
                scales = hdf5_scales(dataset) if b"DIMENSION_LIST" in keys else ()
                variables[name] = StoredArray(
                    name,
                    shape,
                    _dims(dataset, keys, scales),
                    stated | implied_fill(dataset, stated),
                    dtype.str,
                    *_placed(item, shape, in_place),
                    scales=scales,
                )
                if is_small(shape):
                    values[name] = _written(dataset, variables[name])
                    if values[name].dtype != dtype:  # integers hold no NaN
                        variables[name] = replace(variables[name], dtype=values[name].dtype.str)
            _add_text_times(path, variables, values, texts)
            attrs = {**group_attributes, **_attributes(file.attrs)}
        except READ_ERRORS as error:
            raise unreadable(path, error) from None
    return FileHeader(path, Schema(kind.name, variables, attrs), values)


def _add_text_times(
    path: Path,
    variables: dict[str, StoredArray],
    values: dict[str, np.ndarray],
    texts: Mapping[str, tuple[str, Any]],
) -> None:
    """Add times that are stored as text, as numbers; after the others, which come first."""
    for name, (dim, written) in texts.items():
        seconds = seconds_of_text(written, f"{path}: variable {name}")
        if seconds is not None:
            variables[name] = StoredArray(
                name, seconds.shape, (dim,), dict(UNITS), seconds.dtype.str
            )
            values[name] = seconds


def _written(dataset: h5py.Dataset, stored: StoredArray) -> np.ndarray:
    """Return the values of a scalar or vector, NaN for what HDF5 would fill in."""
    values = np.asarray(dataset[()])
    if stored.complete and not stored.virtual:
        return values
    absent = unwritten(dataset)
    return np.where(absent, np.nan, values) if absent.any() else values


def _without_holes(kind: type[Format], path: Path, name: str, array: xr.Variable) -> np.ndarray:
    """Return the values of a scalar or vector, NaN for what was never written."""
    values = np.asarray(array.values)
    absent = kind.unwritten_entries(path, name, values, array.attrs)
    return np.where(absent, np.nan, values) if absent is not None and absent.any() else values


def _group_attributes(name: str, item: Any) -> dict[str, Any]:
    if not h5py.h5a.get_num_attrs(item):
        return {}
    return {f"{name}/{k}": v for k, v in _attributes(h5py.Group(item).attrs).items()}


def _objects(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield names and identifiers of all datasets and groups."""
    names: list[bytes] = []
    # Objects, not links: a second hard link to a dataset does not become a second variable.
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


def _dims(
    dataset: h5py.Dataset, keys: Sequence[bytes], scales: Sequence[str] = ()
) -> tuple[str, ...]:
    if not dataset.shape:
        return ()
    if any(key in keys for key in _ABOUT_DIMS):
        return hdf5_dims(dataset, scales or None)
    return tuple(f"dim_{axis}" for axis in range(len(dataset.shape)))


def _placed(
    item: Any, shape: Sequence[int], in_place: bool
) -> tuple[tuple[int, ...] | None, int, int, bool, bool]:
    """Return chunks, num_filters, offset, complete and virtual; see `StoredArray`."""
    created = item.get_create_plist()
    layout, number = created.get_layout(), created.get_nfilters()
    if layout == h5py.h5d.VIRTUAL or created.get_external_count():
        return None, number, -1, True, True
    if layout == h5py.h5d.CHUNKED:
        chunks = created.get_chunk()
        grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
        # HDF5 allocates a chunk when it is first written.
        complete = item.get_num_chunks() == int(np.prod(grid, dtype=np.int64))
        return chunks, number, -1, complete, False
    if layout == h5py.h5d.CONTIGUOUS:
        offset = item.get_offset()
        complete = offset is not None or not int(np.prod(shape, dtype=np.int64))
        return None, number, (offset if offset is not None and in_place else -1), complete, False
    # Compact values are part of the dataset's header, and have no offset.
    return None, number, -1, True, False


def _is_bare_dim(dataset: h5py.Dataset) -> bool:
    """Return whether a dataset is a netCDF-4 dimension without a coordinate variable."""
    label = dataset.attrs.get("NAME", b"")
    text = label if isinstance(label, bytes) else str(label).encode()
    return text.startswith(b"This is a netCDF dimension but not a netCDF variable")


def is_small(shape: Sequence[int]) -> bool:
    """Return whether an array is a scalar or vector whose values are read with the header."""
    return len(shape) <= 1 and int(np.prod(shape)) <= MAX_COORDINATE


def _attributes(attrs: Any) -> dict[str, Any]:
    """Return the attributes as plain data, without HDF5's references to dims."""
    return {key: _plain(attrs[key]) for key in attrs if key not in _REFERENCES}


def _plain(value: Any) -> Any:
    """Return a value as JSON types: number, text or list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufSUO":
            return str(value)
        # netCDF writes an attribute of one number as a vector of length 1.
        listed = value.ravel()[0] if value.size == 1 else value.tolist()
        return _plain(listed.item() if isinstance(listed, np.generic) else listed)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
