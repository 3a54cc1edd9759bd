"""Samples in files: named inputs and outputs, windows in time, crops in space, many files as one.

A sample is made of rows, one for each of its variables and time steps. Rows are what is read and
what a buffer holds, so that windows which overlap share theirs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.loader.rows import RowReader
from scitoolkit.io.loader.source import require_finite


@dataclass(frozen=True)
class Key:
    """One key of a batch.

    Args:
        variables: names in the file; several are stacked into a channel dim when `stacked`.
        frames: steps after the sample's first one.
        stacked: the variables make a channel dim.
        windowed: the frames make a dim of their own.
    """

    variables: tuple[str, ...]
    frames: tuple[int, ...] = (0,)
    stacked: bool = False
    windowed: bool = False


@dataclass(frozen=True)
class Piece:
    """A stretch of rows of one variable in one file, read at once, and those that are wanted."""

    name: str
    first: int
    last: int
    rows: np.ndarray


class RowSet:
    """The rows of one variable over all files, numbered through.

    Args:
        name: of the variable.
        readers: a reader for each file.
    """

    dtype: np.dtype

    def __init__(self, name: str, readers: Sequence[RowReader]) -> None:
        self.name: str = name
        self.readers: list[RowReader] = list(readers)
        layout = readers[0].layout
        self.bounds: np.ndarray = np.cumsum([0, *(r.layout.num_rows for r in readers)])
        self.packings: list[Packing] = [Packing.of(r.layout.dtype, r.layout.attrs) for r in readers]
        self.row_shape: tuple[int, ...] = layout.row_shape
        self.dtype = self.packings[0].result
        self.row_nbytes: int = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        """Bytes of a row as it is handed out."""
        self.unit_rows: np.ndarray = np.array([r.unit_rows for r in readers])
        self.units: str = str(layout.attrs.get("units", ""))
        for reader, packing in zip(readers, self.packings, strict=True):
            found = (reader.layout.row_shape, packing.result)
            if found != (self.row_shape, self.dtype):
                raise DataError(
                    f"rows of shape {found[0]}, {found[1]}",
                    where=reader.layout.where,
                    allowed=f"{self.row_shape}, {self.dtype}, as in {layout.path}",
                )

    @property
    def num_rows(self) -> int:
        """Rows in all files."""
        return int(self.bounds[-1])

    @property
    def unit_nbytes(self) -> int:
        """Bytes of the rows that one read brings at the least, the largest of all files."""
        return self.row_nbytes * int(self.unit_rows.max())

    def read_into(self, first: int, last: int, wanted: np.ndarray, out: np.ndarray) -> None:
        """Put those of the rows `first` ... `last` - 1, of one file, that are wanted into `out`.

        Args:
            first: first row.
            last: last row + 1.
            wanted: rows, sorted.
            out: destination, shape (wanted, *row_shape), contiguous, of physical values.
        """
        file, begin = self._locate(first)
        reader = self.readers[file]
        if len(wanted) == last - first and reader.layout.dtype == self.dtype:
            reader.read_into(first - begin, last - begin, out)
            if self.packings[file].missing:
                out[...] = self.packings[file].unpack(out)
        else:
            values = reader.read(first - begin, last - begin)
            out[...] = self.packings[file].unpack(values[wanted - first])

    def _locate(self, row: int) -> tuple[int, int]:
        file = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return file, int(self.bounds[file])

    def unit_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the unit of every row, over all files, int64."""
        file = np.searchsorted(self.bounds, rows, side="right") - 1
        counts = -(-np.diff(self.bounds) // self.unit_rows)
        before = np.cumsum(counts) - counts
        return before[file] + (rows - self.bounds[file]) // self.unit_rows[file]

    def pieces(self, rows: np.ndarray, gap_nbytes: float = 0.0) -> list[Piece]:
        """Return what to read to get `rows`, which are sorted and distinct.

        Rows that come together are read together, and so are rows less than `gap_nbytes` apart,
        where reading what lies between costs less than another request.
        """
        if not len(rows):
            return []
        file = np.searchsorted(self.bounds, rows, side="right") - 1
        step = np.diff(rows)
        near = (self.unit_rows[file[1:]] == 1) & (step - 1 <= gap_nbytes / max(1, self.row_nbytes))
        together = near | (np.diff(self.unit_of(rows)) == 0)
        cuts = [0, *np.flatnonzero(~together | (np.diff(file) != 0)) + 1, len(rows)]
        return [
            Piece(self.name, int(rows[a]), int(rows[b - 1]) + 1, rows[a:b])
            for a, b in pairwise(cuts)
        ]

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading rows of one file takes."""
        file, begin = self._locate(first)
        return self.readers[file].cost(first - begin, last - begin)

    def whole_units(self, first: int, last: int, unit_rows: Sequence[int]) -> tuple[int, int]:
        """Return the rows of one file widened to whole units of `unit_rows` of its file."""
        file, begin = self._locate(first)
        size, end = unit_rows[file], int(self.bounds[file + 1])
        low = (first - begin) // size * size + begin
        return low, min(end, begin - (begin - last) // size * size)

    def missing(self) -> list[tuple[int, int]]:
        """Return the (first, last + 1) of rows that nobody ever wrote."""
        pairs = zip(self.readers, self.bounds.tolist(), strict=False)
        return [(a + at, b + at) for reader, at in pairs for a, b in reader.missing()]


class FileSource:
    """Samples of files; made by `open_source`.

    Args:
        rows: the variables.
        keys: the keys of a batch.
        starts: first row of every sample, int64.
        allow_nan: let non-finite values through.
    """

    def __init__(
        self,
        rows: Mapping[str, RowSet],
        keys: Mapping[str, Key],
        starts: np.ndarray,
        *,
        allow_nan: bool = False,
    ) -> None:
        self.rows: dict[str, RowSet] = dict(rows)
        self.keys: dict[str, Key] = dict(keys)
        self.allow_nan: bool = allow_nan
        self.starts: np.ndarray = np.asarray(starts, dtype=np.int64)
        needed: dict[str, set[int]] = {name: set() for name in rows}
        for key in keys.values():
            for name in key.variables:
                needed[name] |= set(key.frames)
        self.frames: dict[str, np.ndarray] = {
            name: np.array(sorted(f), np.int64) for name, f in needed.items()
        }

    @property
    def bytes_read(self) -> int:
        """Bytes read from the files so far."""
        return self.counters()[1]

    @property
    def sample_nbytes(self) -> int:
        """Bytes of a sample's rows."""
        return sum(len(self.frames[n]) * r.row_nbytes for n, r in self.rows.items())

    @property
    def units(self) -> dict[str, str]:
        """Unit of every variable, as the file says, "" where it says none."""
        return {name: rows.units for name, rows in self.rows.items()}

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.starts)

    def select(self, samples: Sequence[int] | np.ndarray | slice) -> FileSource:
        """Return the source of some of the samples, for a split; the files are shared."""
        chosen = self.starts[samples if isinstance(samples, slice) else np.asarray(samples)]
        return FileSource(self.rows, self.keys, chosen, allow_nan=self.allow_nan)

    def rows_of(self, name: str, samples: np.ndarray) -> np.ndarray:
        """Return the rows of a variable that samples need, shape (samples, frames), int64."""
        return self.starts[samples][:, None] + self.frames[name]

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the samples `indices`, first dim = `indices`, in that order."""
        values = {}
        for name, rows in self.rows.items():
            wanted, inverse = np.unique(self.rows_of(name, indices), return_inverse=True)
            found = self.read_pieces(name, rows.pieces(wanted))
            values[name] = found[inverse.reshape(len(indices), -1)]
        return self.assemble(values)

    def read_pieces(self, name: str, pieces: Sequence[Piece]) -> np.ndarray:
        """Return the wanted rows of some pieces of a variable, in order.

        Raises:
            DataError: they cannot be read, or one holds NaN or Inf.
        """
        rows = self.rows[name]
        counts = [len(piece.rows) for piece in pieces]
        out = np.empty((sum(counts), *rows.row_shape), rows.dtype)
        begin = 0
        for piece, count in zip(pieces, counts, strict=True):
            rows.read_into(piece.first, piece.last, piece.rows, out[begin : begin + count])
            begin += count
        # A sum is finite only if all its terms are; it is far cheaper than to look at each.
        if not self.allow_nan and out.dtype.kind in "fc" and not _finite_sum(out):
            self.refuse_non_finite(out, name, np.concatenate([p.rows for p in pieces]))
        return out

    def refuse_non_finite(self, values: np.ndarray, name: str, rows: np.ndarray) -> None:
        """Raise a DataError that names rows of a variable with NaN or Inf."""
        require_finite(values, name, rows, "rows")

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of a batch from {variable: (samples, frames, *row_shape)}."""
        batch = {}
        for label, key in self.keys.items():
            parts = []
            for name in key.variables:
                at = np.searchsorted(self.frames[name], key.frames)
                whole = len(at) == len(self.frames[name])
                part = values[name] if whole else values[name][:, at]
                parts.append(part if key.windowed else part[:, 0])
            axis = 2 if key.windowed else 1
            batch[label] = np.stack(parts, axis) if key.stacked else parts[0]
        return {label: np.ascontiguousarray(array) for label, array in batch.items()}

    def never_written(self) -> dict[str, list[tuple[int, int]]]:
        """Return the (first, last + 1) of never-written rows by variable, where there are any."""
        return {n: runs for n, r in self.rows.items() if (runs := r.missing())}

    def plan_units(self) -> np.ndarray | None:
        """Return the unit that each sample is read with; None where each is read by itself."""
        name = max(self.rows, key=lambda n: self.rows[n].unit_nbytes)
        rows = self.rows[name]
        if all(reader.unit_rows == 1 for reader in rows.readers):
            return None
        units = rows.unit_of(self.starts + self.frames[name][0])
        return np.unique(units, return_inverse=True)[1]

    def blocks(self, nbytes: int = 4 << 20) -> np.ndarray:
        """Return the block of every sample that lies together: its chunk, or some `nbytes`."""
        units = self.plan_units()
        if units is not None:
            return units
        return np.arange(len(self)) // max(1, nbytes // max(1, self.sample_nbytes))

    def gap_nbytes(self) -> float:
        """Return the bytes that could be read in the time of a request, as measured now."""
        files = {
            id(reader.file): reader.file
            for rows in self.rows.values()
            for reader in rows.readers[:1]
            if reader.unit_rows == 1 and reader.file is not None
        }
        speeds = [file.probe() for file in files.values()]
        return max((latency * bandwidth for latency, bandwidth in speeds), default=0.0)

    def counters(self) -> tuple[int, int]:
        """Return the requests done and the bytes read."""
        readers = [reader for rows in self.rows.values() for reader in rows.readers]
        counters = {id(r.counter): r.counter for r in readers}.values()
        return sum(c.requests for c in counters), sum(c.nbytes for c in counters)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the set: variables, shapes, keys and a checksum of the starts."""
        return {
            "variables": {
                n: [[r.layout.num_rows for r in rows.readers], list(rows.row_shape),
                    rows.dtype.str, [[s.start, s.stop] for s in rows.readers[0].layout.crop]]
                for n, rows in self.rows.items()
            },
            "keys": {n: [k.variables, k.frames, k.stacked, k.windowed]
                     for n, k in self.keys.items()},
            "starts": zlib.crc32(self.starts.astype("<i8").tobytes()),
        }  # fmt: skip


def _finite_sum(values: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))
