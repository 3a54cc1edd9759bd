"""Reading rows of one variable: a row is what it holds at one index of the sample dim.

The file's own library is asked once where everything lies; after that the bytes are fetched by
position and decoded here, by several threads at a time and without the library's lock.
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
class Layout:
    """One variable as it is stored, and the part of it that is wanted.

    Args:
        name: its name in the file.
        path: the file.
        shape: its extent.
        dims: names of its dims.
        dtype: of the stored values, in their byte order.
        chunks: extent of a chunk; None when it is stored in one piece.
        filters: what was done to a chunk, in words.
        axis: the axis of the samples.
        crop: a slice with start and stop for every axis; that of `axis` is not looked at.
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
        """Shape of a row, after the crop."""
        return tuple(s.stop - s.start for i, s in enumerate(self.crop) if i != self.axis)

    @cached_property
    def row_nbytes(self) -> int:
        """Bytes of a row, after the crop, as stored values."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def where(self) -> str:
        """File and variable, for messages."""
        return f"{self.path}: variable {self.name}"

    def window(self, first: int, last: int) -> Crop:
        """Return the slices of rows `first` ... `last` - 1, cropped."""
        return (*self.crop[: self.axis], slice(first, last), *self.crop[self.axis + 1 :])


class RowReader(Protocol):
    """Reads rows of one variable of one file, from any thread."""

    layout: Layout
    unit_rows: int
    """Rows that one read brings at the least: 1 where a row can be read by itself."""
    counter: Counter
    """Requests and bytes; readers of one file may share theirs."""

    @property
    def file(self) -> DataFile | None:
        """The file, where there is just one."""

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1 as stored, shape (last - first, *row_shape).

        Raises:
            DataError: they cannot be read, or are not what was written.
        """

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put the same rows into `out`, contiguous, of the stored dtype; raises as `read`."""

    def missing(self) -> list[tuple[int, int]]:
        """Return the (first, last + 1) of rows that nobody ever wrote."""

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""

    def check(self) -> None:
        """Raise a DataError if the file is no longer what was opened."""


class CopyingReader(ABC):
    """Base of readers that allocate what they return and do not know what was never written."""

    layout: Layout

    @abstractmethod
    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put rows `first` ... `last` - 1 into `out`."""
        out[...] = self.read(first, last)

    def missing(self) -> list[tuple[int, int]]:
        """Return nothing: what cannot be read fails when it is read."""
        return []


@dataclass(frozen=True)
class ChunkTable:
    """Where every chunk lies, arrays of the shape of the chunk grid.

    Args:
        offset: position in the file, -1 where nothing was written, int64.
        size: stored bytes, int64.
        mask: bit i set: filter i was skipped, uint32.
    """

    offset: np.ndarray
    size: np.ndarray
    mask: np.ndarray


class ChunkReader:
    """Rows out of chunks, each fetched by one request and decoded here.

    Args:
        layout: the variable.
        file: the file it is in.
        table: where the chunks lie.
        codes: the filters, see `filters`.
        fill: value of what was never written; None makes reading it an error.
    """

    def __init__(
        self,
        layout: Layout,
        file: DataFile,
        table: ChunkTable,
        codes: Sequence[int] = (),
        fill: Any = None,
    ) -> None:
        assert layout.chunks is not None
        self.layout: Layout = layout
        self.file: DataFile = file
        self.table: ChunkTable = table
        self.counter: Counter = file.counter
        self.codes: tuple[int, ...] = tuple(codes)
        self.fill: Any = fill
        self.chunks: tuple[int, ...] = layout.chunks
        self.chunk_nbytes: int = int(np.prod(self.chunks, dtype=np.int64)) * layout.dtype.itemsize
        # Rows of a chunk that is stored as it is lie one after the other.
        self.cut: bool = not codes and layout.axis == 0
        self.unit_rows: int = 1 if self.cut else self.chunks[layout.axis]
        # Whole rows may then be read to where they belong.
        self.whole_rows: bool = self.cut and self.chunks[1:] == layout.shape[1:] == layout.row_shape
        self.grid: list[range] = [
            range(s.start // c, -(-s.stop // c))
            for s, c in zip(layout.crop, self.chunks, strict=True)
        ]

    def with_layout(self, layout: Layout) -> ChunkReader:
        """Return a reader of the same variable along another axis, or of another part of it."""
        return ChunkReader(layout, self.file, self.table, self.codes, self.fill)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        out = np.empty((last - first, *self.layout.row_shape), self.layout.dtype)
        self.read_into(first, last, out)
        return out

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put rows `first` ... `last` - 1 into `out`."""
        self.file.check()
        layout = self.layout
        window = layout.window(first, last)
        for index in self._indices(first, last):
            begin = [i * c for i, c in zip(index, self.chunks, strict=True)]
            inside, target = [], []
            for at, c, wanted in zip(begin, self.chunks, window, strict=True):
                low, high = max(at, wanted.start), min(at + c, wanted.stop)
                inside.append(slice(low - at, high - at))
                target.append(slice(low - wanted.start, high - wanted.start))
            target.insert(0, target.pop(layout.axis))
            part = out[tuple(target)]
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
        """Return the rows of which some chunk within the crop was never written."""
        axis, rows = self.layout.axis, self.chunks[self.layout.axis]
        part = self.table.offset[tuple(slice(g.start, g.stop) if i != axis else slice(None)
                                       for i, g in enumerate(self.grid))]  # fmt: skip
        absent = (
            np.moveaxis(np.asarray(part < 0), axis, 0).reshape(part.shape[axis], -1).any(axis=1)
        )
        return runs_of(np.asarray(absent), rows, self.layout.num_rows)

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        indices = np.array(list(self._indices(first, last)))
        sizes = self.table.size[tuple(indices.T)]
        if self.cut:
            begin = indices[:, 0] * self.chunks[0]
            inside = np.minimum(begin + self.chunks[0], last) - np.maximum(begin, first)
            sizes = np.where(sizes > 0, inside * (self.chunk_nbytes // self.chunks[0]), 0)
        return int((sizes > 0).sum()), int(sizes.sum())

    def check(self) -> None:
        """Raise a DataError if the file has become shorter."""
        self.file.check()


UNWRITTEN_FIX = "finish the run that writes the file, or allow_unwritten=True to read fill values"


def runs_of(marked: np.ndarray, scale: int, end: int) -> list[tuple[int, int]]:
    """Return (first, last + 1) of the runs of True, in units of `scale`, cut at `end`.

    Example:
        >>> runs_of(np.array([True, True, False, True]), scale=4, end=14)
        [(0, 8), (12, 14)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(a) * scale, min(int(b) * scale, end)) for a, b in edges.reshape(-1, 2)]


class StridedReader:
    """Rows at equal distances, each in one piece: contiguous HDF5 and classic NetCDF.

    Args:
        layout: the variable; its sample axis is the first.
        file: the file it is in.
        offset: position of row 0.
        stride: bytes from one row to the next; of contiguous data, the bytes of a whole row.
    """

    rest_crop: tuple[slice, ...]

    unit_rows = 1

    def __init__(self, layout: Layout, file: DataFile, offset: int, stride: int) -> None:
        self.layout: Layout = layout
        self.file: DataFile = file
        self.offset: int = offset
        self.stride: int = stride
        self.counter: Counter = file.counter
        inner = layout.shape[1:]
        self.inner_nbytes: int = int(np.prod(inner, dtype=np.int64)) * layout.dtype.itemsize
        # Of a row only the outermost stretch that the crop needs is read.
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

    def with_layout(self, layout: Layout) -> RowReader:
        """Return a reader of the same variable along another axis, or of another part of it.

        Along the second axis at one index of the first, rows lie one after the other as well.
        """
        if layout.axis == 0:
            return StridedReader(layout, self.file, self.offset, self.stride)
        outer = layout.crop[0]
        if layout.axis == 1 and outer.stop - outer.start == 1:
            inner = replace(layout, shape=layout.shape[1:], dims=layout.dims[1:], axis=0,
                            crop=layout.crop[1:])  # fmt: skip
            stride = self.inner_nbytes // max(layout.shape[1], 1)
            begin = self.offset + outer.start * self.stride
            return StridedReader(inner, self.file, begin, stride)
        return TransposedReader(layout, self)

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put rows `first` ... `last` - 1 into `out`."""
        if self.length != self.stride or self.part != self.layout.row_shape:
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
        return values.reshape(last - first, *self.part)[self.rest_crop]

    def _located(self, error: DataError, first: int, last: int) -> DataError:
        where = f"{self.layout.where}, rows {first} to {last - 1}"
        return DataError(error.what, where=where, fix=error.fix)

    def missing(self) -> list[tuple[int, int]]:
        """Return nothing: all rows lie in one piece that is there."""
        return []

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        return 1, (last - first - 1) * self.stride + self.length

    def check(self) -> None:
        """Raise a DataError if the file has become shorter."""
        self.file.check()


class TransposedReader(CopyingReader):
    """Rows along any axis of contiguous data, gathered from its rows along the first.

    Args:
        layout: the variable; its sample axis is not the first.
        source: its rows along the first axis.
    """

    unit_rows = 1

    def __init__(self, layout: Layout, source: StridedReader) -> None:
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
        """Return the requests and the bytes that reading these rows takes."""
        outer, reader = self.layout.crop[0], self._along_first(first, last)
        return outer.stop - outer.start, (outer.stop - outer.start) * reader.length

    def check(self) -> None:
        """Raise a DataError if the file has become shorter."""
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
