"""Row readers of HDF5 and NetCDF4 that read chunks by their positions in the file.

Positions are queried from the library once, and a first row is verified against it. Unsupported
storage (other filters, virtual datasets, external or compact storage) is read through h5py, by one
thread at a time.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.coordinates import filter_fix
from scitoolkit.io.loader import filters
from scitoolkit.io.loader.descriptors import descriptors, limit_reached, too_many_open
from scitoolkit.io.loader.files import Counter, DataFile
from scitoolkit.io.loader.mapped import require_mapped, rows_from
from scitoolkit.io.loader.netcdf3 import default_fill
from scitoolkit.io.loader.packing import ATTRIBUTES
from scitoolkit.io.loader.rows import (
    UNWRITTEN_FIX,
    ChunkReader,
    ChunkTable,
    CopyingReader,
    RowReader,
    StridedReader,
    VariableLayout,
    missing_variable,
    whole_layout,
)

_logger = get_logger(__name__)
_FILTER_NAMES = {
    1: "gzip",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32024: "sz3",
    32026: "blosc2",
}

MakeLayout = Callable[..., VariableLayout]


def open_hdf5(path: Path) -> h5py.File:
    """Open a file for reading, even if another process has it open for writing.

    Raises:
        DataError: the file is damaged, truncated, or not HDF5.
    """
    try:
        return _open_with_room(path)
    except BlockingIOError:
        _logger.warning("%s is locked: another process is writing to it", path)
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if too_many_open(error):
            raise limit_reached(path) from None
        text = " ".join(str(error).split())
        raise DataError(
            f"damaged or truncated ({path.stat().st_size} bytes; {text[:300]})",
            where=str(path),
            fix="copy or make the file again",
        ) from None


def _open_with_room(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if not too_many_open(error):
            raise
    descriptors.make_room()
    return h5py.File(path, "r")


def hdf5_readers(
    path: Path, names: list[str], layout_of: MakeLayout, *, allow_unwritten: bool = False
) -> dict[str, RowReader]:
    """Return a reader for each variable of one file.

    Args:
        path: the file.
        names: variables.
        layout_of: returns the `VariableLayout` for the metadata of a variable; see
            `Format.row_readers`.
        allow_unwritten: whether to read fill values in chunks that were never written.

    Raises:
        DataError: a variable is missing or not a numeric array.
    """
    # Registers third-party compressors, if installed.
    with contextlib.suppress(ImportError):
        importlib.import_module("hdf5plugin")
    file = DataFile(path)
    with open_hdf5(path) as handle:
        readers = {}
        for name in names:
            dataset = _dataset(handle, name, path)
            layout = layout_of(
                name=name,
                path=str(path),
                shape=dataset.shape,
                dims=hdf5_dims(dataset),
                dtype=dataset.dtype,
                chunks=dataset.chunks,
                filters=filter_names(dataset),
                attrs=_attributes(dataset),
            )
            readers[name] = _reader(dataset, layout, file, allow_unwritten)
    return readers


def unwritten_parts(
    path: Path, names: Sequence[str]
) -> dict[str, Callable[[tuple[slice, ...], np.ndarray], None]]:
    """Return {variable: what raises if a window of it was never written} of those with such parts.

    A fill value that a variable states as its missing value is no unwritten one.
    """
    with open_hdf5(path) as handle:
        partial = [name for name in names if _has_unwritten(handle.get(name))]
        scalars = {name for name in partial if not handle[name].ndim}
    parts: dict[str, Callable[[tuple[slice, ...], np.ndarray], None]] = {}
    for name in partial:
        where, missing, cause = f"{path}: variable {name}", [(0, 1)], None
        if name not in scalars:
            try:
                missing = hdf5_readers(path, [name], whole_layout)[name].missing()
            except DataError as error:  # sources of a virtual dataset
                cause = error
        parts[name] = functools.partial(_refuse_rows, where, missing, cause)
    return parts


def implied_fills(path: Path, names: Sequence[str]) -> dict[str, float]:
    """Return {variable: netCDF's default fill value} of those that `implied_fill` finds."""
    with open_hdf5(path) as handle:
        items = {name: handle.get(name) for name in names}
        fills = {
            name: implied_fill(item, item.attrs)
            for name, item in items.items()
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf"
        }
    return {name: fill["_FillValue"] for name, fill in fills.items() if fill}


def unfollowed_links(path: Path) -> dict[str, str]:
    """Return {name: what it points to} of links into other files and of links to nothing."""
    links: dict[str, str] = {}
    with open_hdf5(path) as file:

        def note(name: bytes, about: Any) -> None:
            if about.type not in (h5py.h5l.TYPE_SOFT, h5py.h5l.TYPE_EXTERNAL):
                return
            parts = file.id.links.get_val(name)
            target = parts if isinstance(parts, tuple) else (parts,)
            if len(target) > 1 or file.get(name) is None:
                links[name.decode(errors="replace")] = ": ".join(
                    part.decode(errors="replace") for part in target
                )

        file.id.links.visit(note, info=True)
    return links


def _has_unwritten(dataset: Any) -> bool:
    """Return whether a dataset may have parts that were never written, or are in other files."""
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "biufc":
        return False
    stated = dataset.attrs.get("_FillValue")
    if not dataset.size or (stated is not None and np.all(stated == dataset.fillvalue)):
        return False
    if dataset.is_virtual or dataset.external:
        return True
    if dataset.chunks is not None:
        grid = [-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]
        return dataset.id.get_num_chunks() < int(np.prod(grid, dtype=np.int64))
    # HDF5 allocates contiguous storage at the first write; compact values are in the header.
    compact = dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
    return not compact and dataset.id.get_offset() is None


def _refuse_rows(
    where: str,
    missing: Sequence[tuple[int, int]],
    cause: DataError | None,
    window: tuple[slice, ...],
    values: np.ndarray,
) -> None:
    """Raise the cause, or an error if a window has rows that were never written."""
    if cause is not None:
        raise cause
    for first, last in missing:
        if not window or (first < window[0].stop and window[0].start < last):
            raise DataError(
                f"rows {first} to {last - 1} were never written", where=where, fix=UNWRITTEN_FIX
            )


def _dataset(handle: h5py.File, name: str, path: Path) -> h5py.Dataset:
    dataset = handle.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise missing_variable(name, array_names(handle), path)
    if dataset.dtype.kind not in "biufc" or not dataset.ndim:
        raise DataError(
            f"{dataset.dtype} of shape {dataset.shape}, not a numeric array",
            where=f"{path}: variable {name}",
        )
    return dataset


def array_names(handle: h5py.File) -> list[str]:
    """Return the paths of all numeric arrays in a file."""
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim and item.dtype.kind in "biufc":
            names.append(name)

    handle.visititems(visit)
    return names


def hdf5_dims(dataset: h5py.Dataset, scales: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the names of dims from dimension scales or labels, else dim_0, dim_1, ..."""
    # A scale cannot have scales: the coordinate of a dim names its axis by itself.
    if dataset.is_scale and dataset.ndim == 1:
        return (dataset.name.rpartition("/")[2],)
    return tuple(
        (scale.rpartition("/")[2] or dataset.dims[axis].label) or f"dim_{axis}"
        for axis, scale in enumerate(hdf5_scales(dataset) if scales is None else scales)
    )


def hdf5_scales(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return the path in the file of the scale of each dim, "" for a dim without."""
    return tuple(str(d[0].name or "").removeprefix("/") if len(d) else "" for d in dataset.dims)


def filter_names(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of a dataset's filters in the order of writing."""
    codes = [code for code, *_ in _filters(dataset)]
    return tuple(_FILTER_NAMES.get(code, f"filter {code}") for code in codes)


def _filters(dataset: h5py.Dataset) -> list[tuple[Any, ...]]:
    created = dataset.id.get_create_plist()
    return [created.get_filter(i) for i in range(created.get_nfilters())]


def _attributes(dataset: h5py.Dataset) -> dict[str, Any]:
    attributes = {}
    for key in ATTRIBUTES:
        if key in dataset.attrs:
            value = dataset.attrs[key]
            value = value.decode() if isinstance(value, bytes) else value
            several = key in ("missing_value", "valid_range") and np.size(value) > 1
            attributes[key] = value if several or isinstance(value, str) else np.ravel(value)[0]
    return attributes | implied_fill(dataset, attributes)


def implied_fill(dataset: h5py.Dataset, attributes: Mapping[str, Any]) -> dict[str, float]:
    """Return `_FillValue` where the netCDF library fills with its default without stating it.

    Values that nobody wrote are then in the file like others, if it is contiguous.
    """
    fill = default_fill(dataset.dtype, attributes)
    created = dataset.id.get_create_plist()
    # netCDF sets the fill value of each dataset; HDF5's default, 0, marks no missing values.
    if fill is None or created.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return {}
    return {"_FillValue": fill} if dataset.fillvalue == dataset.dtype.type(fill) else {}


def _reader(
    dataset: h5py.Dataset, layout: VariableLayout, file: DataFile, allow_unwritten: bool
) -> RowReader:
    through_library = LibraryReader(layout, file, _files_behind(dataset, layout))
    codes = [code for code, *_ in _filters(dataset)]
    if dataset.is_virtual and not allow_unwritten:
        require_mapped(dataset, layout)
    if dataset.is_virtual or dataset.external:
        return through_library
    fill = dataset.fillvalue if allow_unwritten else None
    # Releases of HDF5 differ in whether offsets count a user block, which `_agrees` finds out.
    for base in dict.fromkeys([0, dataset.file.userblock_size]):
        direct: StridedReader | ChunkReader | None = None
        if dataset.chunks is None:
            offset = dataset.id.get_offset()
            if offset is not None and layout.axis == 0:
                stride = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))
                direct = StridedReader(layout, file, offset + base, stride)
        else:
            table = _chunk_table(dataset, base)
            if set(codes) <= filters.KNOWN:
                direct = ChunkReader(layout, file, table, codes, fill)
            else:
                # Only the library decodes these, but the table shows unwritten chunks.
                through_library.unit_rows = dataset.chunks[layout.axis]
                through_library.table = ChunkReader(layout, file, table, codes, fill)
        if direct is not None and _agrees(direct, dataset):
            return direct
    if dataset.chunks is None and not dataset.id.get_storage_size() and not allow_unwritten:
        through_library.unwritten = True
    return through_library


def _chunk_table(dataset: h5py.Dataset, base: int) -> ChunkTable:
    assert dataset.chunks is not None
    grid = tuple(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    offset = np.full(grid, -1, np.int64)
    size, mask = np.zeros(grid, np.int64), np.zeros(grid, np.uint32)
    chunks = dataset.chunks

    def note(info: Any) -> None:
        index = tuple(o // c for o, c in zip(info.chunk_offset, chunks, strict=True))
        offset[index] = info.byte_offset + base
        size[index], mask[index] = info.size, info.filter_mask

    dataset.id.chunk_iter(note)
    return ChunkTable(offset, size, mask)


def _agrees(reader: RowReader, dataset: h5py.Dataset) -> bool:
    """Return whether a reader's first written row is bit-identical to that of the library."""
    layout = reader.layout
    absent = {row for first, last in reader.missing() for row in range(first, last)}
    row = next((r for r in range(layout.num_rows) if r not in absent), None)
    if row is None:
        return True
    try:
        values = reader.read(row, row + 1)
    except DataError:
        return False
    # Bytes, because NaN is not equal to itself.
    return values.tobytes() == _through_library(dataset, layout, row, row + 1).tobytes()


def _through_library(
    dataset: h5py.Dataset, layout: VariableLayout, first: int, last: int
) -> np.ndarray:
    return np.moveaxis(dataset[layout.window(first, last)], layout.axis, 0)


def _files_behind(dataset: h5py.Dataset, layout: VariableLayout) -> list[Path]:
    """Return the other files that contain a dataset's values.

    HDF5 returns fill values without an error if one is missing or too short.

    Raises:
        DataError: a file is missing or too short.
    """
    folder = Path(layout.path).parent
    if dataset.is_virtual:
        # HDF5 writes "." for a source in the same file.
        names = {source.file_name for source in dataset.virtual_sources()} - {"."}
        needed = {folder / name: 0 for name in sorted(names)}
    else:
        needed = {}
        for name, offset, size in dataset.external or ():
            end = offset + (size if size < h5py.h5f.UNLIMITED else 0)
            needed[folder / name] = max(end, needed.get(folder / name, 0))
    for path, nbytes in needed.items():
        size = path.stat().st_size if path.exists() else -1
        if size < nbytes or size < 0:
            fault = "does not exist" if size < 0 else f"has {size} bytes, not {nbytes}"
            rows = rows_from(dataset, path.name, layout)
            raise DataError(
                f"its values are in {len(needed)} other files, of which {path} {fault} "
                f"(rows {rows})",
                where=layout.where,
                fix="restore the file; HDF5 would return fill values instead",
            )
    return list(needed)


class _Handle:
    """File kept open by the library, for one thread at a time.

    Args:
        path: the file, opened at the first read.
    """

    def __init__(self, path: str) -> None:
        self.path: str = path
        self._reset()

    def _reset(self) -> None:
        self._lock, self._owner = threading.Lock(), -1
        self._file: h5py.File | None = None

    @contextlib.contextmanager
    def dataset(self, name: str) -> Iterator[h5py.Dataset]:
        """Context manager of an open dataset."""
        with self._lock:
            if self._owner != os.getpid() or self._file is None:
                # A handle inherited through a fork belongs to the parent and is not used.
                self._file, self._owner = open_hdf5(Path(self.path)), os.getpid()
            yield self._file[name]

    def __getstate__(self) -> str:
        return self.path

    def __setstate__(self, state: str) -> None:
        self.path = state
        self._reset()


class LibraryReader(CopyingReader):
    """Reader of rows through h5py, for any storage and filter, one thread at a time.

    Args:
        layout: of the variable.
        file: the file, to detect changes.
        behind: other files that contain the values.

    Attributes:
        holds_handle: the library keeps the file open, shared by all readers of one variable.
    """

    holds_handle: ClassVar[bool] = True

    def __init__(self, layout: VariableLayout, file: DataFile, behind: list[Path]) -> None:
        self.layout = layout
        self.file: DataFile = file
        self.behind: list[DataFile] = [DataFile(path) for path in behind]
        self.unit_rows: int = layout.chunks[layout.axis] if layout.chunks else 1
        self.table: ChunkReader | None = None
        self.unwritten = False
        self.counter: Counter = Counter()
        self.handle = _Handle(layout.path)

    def with_layout(self, layout: VariableLayout) -> LibraryReader:
        """Return a reader of the same variable with another axis or crop."""
        other = LibraryReader(layout, self.file, [])
        other.behind, other.unwritten = self.behind, self.unwritten
        other.handle = self.handle
        if self.table is not None:
            other.table = self.table.with_layout(layout)
            other.unit_rows = other.table.chunks[layout.axis]
        return other

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        self.check()
        where = f"{self.layout.where}, rows {first} to {last - 1}"
        for begin, end in self.missing():
            if begin < last and end > first:
                raise DataError(f"rows {begin} to {end - 1} were never written", where=where)
        try:
            with self.handle.dataset(self.layout.name) as dataset:
                values = _through_library(dataset, self.layout, first, last)
        except (OSError, RuntimeError, KeyError) as error:
            text = " ".join(str(error).split())
            raise DataError(f"cannot be read ({text})", where=where, fix=filter_fix(text)) from None
        # Again after the read: of a file that shrank meanwhile the library returns zeros.
        self.check()
        # HDF5 does not report its reads; this is the minimum.
        self.counter.add(*self.cost(first, last))
        return values

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""
        return self._missing

    @cached_property
    def _missing(self) -> list[tuple[int, int]]:
        if self.table is not None:
            return self.table.missing() if self.table.fill is None else []
        return [(0, self.layout.num_rows)] if self.unwritten else []

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the minimum number of requests and bytes for reading these rows."""
        if self.table is not None:
            return self.table.cost(first, last)
        return 1, (last - first) * self.layout.row_nbytes

    def check(self) -> None:
        """Raise DataError if a file was truncated or replaced."""
        for file in (self.file, *self.behind):
            if file is not None:
                file.check()
