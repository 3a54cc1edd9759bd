"""Rows of the arrays of a campaign: all its segments as one source of the loader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.campaign_layout import COMPONENT, SIMULATION, TIME, Array
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.headers import StoredArray
from scitoolkit.io.campaign.open_files import OpenFiles, rows_of_chunk, unit_rows
from scitoolkit.io.campaign.parameters import ParameterRows, RowValues
from scitoolkit.io.campaign.segment_reader import SegmentReader, picked, read_apart
from scitoolkit.io.campaign.turns import Turn
from scitoolkit.io.formats.base import formats
from scitoolkit.io.loader.file_source import RowSet
from scitoolkit.io.loader.files import Counter
from scitoolkit.io.loader.packing import Packing


class CampaignRows(RowSet):
    """Rows of one array over all simulations, numbered as in the campaign's index.

    A row is the array at one time of one simulation: the space dims and the required components, in
    the stored order. Files are opened when their rows are read.

    Args:
        campaign: the campaign.
        path: of the array.
        files: open files, shared with other arrays.
        box: {dim: slice to read}; whole dims by default.

    Attributes:
        first: index of the first component of a row along each COMPONENT axis.

    Raises:
        DataError: some files store complex numbers and some real ones.
    """

    def __init__(
        self,
        campaign: Campaign,
        path: str,
        files: OpenFiles,
        box: Mapping[str, slice] | None = None,
    ) -> None:
        channels = campaign.arrays[path]
        self.box: dict[str, slice] = dict(box or {})
        self.name, self.array, self.files = path, channels[0].array, files
        self.bounds: np.ndarray = campaign.index.rows
        self.first, self.parts = _components(channels)
        self.axis: int | None = self.array.roles.index(TIME) if TIME in self.array.roles else None
        pairs = zip(self.array.roles, _sizes(self.array, self.parts), strict=True)
        self.row_shape: tuple[int, ...] = tuple(
            len(range(n)[self.box.get(role, slice(None))])
            for role, n in pairs
            if role not in (TIME, SIMULATION)
        )
        self.units: str = self.array.units
        self._find_kinds()
        # Files may store one variable in several types; packed values are read as real numbers.
        self.dtype: np.dtype = np.result_type(*(p.result for p in self.packings))
        self.row_nbytes: int = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        for number, packing in enumerate(self.packings):
            if (packing.result.kind == "c") != (self.dtype.kind == "c"):
                segment = int(np.flatnonzero(self.kind == number)[0])
                raise DataError(
                    f"real numbers beside complex ones ({self.dtype}) of other files",
                    where=f"{campaign.segments.path(segment)}: variable {path}",
                    allowed="complex numbers in all files, or in none",
                    fix=f"ds.assign({path}=ds[{path!r}].astype(complex))",
                )

    def _find_kinds(self) -> None:
        """Determine the storage of the array, once per schema of files."""
        segments = self.files.segments
        schema = np.asarray(segments.table.schema, np.int64)[segments.file]
        pair = schema * len(segments.groups) + segments.group
        _, first, kind = np.unique(pair, return_index=True, return_inverse=True)
        of_kinds = [segments.stored(int(k), self.name) for k in first]
        self.kind = kind
        self.packings: list[Packing] = [
            self._packing(int(k), s) for k, s in zip(first, of_kinds, strict=True)
        ]
        formats_of = [formats.get(segments.table.schemas[schema[k]].format) for k in first]
        units = [unit_rows(s, self.axis, f) for s, f in zip(of_kinds, formats_of, strict=True)]
        self.unit_rows: np.ndarray = np.array(units)[kind]
        self.chunk_rows: np.ndarray = np.array([rows_of_chunk(s, self.axis) for s in of_kinds])[
            kind
        ]
        outer = [r for r in self.array.roles if r != SIMULATION][:1] == [TIME]
        outer = outer and not self.array.centring
        self.in_place: np.ndarray = np.array([s.offset >= 0 and outer for s in of_kinds])[kind]
        self.incomplete: np.ndarray = np.flatnonzero(
            ~np.array([s.complete for s in of_kinds])[kind]
        )
        for segment in np.flatnonzero(np.array([s.virtual for s in of_kinds])[kind]).tolist():
            self.reader(segment)  # raises if files behind a virtual dataset are missing

    def _packing(self, segment: int, stored: StoredArray) -> Packing:
        schema = self.files.segments.table.schema[self.files.segments.file[segment]]
        native = formats.get(self.files.segments.table.schemas[schema].format).native_hdf5
        about: Any = stored
        if not native or self.array.centring:
            about = self.files.entry(segment).arrays[self.name].layout
        return Packing.of(np.dtype(about.dtype), about.attrs).shifted(self.array.offset)

    def reader(self, file: int) -> SegmentReader:
        """Return the reader of a segment."""
        entry = self.files.entry(file)
        if (file, self.name) not in entry.views:
            view = self._view(file, entry.arrays[self.name])
            entry.views[file, self.name] = view
        return entry.views[file, self.name]

    def _view(self, segment: int, whole: Any) -> SegmentReader:
        roles, stored = self.array.roles, whole.layout
        if len(stored.shape) != len(roles):
            raise DataError(
                f"shape {stored.shape}", where=stored.where, allowed=f"{len(roles)} dims: {roles}"
            )
        count = int(self.files.segments.count[segment])
        crop = self._crop(segment, stored.shape)
        axis = self.axis
        if axis is None:
            axis = next((i for i, role in enumerate(roles) if not role.startswith("@")), 0)
        reader = whole.with_layout(replace(stored, axis=axis, crop=crop))
        reader.counter = self.files.counter
        shape = (count, *self.row_shape)
        # Layout of the rows for the loader, with the chunks along the axis of the rows.
        chunks = None if stored.chunks is None else (stored.chunks[axis], *self.row_shape)
        dims = tuple(r for r in roles if r not in (TIME, SIMULATION))
        whole_rows = tuple(slice(0, n) for n in shape)
        seen = replace(stored, name=self.name, shape=shape, dims=(TIME, *dims), chunks=chunks)
        seen = replace(seen, axis=0, crop=whole_rows)
        picks, stored_shape = self._picks(segment), list(self.row_shape)
        for at in picks:
            stored_shape[at] = self._turns(segment)[dims[at]].size
        return SegmentReader(
            reader,
            seen,
            self.axis is None,
            bool(self.box),
            picks,
            tuple(stored_shape),
            int(self.files.segments.begin[segment]),
        )

    def _turns(self, segment: int) -> dict[str, Turn]:
        turned = [Turn(*turn) for turn in self.files.segments.turns.get(segment, ())]
        return {turn.dim: turn for turn in turned if turn.dim in self.array.roles}

    def _picks(self, segment: int) -> dict[int, np.ndarray]:
        """Return {axis of a row: cells of the file} of turned dims, within the box."""
        dims = [r for r in self.array.roles if r not in (TIME, SIMULATION)]
        whole = slice(None)
        return {
            dims.index(dim): turn.order[self.box.get(dim, whole)]
            for dim, turn in self._turns(segment).items()
        }

    @cached_property
    def members_together(self) -> int:
        """Number of simulations in one chunk of the array."""
        if SIMULATION not in self.array.roles:
            return 1
        at = self.array.roles.index(SIMULATION)
        chunks = self.files.segments.stored(0, self.name).chunks
        return 1 if chunks is None else chunks[at]

    def members(self, segments: Sequence[int], first: int, last: int) -> np.ndarray:
        """Read the same rows of neighbouring simulations in one file together.

        Args:
            segments: one per simulation, ascending.
            first: first row in the file.
            last: last row + 1.

        Returns:
            (segments, rows, *row_shape), physical values; packed ones in float64.
        """
        packing = self.packing_of(segments[0])
        if len(segments) == 1 or self.axis is None or SIMULATION not in self.array.roles:
            read = (self.reader(s).read(first, last) for s in segments)
            return np.stack([packing.unpack(one, exact=True) for one in read])
        whole = self.files.entry(segments[0]).arrays[self.name]
        at = self.array.roles.index(SIMULATION)
        crop = list(self._crop(segments[0], whole.layout.shape))
        numbers = self.files.segments.member[list(segments)]
        crop[at] = slice(int(numbers[0]), int(numbers[-1]) + 1)
        reader = whole.with_layout(replace(whole.layout, axis=self.axis, crop=tuple(crop)))
        values = np.moveaxis(reader.read(first, last), at if at > self.axis else at + 1, 0)
        values = values[numbers - numbers[0]]
        if picks := self._picks(segments[0]):
            values = picked(values, {axis + 1: cells for axis, cells in picks.items()})
        return packing.unpack(values, exact=True)

    def part(self, first: int, last: int, box: Sequence[slice]) -> np.ndarray:
        """Read a part of neighbouring rows of one segment.

        Args:
            first: first row.
            last: last row + 1.
            box: a slice for each dim of a row.

        Returns:
            (rows, *box), physical values.
        """
        segment, begin = self._locate(first)
        packing = self.packing_of(segment)
        if self.axis is None or self._turns(segment):
            values = self.reader(segment).read(first - begin, last - begin)
            return packing.unpack(values[(slice(None), *box)])
        whole = self.files.entry(segment).arrays[self.name]
        crop, parts = list(self._crop(segment, whole.layout.shape)), iter(box)
        for axis, role in enumerate(self.array.roles):
            if role not in (TIME, SIMULATION):
                wanted = next(parts)
                crop[axis] = slice(crop[axis].start + wanted.start, crop[axis].start + wanted.stop)
        reader = whole.with_layout(replace(whole.layout, axis=self.axis, crop=tuple(crop)))
        reader.counter = self.files.counter
        shape = [b.stop - b.start for b in box]
        begin -= int(self.files.segments.begin[segment])
        read = read_apart(reader, first - begin, last - begin)
        return packing.unpack(read.reshape(-1, *shape))

    def _crop(self, segment: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of the whole array that belong to a segment."""
        member, parts, crop = int(self.files.segments.member[segment]), iter(self.parts), []
        turned = self._turns(segment)
        for role, size in zip(self.array.roles, shape, strict=True):
            one = slice(0, size) if role in turned else self.box.get(role, slice(0, size))
            one = slice(member, member + 1) if role == SIMULATION else one
            crop.append(next(parts) if role == COMPONENT else one)
        return tuple(crop)

    def packing_of(self, file: int) -> Packing:
        """Return the packing of the values of a segment."""
        return self.packings[self.kind[file]]

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading rows of one segment takes."""
        file, begin = self._locate(first)
        if self.in_place[file]:
            itemsize = self.packings[self.kind[file]].dtype.itemsize
            return 1, (last - first) * math.prod(self.row_shape) * itemsize
        return self.reader(file).cost(first - begin, last - begin)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""
        return [
            (a + int(self.bounds[k]), min(b + int(self.bounds[k]), int(self.bounds[k + 1])))
            for k in self.incomplete.tolist()
            for a, b in self.reader(k).missing()
            if a < self.files.segments.count[k]
        ]

    def counters(self) -> list[Counter]:
        """Return the counters of reads."""
        return [self.files.counter]

    def channel(self, values: np.ndarray, channel: Channel) -> np.ndarray:
        """Return one channel of rows with all components and both parts of complex numbers.

        Args:
            values: (..., *row_shape).
            channel: a channel of the array.
        """
        roles = [r for r in self.array.roles if r not in (TIME, SIMULATION)]
        numbers = iter(n - f for n, f in zip(channel.components, self.first, strict=True))
        at = (..., *(next(numbers) if r == COMPONENT else slice(None) for r in roles))
        return channel.part_of(values[at])


Rows = CampaignRows | ParameterRows
"""Rows of an array in files, or of a parameter of the simulations."""


def row_sets(campaign: Campaign, box: Mapping[str, slice] | None = None) -> dict[str, Rows]:
    """Return the rows of every array of a campaign by path, and of every parameter by name.

    Args:
        campaign: the campaign.
        box: {dim: slice to read}; whole rows by default.
    """
    stored = [path for path in campaign.arrays if path not in campaign.unstored]
    arrays = {path: campaign.arrays[path][0].array for path in stored}
    files = OpenFiles(campaign.segments, arrays)
    return {
        **{path: CampaignRows(campaign, path, files, box) for path in stored},
        **{name: ParameterRows(campaign, name) for name in campaign.parameters},
        **{name: RowValues(campaign, name) for name in campaign.row_values},
    }


def _components(channels: Sequence[Channel]) -> tuple[list[int], list[slice]]:
    """Return the first component along each COMPONENT axis, and the slice of required ones."""
    numbers = np.array([c.components for c in channels], np.int64).reshape(len(channels), -1)
    low, high = numbers.min(0).tolist(), numbers.max(0).tolist()
    return low, [slice(a, b + 1) for a, b in zip(low, high, strict=True)]


def _sizes(array: Array, parts: Sequence[slice]) -> list[int]:
    wanted = iter(parts)
    return [
        (s := next(wanted)).stop - s.start if role == COMPONENT else size
        for role, size in zip(array.roles, array.shape, strict=True)
    ]
