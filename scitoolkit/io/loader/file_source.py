"""Sources of samples in files: named inputs and outputs, time windows, spatial crops, many files.

A sample consists of rows, one per variable and time step. Rows are the unit of reading and
caching, so overlapping windows share them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.units import same_unit
from scitoolkit.io.loader.files import Counter
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.loader.rows import RowReader
from scitoolkit.io.loader.source import require_finite


@dataclass(frozen=True)
class Key:
    """Key of a batch.

    Args:
        variables: names in the file; one unless `stacked`.
        frames: steps relative to the sample's first row.
        stacked: whether the variables form a channel dim.
        windowed: whether the frames form a time dim.
    """

    variables: tuple[str, ...]
    frames: tuple[int, ...] = (0,)
    stacked: bool = False
    windowed: bool = False


@dataclass(frozen=True)
class Piece:
    """Contiguous rows `first` ... `last` - 1 of a variable in one file, and those required."""

    name: str
    first: int
    last: int
    rows: np.ndarray


class RowSet:
    """Rows of one variable over all files, numbered consecutively.

    Args:
        name: of the variable.
        readers: a reader for each file.

    Raises:
        DataError: the files differ in shape, dtype or unit of the rows.
    """

    dtype: np.dtype

    def __init__(self, name: str, readers: Sequence[RowReader]) -> None:
        self.name: str = name
        self.readers: list[RowReader] = list(readers)
        layout = readers[0].layout
        # Rows are numbered over all files: those of file f are bounds[f] ... bounds[f + 1] - 1.
        self.bounds: np.ndarray = np.cumsum([0, *(r.layout.num_rows for r in readers)])
        self.packings: list[Packing] = [Packing.of(r.layout.dtype, r.layout.attrs) for r in readers]
        self.row_shape: tuple[int, ...] = layout.row_shape
        self.dtype = self.packings[0].result
        self.row_nbytes: int = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        """Bytes of a row of physical values."""
        self.unit_rows: np.ndarray = np.array([r.unit_rows for r in readers])
        chunks = [r.layout.chunks for r in readers]
        self.chunk_rows: np.ndarray = np.array(
            [c[r.layout.axis] if c else 1 for c, r in zip(chunks, readers, strict=True)]
        )
        """Rows of a chunk in each file."""
        self.units: str = str(layout.attrs.get("units", ""))
        for reader, packing in zip(readers, self.packings, strict=True):
            shape_and_dtype = (reader.layout.row_shape, packing.result)
            if shape_and_dtype != (self.row_shape, self.dtype):
                raise DataError(
                    f"rows of shape {shape_and_dtype[0]}, {shape_and_dtype[1]}",
                    where=reader.layout.where,
                    allowed=f"{self.row_shape}, {self.dtype}, as in {layout.path}",
                )
            unit = str(reader.layout.attrs.get("units", ""))
            if unit and self.units and not same_unit(unit, self.units):
                raise DataError(
                    f"unit {unit!r}",
                    where=reader.layout.where,
                    allowed=f"{self.units!r}, as in {layout.path}",
                    fix="convert the files",
                )

    @property
    def num_rows(self) -> int:
        """Total number of rows."""
        return int(self.bounds[-1])

    @property
    def unit_nbytes(self) -> int:
        """Minimum bytes of rows per read, the maximum over all files."""
        return self.row_nbytes * int(self.unit_rows.max())

    def read_into(self, first: int, last: int, wanted: np.ndarray, out: np.ndarray) -> None:
        """Read rows `first` ... `last` - 1 of one file and write the required ones into `out`.

        Args:
            first: first row.
            last: last row + 1.
            wanted: required rows, sorted.
            out: (wanted, *row_shape), contiguous; receives physical values.
        """
        file, begin = self._locate(first)
        reader, packing = self.reader(file), self.packing_of(file)
        # Without gaps and in the same dtype, bytes go to the output and are unpacked there.
        if len(wanted) == last - first and reader.layout.dtype == self.dtype:
            reader.read_into(first - begin, last - begin, out)
            if packing.hides or packing.scale is not None:
                out[...] = packing.unpack(out)
        else:
            values = reader.read(first - begin, last - begin)
            out[...] = packing.unpack(values[wanted - first])

    def reader(self, file: int) -> RowReader:
        """Return the reader of one file."""
        return self.readers[file]

    def packing_of(self, file: int) -> Packing:
        """Return the packing of the values of one file."""
        return self.packings[file]

    def counters(self) -> list[Counter]:
        """Return the distinct counters of reads."""
        return list({id(r.counter): r.counter for r in self.readers}.values())

    def _locate(self, row: int) -> tuple[int, int]:
        file = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return file, int(self.bounds[file])

    def unit_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the unit (int64) of every row, numbered over all files."""
        file = np.searchsorted(self.bounds, rows, side="right") - 1
        counts = -(-np.diff(self.bounds) // self.unit_rows)
        # Units of a file are numbered behind those of the files before; its last unit may be short.
        before = np.cumsum(counts) - counts
        return before[file] + (rows - self.bounds[file]) // self.unit_rows[file]

    def pieces(self, rows: np.ndarray, gap_nbytes: float = 0.0) -> list[Piece]:
        """Return the pieces to read for `rows`, which are sorted and distinct.

        Adjacent rows and rows of one unit are read together, and so are rows less than
        `gap_nbytes` apart, because reading the gap costs less than another request.
        """
        if not len(rows):
            return []
        file = np.searchsorted(self.bounds, rows, side="right") - 1
        step = np.diff(rows)
        # A gap is read too if its bytes take less time than one more request (latency x bandwidth).
        near = (self.unit_rows[file[1:]] == 1) & (step - 1 <= gap_nbytes / max(1, self.row_nbytes))
        together = near | (np.diff(self.unit_of(rows)) == 0)
        # A piece ends before a row that is neither near nor in the same unit, and with its file.
        cuts = [0, *np.flatnonzero(~together | (np.diff(file) != 0)) + 1, len(rows)]
        return [
            Piece(self.name, int(rows[a]), int(rows[b - 1]) + 1, rows[a:b])
            for a, b in pairwise(cuts)
        ]

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of requests and bytes for reading rows of one file."""
        file, begin = self._locate(first)
        return self.reader(file).cost(first - begin, last - begin)

    def whole_units(self, first: int, last: int, unit_rows: np.ndarray) -> tuple[int, int]:
        """Return a range of rows of one file, widened to whole units of `unit_rows`."""
        file, begin = self._locate(first)
        size, end = int(unit_rows[file]), int(self.bounds[file + 1])
        low = (first - begin) // size * size + begin
        # Negative numbers are divided downward: this rounds last - begin up to whole units.
        return low, min(end, begin - (begin - last) // size * size)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""
        pairs = zip(self.readers, self.bounds.tolist(), strict=False)
        return [(a + at, b + at) for reader, at in pairs for a, b in reader.missing()]


class FileSource:
    """Source of samples in files, created by `open_source`.

    Args:
        rows: rows of the variables, by name.
        keys: keys of a batch.
        starts: (samples,) int64, first row of every sample.
        allow_nan: whether to accept non-finite values.
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
        """Bytes of the rows of a sample."""
        return sum(len(self.frames[n]) * r.row_nbytes for n, r in self.rows.items())

    @property
    def units(self) -> dict[str, str]:
        """Unit of every variable as stated in the file, "" if it is not."""
        return {name: rows.units for name, rows in self.rows.items()}

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.starts)

    def select(self, samples: Sequence[int] | np.ndarray | slice) -> FileSource:
        """Return a source of a subset of the samples, which shares the files."""
        chosen = self.starts[samples if isinstance(samples, slice) else np.asarray(samples)]
        return FileSource(self.rows, self.keys, chosen, allow_nan=self.allow_nan)

    def rows_of(self, name: str, samples: np.ndarray) -> np.ndarray:
        """Return the rows of a variable in samples, (samples, frames) int64."""
        return self.starts[samples][:, None] + self.frames[name]

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the samples `indices` as arrays by key, in that order along the first dim."""
        values = {}
        for name, rows in self.rows.items():
            # Overlapping windows share frames: each is read once and repeated here.
            wanted, inverse = np.unique(self.rows_of(name, indices), return_inverse=True)
            frames = self.read_pieces(name, rows.pieces(wanted))
            values[name] = frames[inverse.reshape(len(indices), -1)]
        return self.assemble(values)

    def read_pieces(self, name: str, pieces: Sequence[Piece]) -> np.ndarray:
        """Return the required rows of pieces of a variable, in order.

        Raises:
            DataError: rows cannot be read, or have NaN or Inf.
        """
        rows = self.rows[name]
        counts = [len(piece.rows) for piece in pieces]
        out = np.empty((sum(counts), *rows.row_shape), rows.dtype)
        begin = 0
        for piece, count in zip(pieces, counts, strict=True):
            rows.read_into(piece.first, piece.last, piece.rows, out[begin : begin + count])
            begin += count
        # A sum is finite only if all terms are; summing is cheaper than testing every value.
        if not self.allow_nan and out.dtype.kind in "fc" and not _finite_sum(out):
            self.refuse_non_finite(out, name, np.concatenate([p.rows for p in pieces]))
        return out

    def refuse_non_finite(self, values: np.ndarray, name: str, rows: np.ndarray) -> None:
        """Raise DataError with the rows of a variable that have NaN or Inf."""
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
        """Return {variable: ranges (first, last + 1) of rows that were never written}."""
        return {n: runs for n, r in self.rows.items() if (runs := r.missing())}

    def plan_units(self) -> np.ndarray | None:
        """Return the unit of each sample; None if samples can be read separately."""
        # The variable with the largest chunks decides: reading its rows one by one would cost most.
        name = max(self.rows, key=lambda n: self.rows[n].unit_nbytes)
        rows = self.rows[name]
        if (rows.unit_rows == 1).all():
            return None
        units = rows.unit_of(self.starts + self.frames[name][0])
        return np.unique(units, return_inverse=True)[1]

    def blocks(self, nbytes: int = 4 << 20) -> np.ndarray:
        """Return the block of every sample: its chunk, or about `nbytes` of adjacent samples."""
        units = self.plan_units()
        if units is not None:
            return units
        return np.arange(len(self)) // max(1, nbytes // max(1, self.sample_nbytes))

    def gap_nbytes(self) -> float:
        """Return the bytes that can be read in the latency of a request, measured on the files."""
        files = {
            id(reader.file): reader.file
            for reader in (rows.reader(0) for rows in self.rows.values())
            if reader.unit_rows == 1 and reader.file is not None
        }
        speeds = [file.probe() for file in files.values()]
        return max((latency * bandwidth for latency, bandwidth in speeds), default=0.0)

    def counters(self) -> tuple[int, int]:
        """Return the number of requests and bytes read so far."""
        counters = {id(c): c for rows in self.rows.values() for c in rows.counters()}.values()
        return sum(c.requests for c in counters), sum(c.nbytes for c in counters)

    def describe(self) -> dict[str, Any]:
        """Return the identity of the data set: variables, shapes, keys and a checksum of starts."""
        return {
            "variables": {
                n: [
                    np.diff(rows.bounds).tolist(),
                    list(rows.row_shape),
                    rows.dtype.str,
                    [[s.start, s.stop] for s in rows.reader(0).layout.crop],
                ]
                for n, rows in self.rows.items()
            },
            "keys": {
                n: [k.variables, k.frames, k.stacked, k.windowed] for n, k in self.keys.items()
            },
            "starts": zlib.crc32(self.starts.astype("<i8").tobytes()),
        }


def _finite_sum(values: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))
