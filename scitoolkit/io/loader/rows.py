"""Readers of the rows of a variable, its slices at one index of the sample dim.

Positions of the data are queried from the file's library once. Bytes are then read by position and
decoded here, by several threads at a time and without the library's lock.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.loader import filters
from scitoolkit.io.loader.files import Counter, DataFile

Crop = tuple[slice, ...]


@dataclass(frozen=True)
class VariableLayout:
    """Storage of a variable, its sample axis, and the crop to read.

    Args:
        name: in the file.
        path: of the file.
        shape: of the variable.
        dims: names of the dims.
        dtype: of the stored values, including byte order.
        chunks: shape of a chunk; None for contiguous storage.
        filters: names of the filters of a chunk.
        axis: the sample axis.
        crop: a slice with start and stop for every axis; that of `axis` is ignored.
        attrs: attributes, such as `units`.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: np.dtype
    chunks: tuple[int, ...] | None
    filters: tuple[str, ...]
    axis: int
    crop: Crop
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Extent of the sample dim."""
        return self.shape[self.axis]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a cropped row."""
        return tuple(s.stop - s.start for i, s in enumerate(self.crop) if i != self.axis)

    @cached_property
    def row_nbytes(self) -> int:
        """Bytes of a cropped row of stored values."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def where(self) -> str:
        """File and variable, for messages."""
        return f"{self.path}: variable {self.name}"

    def window(self, first: int, last: int) -> Crop:
        """Return the slices of rows `first` ... `last` - 1, cropped."""
        return (*self.crop[: self.axis], slice(first, last), *self.crop[self.axis + 1 :])


def whole_layout(**stored: Any) -> VariableLayout:
    """Return the layout of a whole variable with samples along its first dim."""
    return VariableLayout(**stored, axis=0, crop=tuple(slice(0, size) for size in stored["shape"]))


class RowReader(Protocol):
    """Thread-safe reader of the rows of one variable of one file."""

    layout: VariableLayout
    unit_rows: int
    """Minimum number of rows per read; 1 if rows can be read separately."""
    counter: Counter
    """Counter of requests and bytes, possibly shared by readers of one file."""

    @property
    def file(self) -> DataFile | None:
        """The file, if there is exactly one."""

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1 as stored, (last - first, *row_shape).

        Raises:
            DataError: rows cannot be read, are damaged or were never written.
        """

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read the rows into `out`, contiguous and of the stored dtype; raises like `read`."""

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of requests and bytes for reading these rows."""

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced since it was opened."""


class CopyingReader(ABC):
    """Base of readers that return new arrays and cannot detect rows that were never written."""

    layout: VariableLayout

    @abstractmethod
    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read rows `first` ... `last` - 1 into `out`."""
        out[...] = self.read(first, last)

    def missing(self) -> list[tuple[int, int]]:
        """Return no rows."""
        return []


@dataclass(frozen=True)
class ChunkTable:
    """Positions of all chunks, as arrays of the shape of the chunk grid.

    Args:
        offset: int64, position in the file; -1 for chunks that were never written.
        size: int64, stored bytes.
        mask: uint32, bit i is set if filter i was skipped.
    """

    offset: np.ndarray
    size: np.ndarray
    mask: np.ndarray


class ChunkReader:
    """Reader of rows from chunks, each of which is read by one request and decoded here.

    Args:
        layout: of the variable.
        file: the file.
        table: positions of the chunks.
        codes: filter identifiers, see `filters`.
        fill: value of chunks that were never written; None raises DataError for them.
    """

    def __init__(
        self,
        layout: VariableLayout,
        file: DataFile,
        table: ChunkTable,
        codes: Sequence[int] = (),
        fill: Any = None,
    ) -> None:
        assert layout.chunks is not None
        self.layout: VariableLayout = layout
        self.file: DataFile = file
        self.table: ChunkTable = table
        self.counter: Counter = file.counter
        self.codes: tuple[int, ...] = tuple(codes)
        self.fill: Any = fill
        self.chunks: tuple[int, ...] = layout.chunks
        self.chunk_nbytes: int = int(np.prod(self.chunks, dtype=np.int64)) * layout.dtype.itemsize
        # In a chunk without filters, rows along the first axis are contiguous.
        self.cut: bool = not codes and layout.axis == 0
        self.unit_rows: int = 1 if self.cut else self.chunks[layout.axis]
        # Whole rows can then be read directly into the output.
        self.whole_rows: bool = self.cut and self.chunks[1:] == layout.shape[1:] == layout.row_shape
        self.grid: list[range] = [
            range(s.start // c, -(-s.stop // c))
            for s, c in zip(layout.crop, self.chunks, strict=True)
        ]

    def with_layout(self, layout: VariableLayout) -> ChunkReader:
        """Return a reader of the same variable with another axis or crop."""
        return ChunkReader(layout, self.file, self.table, self.codes, self.fill)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        out = np.empty((last - first, *self.layout.row_shape), self.layout.dtype)
        self.read_into(first, last, out)
        return out

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read rows `first` ... `last` - 1 into `out`."""
        self.file.check()
        layout = self.layout
        window = layout.window(first, last)
        for index in self._indices(first, last):
            # begin: first cell of the chunk. Its part of the window is stated twice: in cells of
            # the chunk (inside) and in cells of the output (target).
            begin = [i * c for i, c in zip(index, self.chunks, strict=True)]
            inside, target = [], []
            for at, c, wanted in zip(begin, self.chunks, window, strict=True):
                low, high = max(at, wanted.start), min(at + c, wanted.stop)
                inside.append(slice(low - at, high - at))
                target.append(slice(low - wanted.start, high - wanted.start))
            # Outputs have the samples first, wherever the file has them.
            target.insert(0, target.pop(layout.axis))
            part = out[tuple(target)]
            # The operating system writes into the output: no copy.
            if self.whole_rows and self.table.offset[index] >= 0:
                self._rows_into(index, inside[0], part)
            else:
                part[...] = np.moveaxis(self._chunk(index, inside), layout.axis, 0)

    def _rows_into(self, index: tuple[int, ...], rows: slice, out: np.ndarray) -> None:
        row = self.chunk_nbytes // self.chunks[0]
        offset = int(self.table.offset[index]) + rows.start * row
        try:
            self.file.read_into(offset, out.reshape(-1).view(np.uint8))
        except DataError as error:
            raise self._error(index, error.what, fix=error.fix) from None

    def _indices(self, first: int, last: int) -> itertools.product[tuple[int, ...]]:
        grid = list(self.grid)
        rows = self.chunks[self.layout.axis]
        # Only chunks with one of the rows: from floor(first / rows) to ceil(last / rows).
        grid[self.layout.axis] = range(first // rows, -(-last // rows))
        return itertools.product(*grid)

    def _chunk(self, index: tuple[int, ...], inside: list[slice]) -> np.ndarray:
        """Return the part `inside` of a chunk."""
        dtype = self.layout.dtype
        offset, size = int(self.table.offset[index]), int(self.table.size[index])
        if offset < 0:
            if self.fill is None:
                raise self._error(index, "the chunk was never written", fix=UNWRITTEN_FIX)
            return np.full([s.stop - s.start for s in inside], self.fill, dtype)
        try:
            # Uncompressed rows are contiguous: bytes of other rows of the chunk are not read.
            if self.cut:
                row = self.chunk_nbytes // self.chunks[0]
                rows = inside[0]
                data = self.file.read(offset + rows.start * row, (rows.stop - rows.start) * row)
                values = data.view(dtype).reshape(-1, *self.chunks[1:])
                return values[(slice(None), *inside[1:])]
            data = self.file.read(offset, size)
            mask = int(self.table.mask[index])
            data = filters.undo(data, self.codes, mask, dtype.itemsize, self.chunk_nbytes)
        except ValueError as error:
            raise self._error(index, f"the chunk is damaged ({error})") from None
        except DataError as error:
            raise self._error(index, error.what, fix=error.fix) from None
        return data.view(dtype).reshape(self.chunks)[tuple(inside)]

    def _error(self, index: tuple[int, ...], what: str, fix: str = "") -> DataError:
        rows = self.chunks[self.layout.axis]
        first = index[self.layout.axis] * rows
        last = min(first + rows, self.layout.num_rows) - 1
        where = f"{self.layout.where}, chunk {index}, rows {first} to {last}"
        return DataError(what, where=where, fix=fix)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges of rows with chunks within the crop that were never written."""
        axis, rows = self.layout.axis, self.chunks[self.layout.axis]
        part = self.table.offset[
            tuple(
                slice(g.start, g.stop) if i != axis else slice(None)
                for i, g in enumerate(self.grid)
            )
        ]
        # A row is missing if any of its chunks within the crop is.
        absent = (
            np.moveaxis(np.asarray(part < 0), axis, 0).reshape(part.shape[axis], -1).any(axis=1)
        )
        return runs_of(np.asarray(absent), rows, self.layout.num_rows)

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of requests and bytes for reading these rows."""
        indices = np.array(list(self._indices(first, last)))
        sizes = self.table.size[tuple(indices.T)]
        # Rows of such chunks are read alone; chunks that were never written cost nothing.
        if self.cut:
            begin = indices[:, 0] * self.chunks[0]
            inside = np.minimum(begin + self.chunks[0], last) - np.maximum(begin, first)
            sizes = np.where(sizes > 0, inside * (self.chunk_nbytes // self.chunks[0]), 0)
        return int((sizes > 0).sum()), int(sizes.sum())

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced."""
        self.file.check()


UNWRITTEN_FIX = "finish the run that writes the file, or allow_unwritten=True to read fill values"


def runs_of(marked: np.ndarray, scale: int, end: int) -> list[tuple[int, int]]:
    """Return the runs of True as (first, last + 1), multiplied by `scale` and limited to `end`.

    Example:
        >>> runs_of(np.array([True, True, False, True]), scale=4, end=14)
        [(0, 8), (12, 14)]
    """
    # Runs begin at +1 and end at -1 of the difference, with a False on either side.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(a) * scale, min(int(b) * scale, end)) for a, b in edges.reshape(-1, 2)]


class StridedReader:
    """Reader of contiguous rows with a constant stride: contiguous HDF5 and classic NetCDF.

    Args:
        layout: of the variable; its sample axis is the first.
        file: the file.
        offset: position (bytes) of row 0.
        stride: bytes from one row to the next; for contiguous data, the bytes of a whole row.
        unwritten: value of cells that nobody wrote; None if the storage has no such value.
    """

    rest_crop: tuple[slice, ...]

    unit_rows = 1

    def __init__(
        self,
        layout: VariableLayout,
        file: DataFile,
        offset: int,
        stride: int,
        unwritten: float | None = None,
    ) -> None:
        self.unwritten: float | None = unwritten
        self.layout: VariableLayout = layout
        self.file: DataFile = file
        self.offset: int = offset
        self.stride: int = stride
        self.counter: Counter = file.counter
        inner = layout.shape[1:]
        self.inner_nbytes: int = int(np.prod(inner, dtype=np.int64)) * layout.dtype.itemsize
        # Of each row, only the range of the first inner dim within the crop is read.
        rest = int(np.prod(inner[1:], dtype=np.int64)) * layout.dtype.itemsize
        outer = layout.crop[1] if inner else slice(0, 1)
        self.skip: Any | int = outer.start * rest if inner else 0
        self.length: Any | int = (
            (outer.stop - outer.start) * rest if inner else layout.dtype.itemsize
        )
        self.part: tuple[Any | int, ...] | tuple[()] = (
            tuple([outer.stop - outer.start, *inner[1:]]) if inner else ()
        )
        self.rest_crop = (slice(None), slice(None), *layout.crop[2:]) if inner else (slice(None),)

    def with_layout(self, layout: VariableLayout) -> RowReader:
        """Return a reader of the same variable with another axis or crop.

        Rows along the second axis at a single index of the first have a constant stride, too.
        """
        if layout.axis == 0:
            return StridedReader(layout, self.file, self.offset, self.stride, self.unwritten)
        outer = layout.crop[0]
        if layout.axis == 1 and outer.stop - outer.start == 1:
            inner = replace(
                layout, shape=layout.shape[1:], dims=layout.dims[1:], axis=0, crop=layout.crop[1:]
            )
            stride = self.inner_nbytes // max(layout.shape[1], 1)
            begin = self.offset + outer.start * self.stride
            return StridedReader(inner, self.file, begin, stride, self.unwritten)
        return TransposedReader(layout, self)

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read rows `first` ... `last` - 1 into `out`."""
        whole = self.length == self.stride and self.part == self.layout.row_shape
        if not whole or self.unwritten is not None:
            out[...] = self.read(first, last)
            return
        self.file.check()
        try:
            data = out.reshape(-1).view(np.uint8)
            self.file.read_into(self.offset + first * self.stride, data)
        except DataError as error:
            raise self._located(error, first, last) from None

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        self.file.check()
        begin = self.offset + first * self.stride + self.skip
        count = (last - first - 1) * self.stride + self.length
        try:
            data = self.file.read(begin, count)
        except DataError as error:
            raise self._located(error, first, last) from None
        values = np.ndarray(
            (last - first, self.length), np.uint8, data.data, strides=(self.stride, 1)
        )
        values = np.ascontiguousarray(values).view(self.layout.dtype)
        values = values.reshape(last - first, *self.part)[self.rest_crop]
        if self.unwritten is not None:
            require_written(values, self.unwritten, self.layout.where, first)
        return values

    def _located(self, error: DataError, first: int, last: int) -> DataError:
        where = f"{self.layout.where}, rows {first} to {last - 1}"
        return DataError(error.what, where=where, fix=error.fix)

    def missing(self) -> list[tuple[int, int]]:
        """Return no rows: contiguous storage is allocated as a whole."""
        return []

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of requests and bytes for reading these rows."""
        return 1, (last - first - 1) * self.stride + self.length

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced."""
        self.file.check()


class TransposedReader(CopyingReader):
    """Reader of rows along any axis of contiguous data, gathered from rows along the first axis.

    Args:
        layout: of the variable; its sample axis is not the first.
        source: reader along the first axis.
    """

    unit_rows = 1

    def __init__(self, layout: VariableLayout, source: StridedReader) -> None:
        self.layout, self.source = layout, source
        self.file, self.counter = source.file, source.counter

    def _along_first(self, first: int, last: int) -> StridedReader:
        layout = replace(self.layout, axis=0, crop=self.layout.window(first, last))
        return StridedReader(layout, self.source.file, self.source.offset, self.source.stride)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        outer, reader = self.layout.crop[0], self._along_first(first, last)
        rows = [reader.read(i, i + 1) for i in range(outer.start, outer.stop)]
        return np.moveaxis(np.concatenate(rows), self.layout.axis, 0)

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of requests and bytes for reading these rows."""
        outer, reader = self.layout.crop[0], self._along_first(first, last)
        return outer.stop - outer.start, (outer.stop - outer.start) * reader.length

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced."""
        self.file.check()


def missing_variable(name: str, present: Sequence[str], path: Path) -> DataError:
    """Return the error for a variable that a file does not have."""
    near = nearest_name(name, present)
    return DataError(
        f"variable {name!r} not found",
        where=str(path),
        allowed=", ".join(present),
        fix=f"did you mean {near}?" if near else "",
    )


def require_written(values: np.ndarray, fill: float, where: str, first: int = 0) -> None:
    """Raise if values hold the value of cells that nobody wrote.

    Args:
        values: (rows, ...) as stored.
        fill: that value.
        where: file and variable, for messages.
        first: number of the first row.

    Raises:
        DataError: with the first and last such row.
    """
    absent = values == values.dtype.type(fill)
    if not absent.any():
        return
    rows = first + np.flatnonzero(absent.reshape(len(values), -1).any(axis=1))
    raise DataError(
        f"rows {rows[0]} to {rows[-1]} hold {fill:g}, the value of cells that were never written",
        where=where,
        fix="write them, or state the value as _FillValue if it marks missing data",
    )
