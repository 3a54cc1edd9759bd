"""Rows of a campaign for the planned loader: segments of files, one scalar field each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign, Channel
from scitoolkit.io.campaign.layouts import COMPONENT, SIMULATION, TIME
from scitoolkit.io.campaign.series import Series
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import Format, format_of
from scitoolkit.io.loader.file_source import RowSet
from scitoolkit.io.loader.files import Counter, DataFile
from scitoolkit.io.loader.rows import Layout, RowReader


class SegmentReader:
    """Rows of one segment: some rows of a file, or one frame for all rows.

    Args:
        reader: of the variable, cropped to one simulation and one component.
        layout: the segment: rows first, then the space dims.
        static: the variable has no axis of time; `reader` gives its frame as rows.
    """

    def __init__(self, reader: RowReader, layout: Layout, static: bool) -> None:
        self.reader, self.layout, self.static = reader, layout, static
        self.unit_rows = 1 if static else reader.unit_rows
        self.counter = reader.counter

    @property
    def file(self) -> DataFile | None:
        """The file, where there is just one."""
        return self.reader.file

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1 of the segment."""
        shape = self.layout.row_shape
        if not self.static:
            return self.reader.read(first, last).reshape(last - first, *shape)
        along = self.reader.layout
        rows = along.crop[along.axis]
        frame = np.moveaxis(self.reader.read(rows.start, rows.stop), 0, along.axis)
        return np.broadcast_to(frame.reshape(shape), (last - first, *shape))

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put the same rows into `out`."""
        if self.static:
            out[...] = self.read(first, last)
        else:
            self.reader.read_into(first, last, out.reshape(len(out), *self.reader.layout.row_shape))

    def missing(self) -> list[tuple[int, int]]:
        """Return the (first, last + 1) of rows that nobody ever wrote."""
        found = self.reader.missing()
        return [(0, self.layout.num_rows)] if self.static and found else found

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        if self.static:
            rows = self.reader.layout.crop[self.reader.layout.axis]
            return self.reader.cost(rows.start, rows.stop)
        return self.reader.cost(first, last)

    def check(self) -> None:
        """Raise a DataError if the file is no longer what was opened."""
        self.reader.check()


class XarrayReader:
    """Rows through xarray, for formats without row readers.

    Args:
        layout: the variable.
        format: of its file.
    """

    unit_rows = 1
    file: DataFile | None = None

    def __init__(self, layout: Layout, format: type[Format]) -> None:
        self.layout, self.format, self.counter = layout, format, Counter()

    def with_layout(self, layout: Layout) -> XarrayReader:
        """Return a reader of the same variable along another axis, or of another part of it."""
        return XarrayReader(layout, self.format)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        window = list(self.layout.crop)
        window[self.layout.axis] = slice(first, last)
        try:
            with self.format.open_dataset(Path(self.layout.path)) as dataset:
                values = dataset[self.layout.name][tuple(window)].to_numpy()
        except READ_ERRORS as error:
            raise DataError(
                f"cannot be read ({' '.join(str(error).split())[:300]})",
                where=f"{self.layout.where}, rows {first} to {last - 1}",
            ) from None
        self.counter.add(1, values.nbytes)
        return np.moveaxis(values, self.layout.axis, 0)

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Put the same rows into `out`."""
        out[...] = self.read(first, last)

    def missing(self) -> list[tuple[int, int]]:
        """Return nothing: the library tells what it cannot read."""
        return []

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        return 1, (last - first) * self.layout.row_nbytes

    def check(self) -> None:
        """Do nothing: the file is opened for each read."""


def row_sets(campaign: Campaign) -> dict[str, RowSet]:
    """Return the rows of every channel over all simulations, numbered by the campaign's index."""
    readers: dict[str, list[RowReader]] = {name: [] for name in campaign.channels}
    opened: dict[tuple[Path, str], Mapping[str, Any]] = {}
    paths = list(dict.fromkeys(c.array.path for c in campaign.channels.values()))
    for segment in campaign.segments:
        key = (segment.path, segment.group)
        if key not in opened:
            # Segments of one file follow one another but for campaigns of few files.
            opened[key] = _whole(segment, paths)
        for name, channel in campaign.channels.items():
            whole = opened[key][channel.array.path]
            readers[name].append(_segment_reader(whole, segment, channel))
    return {name: RowSet(name, found) for name, found in readers.items()}


def _whole(segment: Series, paths: Sequence[str]) -> dict[str, Any]:
    """Return a reader of each whole array along its first axis."""
    kind = format_of(segment.path)
    stored = {f"{segment.group}/{p}" if segment.group else p: p for p in paths}

    def along_first(**found: Any) -> Layout:
        return Layout(**found, axis=0, crop=tuple(slice(0, n) for n in found["shape"]))

    if not kind.has_row_readers():
        return {p: XarrayReader(_xarray_layout(segment.path, p, kind, along_first), kind)
                for p in paths}  # fmt: skip
    found = kind.row_readers(segment.path, list(stored), along_first)
    return {stored[name]: reader for name, reader in found.items()}


def _xarray_layout(
    path: Path, name: str, kind: type[Format], make: Callable[..., Layout]
) -> Layout:
    with kind.open_dataset(path) as dataset:
        array = dataset[name]
        return make(
            name=name, path=str(path), shape=array.shape, dims=tuple(map(str, array.dims)),
            dtype=array.dtype, chunks=None, filters=(),
            attrs={k: array.attrs[k] for k in ("units",) if k in array.attrs},
        )  # fmt: skip


def _segment_reader(whole: Any, segment: Series, channel: Channel) -> SegmentReader:
    """Return the rows of one channel in one segment."""
    roles, stored = channel.array.roles, whole.layout
    if len(stored.shape) != len(roles):
        raise DataError(
            f"shape {stored.shape}", where=stored.where, allowed=f"{len(roles)} dims: {roles}"
        )
    components = iter(channel.components)
    crop: list[slice] = []
    axis: int | None = None
    for i, (role, size) in enumerate(zip(roles, stored.shape, strict=True)):
        at = {SIMULATION: segment.member, COMPONENT: None}.get(role)
        at = next(components) if role == COMPONENT else at
        crop.append(slice(0, size) if at is None else slice(at, at + 1))
        axis = i if role == TIME else axis
    static = axis is None
    if axis is None:
        axis = next((i for i, role in enumerate(roles) if not role.startswith("@")), 0)
    part = replace(stored, axis=axis, crop=tuple(crop))
    reader = whole.with_layout(part)
    shape = tuple(s.stop - s.start for s, r in zip(crop, roles, strict=True) if r[0] != "@")
    # What the rows look like to the loader; chunks are those along the axis of the rows.
    chunks = None if stored.chunks is None else (stored.chunks[axis], *shape)
    seen = Layout(
        channel.name, stored.path, (segment.count, *shape), (TIME, *channel.dims), stored.dtype,
        chunks, stored.filters, 0, tuple(slice(0, n) for n in (segment.count, *shape)),
        stored.attrs,
    )  # fmt: skip
    return SegmentReader(reader, seen, static)
