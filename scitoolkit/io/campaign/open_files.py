"""Open files of a campaign, a bounded number at a time, and the readers of their variables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import Array
from scitoolkit.io.campaign.headers import StoredArray
from scitoolkit.io.campaign.opened import last_opened
from scitoolkit.io.campaign.segment_reader import SegmentReader
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.campaign.staggered import CentredReader
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import Format
from scitoolkit.io.loader.files import Counter, DataFile
from scitoolkit.io.loader.packing import ATTRIBUTES
from scitoolkit.io.loader.rows import CopyingReader, StridedReader, VariableLayout

MAX_HANDLES = 64


_MAX_FILES = 2048


class XarrayReader(CopyingReader):
    """Reader of rows through xarray, for formats without row readers.

    Args:
        layout: of the variable.
        format: of the file.
    """

    unit_rows = 1
    file: DataFile | None = None

    def __init__(self, layout: VariableLayout, format: type[Format]) -> None:
        self.layout, self.format, self.counter = layout, format, Counter()

    def with_layout(self, layout: VariableLayout) -> XarrayReader:
        """Return a reader of the same variable with another axis or crop."""
        return XarrayReader(layout, self.format)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1."""
        try:
            dataset = last_opened(self.format, Path(self.layout.path))
            array = dataset[self.layout.name][self.layout.window(first, last)]
            values = np.array(array.to_numpy())  # the dataset may be in memory, for later reads
        except READ_ERRORS as error:
            raise DataError(
                f"cannot be read ({' '.join(str(error).split())[:300]})",
                where=f"{self.layout.where}, rows {first} to {last - 1}",
            ) from None
        self.counter.add(1, values.nbytes)
        return np.moveaxis(values, self.layout.axis, 0)

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        return 1, (last - first) * self.layout.row_nbytes

    def check(self) -> None:
        """Do nothing, because a file that changed is opened again."""


@dataclass
class _Entry:
    """Readers of one group of an open file.

    Attributes:
        arrays: readers of whole arrays along their first axis, by path.
        has_handle: whether a library keeps the file open.
        views: readers of segments, by segment and path.
    """

    arrays: dict[str, Any]
    has_handle: bool
    views: dict[tuple[int, str], SegmentReader] = field(default_factory=dict)


class OpenFiles:
    """LRU cache of the readers of a campaign's files.

    Args:
        segments: location of the rows.
        arrays: that are read, by path.
    """

    def __init__(self, segments: Segments, arrays: Mapping[str, Array]) -> None:
        self.segments, self.paths = segments, list(arrays)
        self.centred: dict[str, Array] = {
            path: array for path, array in arrays.items() if array.centring
        }
        self.counter: Counter = Counter()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], _Entry] = OrderedDict()
        self._handles: OrderedDict[tuple[int, int], _Entry] = OrderedDict()

    def entry(self, segment: int) -> _Entry:
        """Return the readers of a segment's file and group, opening it if necessary."""
        key = int(self.segments.file[segment]), int(self.segments.group[segment])
        with self._lock:
            for cache in (self._entries, self._handles):
                if key in cache:
                    cache.move_to_end(key)
                    return cache[key]
        # Outside of the lock, as opening takes long: two threads may open the same file, and the
        # first to store its readers gives them to both.
        made = self._opened(segment)
        cache, limit = (
            (self._handles, MAX_HANDLES) if made.has_handle else (self._entries, _MAX_FILES)
        )
        with self._lock:
            made = cache.setdefault(key, made)
            while len(cache) > limit:
                cache.popitem(last=False)
        return made

    def _opened(self, segment: int) -> _Entry:
        stored = {p: self.segments.stored(segment, p) for p in self.paths}
        # Contiguous and complete values are read at their offset, without a library and its handle:
        # thousands of files can then be open.
        in_place = all(s.offset >= 0 and s.complete for s in stored.values())
        if in_place and not self.centred:
            arrays: dict[str, Any] = _in_place(self.segments, segment, stored)
        else:
            arrays = _whole(self.segments, segment, self.paths)
            for path, array in self.centred.items():
                arrays[path] = CentredReader(arrays[path], array)
        for reader in arrays.values():
            reader.counter = self.counter
            if reader.file is not None:
                reader.file.counter = self.counter
        handles = any(getattr(reader, "holds_handle", False) for reader in arrays.values())
        return _Entry(arrays, handles)

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_lock", "_entries", "_handles")
        return {k: v for k, v in self.__dict__.items() if k not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


def unit_rows(stored: StoredArray, axis: int | None, kind: type[Format]) -> int:
    """Return the minimum number of rows per read."""
    if axis is None or stored.chunks is None or not kind.has_row_readers():
        return 1
    cut = kind.native_hdf5 and not stored.num_filters and axis == 0
    return 1 if cut else stored.chunks[axis]


def rows_of_chunk(stored: StoredArray, axis: int | None) -> int:
    """Return the rows that are stored together along an axis."""
    return 1 if axis is None or stored.chunks is None else stored.chunks[axis]


def _in_place(
    segments: Segments, segment: int, stored: Mapping[str, StoredArray]
) -> dict[str, StridedReader]:
    """Return readers of arrays whose offsets are in the index, without opening the file's format.

    Raises:
        DataError: the size of the file changed since it was indexed.
    """
    path, size, _ = segments.state(segment)
    file = DataFile(path)
    if file.size != size:
        raise DataError(
            f"has {file.size} bytes and had {size} when it was indexed: it is being written or "
            "was truncated",
            where=path,
            fix="copy or make the file again, then start again",
        )
    readers = {}
    for name, s in stored.items():
        dtype = np.dtype(s.dtype)
        crop = tuple(slice(0, n) for n in s.shape)
        attrs = {k: s.attrs[k] for k in ATTRIBUTES if k in s.attrs}
        layout = VariableLayout(s.name, path, s.shape, s.dims, dtype, None, (), 0, crop, attrs)
        stride = dtype.itemsize * int(np.prod(s.shape[1:], dtype=np.int64))
        readers[name] = StridedReader(layout, file, s.offset, stride)
    return readers


def _whole(segments: Segments, segment: int, paths: Sequence[str]) -> dict[str, Any]:
    """Return a reader of each whole array along its first axis."""
    path = Path(segments.path(segment))
    kind = segments.header(int(segments.file[segment])).format
    stored = {segments.array_name(segment, p): p for p in paths}

    def along_first(**layout: Any) -> VariableLayout:
        return VariableLayout(**layout, axis=0, crop=tuple(slice(0, n) for n in layout["shape"]))

    if not kind.has_row_readers():
        return {p: XarrayReader(_xarray_layout(path, p, kind, along_first), kind) for p in paths}
    readers = kind.row_readers(path, list(stored), along_first)
    return {stored[name]: reader for name, reader in readers.items()}


def _xarray_layout(
    path: Path, name: str, kind: type[Format], make: Callable[..., VariableLayout]
) -> VariableLayout:
    array = last_opened(kind, path)[name]
    return make(
        name=name,
        path=str(path),
        shape=array.shape,
        dims=tuple(map(str, array.dims)),
        dtype=array.dtype,
        chunks=None,
        filters=(),
        attrs={k: array.attrs[k] for k in ("units",) if k in array.attrs},
    )
