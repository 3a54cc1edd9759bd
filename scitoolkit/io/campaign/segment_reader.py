"""Reader of the rows of one segment of a campaign."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.io.loader.files import Counter, DataFile
from scitoolkit.io.loader.rows import RowReader, VariableLayout

_GAP_BYTES = 2**16
"""Minimum gap (bytes) between two rows from which they are read by separate requests."""


class SegmentReader:
    """Reader of one segment's rows: rows of a file, or a static frame repeated for all rows.

    Args:
        reader: of the variable, cropped to one simulation and the required components.
        layout: of the segment: rows first, then the space dims.
        static: whether the variable has no time axis; `reader` returns its frame as rows.
        boxed: whether rows are parts of the file's rows, with gaps between them.
        picks: {axis of a row: cells of the file in the order of the campaign} of turned dims.
        stored_shape: shape of a row as `reader` returns it; that of `layout` by default.
        begin: row of the file that is the first of the segment.
    """

    def __init__(
        self,
        reader: RowReader,
        layout: VariableLayout,
        static: bool,
        boxed: bool = False,
        picks: Mapping[int, np.ndarray] | None = None,
        stored_shape: tuple[int, ...] | None = None,
        begin: int = 0,
    ) -> None:
        self.reader, self.layout, self.static, self.boxed = reader, layout, static, boxed
        self.picks: dict[int, np.ndarray] = dict(picks or {})
        self.stored_shape: tuple[int, ...] = (
            layout.row_shape if stored_shape is None else stored_shape
        )
        self.begin: int = begin
        self.unit_rows: int = 1 if static else reader.unit_rows
        self.counter: Counter = reader.counter

    @property
    def file(self) -> DataFile | None:
        """The file, if there is exactly one."""
        return self.reader.file

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1 of the segment."""
        shape = self.stored_shape
        if not self.static:
            read = read_apart if self.boxed else type(self.reader).read
            begin = self.begin
            values = read(self.reader, first + begin, last + begin).reshape(last - first, *shape)
            return picked(values, self.picks)
        along = self.reader.layout
        rows = along.crop[along.axis]
        # The reader counts along the first axis of the frame, whose rows are not those of the
        # segment.
        frame = np.moveaxis(self.reader.read(rows.start, rows.stop), 0, along.axis)
        frame = picked(frame.reshape(1, *shape), self.picks)[0]
        return np.broadcast_to(frame, (last - first, *frame.shape))

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read the rows `first` ... `last` - 1 into `out`."""
        if self.static or self.boxed or self.picks:
            out[...] = self.read(first, last)
        else:
            rows = out.reshape(len(out), *self.reader.layout.row_shape)
            self.reader.read_into(first + self.begin, last + self.begin, rows)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""
        ranges = self.reader.missing()
        if self.static:
            return [(0, self.layout.num_rows)] if ranges else []
        begin = self.begin
        return [(max(0, a - begin), b - begin) for a, b in ranges if b > begin]

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        if self.static:
            rows = self.reader.layout.crop[self.reader.layout.axis]
            return self.reader.cost(rows.start, rows.stop)
        return self.reader.cost(first + self.begin, last + self.begin)

    def check(self) -> None:
        """Raise DataError if the file changed since it was opened."""
        self.reader.check()


def picked(values: np.ndarray, picks: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return rows (n, ...) with the cells of turned dims in the order of the campaign."""
    for axis, cells in picks.items():
        values = np.take(values, cells, axis + 1)
    return values


def read_apart(reader: RowReader, first: int, last: int) -> np.ndarray:
    """Read parts of the file's rows, one by one if the gaps between them are large."""
    # Bytes between the parts: reading across them costs bandwidth, a request each costs latency.
    unwanted = reader.cost(first, last)[1] - (last - first) * reader.cost(first, first + 1)[1]
    if unwanted <= (last - first - 1) * _GAP_BYTES:
        return reader.read(first, last)
    return np.concatenate([reader.read(row, row + 1) for row in range(first, last)])
