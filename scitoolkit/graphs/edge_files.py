"""Block-wise, validating readers of edge lists in several file formats."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.graphs.arrays_on_disk import ArrayFile, ArrayStream
from scitoolkit.graphs.targets import real_numbers, whole_numbers

Array = np.ndarray
BLOCK = 1 << 20  # edges


class EdgeBlock(NamedTuple):
    """A block of edges: source, target, and weights, features and types if the file has them."""

    source: Array
    target: Array
    weight: Array | None
    attr: Array | None
    type: Array | None = None


class EdgeFile(ABC):
    """Base class of edge lists, which can be read sequentially any number of times.

    Attributes:
        suffixes: file suffixes that the class reads.
        num_nodes: number of nodes, if known from the file.
        weighted: whether edges have weights.
        attr_shape: shape of an edge's features; None without features.
        typed: whether edges have types.
    """

    suffixes: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.path: Path = Path(path)
        self.num_nodes: int | None = None
        self.weighted: bool = False
        self.attr_shape: tuple[int, ...] | None = None
        self.typed: bool = False
        if not self.path.exists():
            raise DataError("no such file", where=str(path))

    @abstractmethod
    def _blocks(self) -> Iterator[EdgeBlock]:
        """Yield the edges as stored."""

    def blocks(self) -> Iterator[EdgeBlock]:
        """Yield the edges in file order, with non-negative integer node numbers.

        Raises:
            DataError: an invalid node number or type, or a weight or feature that is not finite.
        """
        first = 0
        for block in self._blocks():
            # `first` is the number of the block's first edge in the file, so that a message names
            # the edge that a user can look up, not a place in the block.
            ends = [self._nodes(a, first) for a in (block.source, block.target)]
            for name, values in (("edge_weight", block.weight), ("edge_attr", block.attr)):
                if values is None:
                    continue
                if not np.isfinite(real_numbers(name, values, str(self.path))).all():
                    bad = first + int(
                        np.argmin(np.isfinite(values).reshape(len(values), -1).all(1))
                    )
                    self._refuse(f"{name} of edge {bad} is NaN or Inf", "finite numbers")
            if block.type is not None:
                self._check_types(block.type, first)
            yield EdgeBlock(ends[0], ends[1], block.weight, block.attr, block.type)
            first += len(ends[0])

    def _check_types(self, types: Array, first: int) -> None:
        numbers = whole_numbers("edge_type", types, str(self.path))
        bad = (numbers < 0) | (numbers > np.iinfo(np.int32).max)
        if bad.any():
            edge = int(np.argmax(bad))
            self._refuse(f"edge_type {numbers[edge]} of edge {first + edge}", "numbers from 0")

    def _nodes(self, ends: Array, first: int) -> Array:
        if ends.dtype.kind not in "iu":
            # pandas reads a column with 1.0 or an empty cell as floating-point numbers; whole ones
            # are accepted, NaN is not.
            whole = ends.astype(np.int64) if ends.dtype.kind == "f" else None
            if whole is None or not np.array_equal(whole, ends):
                self._refuse(f"ends of edges are {ends.dtype}, such as {ends[:1]}", "whole numbers")
            ends = whole
        self._check_ends(ends, ends < 0, first, "numbers from 0")
        if self.num_nodes is not None:
            self._check_ends(ends, ends >= self.num_nodes, first, f"0 to {self.num_nodes - 1}")
        return ends

    def _check_ends(self, ends: Array, wrong: Array, first: int, allowed: str) -> None:
        if wrong.any():
            edge = int(np.argmax(wrong))
            self._refuse(f"edge {first + edge} ends at node {ends[edge]}", allowed)

    def _refuse(self, what: str, allowed: str, fix: str = "") -> NoReturn:
        raise DataError(what, where=str(self.path), allowed=allowed, fix=fix)


class EdgeArrays(EdgeFile):
    """Edges in an .npz or HDF5 file, a folder of .npy files, or a single .npy file.

    `edge_index` (2, E) or (E, 2), source first; or CSR, row = target: `adj_indptr` and
    `adj_indices`, or `indptr` and `indices`. Optional: `edge_weight` (E,), `edge_type` (E,), and
    `edge_attr` (E,) or (E, D).
    """

    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".h5", ".hdf5", ".npy", "")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        single = self.path.suffix.lower() == ".npy"
        self._file = ArrayFile(self.path.parent if single else self.path)
        self._index = self.path.stem if single else "edge_index"
        self._pointer: Array | None = None
        self._weights = "edge_weight"
        if not single:
            self.typed: bool = "edge_type" in self._file
            if "edge_attr" in self._file:
                self.attr_shape: tuple[int, ...] = self._file.shape("edge_attr")[1:]
            for pointer, columns in (("adj_indptr", "adj_indices"), ("indptr", "indices")):
                if pointer in self._file and columns in self._file:
                    self._use_rows(pointer, columns)
        if self._pointer is None:
            self._check_pairs()
        if not single:
            self._find_weights()
            self._check_rows()

    def _use_rows(self, pointer: str, columns: str) -> None:
        self._pointer, self._index = self._file.read(pointer).astype(np.int64), columns
        count = self._file.shape(columns)[0]
        rises = len(self._pointer) and (np.diff(self._pointer) >= 0).all()
        if not rises or self._pointer[0] != 0 or self._pointer[-1] != count:
            self._refuse(f"{pointer} does not rise from 0 to the {count} edges", "CSR pointers")
        self.num_nodes: int = len(self._pointer) - 1

    def _find_weights(self) -> None:
        """Use `edge_weight`, or the values of a CSR matrix that are not all 1, as `read_graph`."""
        self._weights = "edge_weight"
        if self._weights not in self._file and self._index == "adj_indices":
            self._weights = "adj_data"
        self.weighted = self._weights in self._file
        if self.weighted and self._weights == "adj_data":
            # One pass over the values decides, which stops at the first that is not 1.
            blocks = self._file.blocks(self._weights, BLOCK)
            self.weighted: bool = any((block != 1).any() for block in blocks)

    def _check_rows(self) -> None:
        shape = self._file.shape(self._index)
        # Two edges as (2, 2) are ambiguous; here and in `_pairs` they count as (2, E), as in PyG.
        edges = shape[1] if self._pointer is None and shape[0] == 2 else shape[0]
        inputs: list[tuple[str, tuple[int, ...]]] = []
        inputs += [(self._weights, (1,))] if self.weighted else []
        inputs += [("edge_attr", (1, 2))] if self.attr_shape is not None else []
        inputs += [("edge_type", (1,))] if self.typed else []
        for name, dimensions in inputs:
            shape = self._file.shape(name)
            if len(shape) not in dimensions or shape[0] != edges:
                allowed = f"({edges},)" if dimensions == (1,) else f"({edges},) or ({edges}, D)"
                self._refuse(f"{name} of shape {shape}", allowed)

    def _check_pairs(self) -> None:
        if self._index not in self._file:
            self._refuse(
                "no edges in the file",
                "edge_index, adj_indptr and adj_indices, or indptr and indices",
            )
        shape = self._file.shape(self._index)
        if len(shape) != 2 or 2 not in shape:
            self._refuse(f"{self._index} of shape {shape}", "(2, edges) or (edges, 2)")

    def _blocks(self) -> Iterator[EdgeBlock]:
        # Streams that advance together with the ends: rows of edge k are in the same block in all
        # files.
        more = [
            self._file.blocks(name, BLOCK) if present else None
            for name, present in (
                (self._weights, self.weighted),
                ("edge_attr", self.attr_shape is not None),
                ("edge_type", self.typed),
            )
        ]
        for source, target in self._pairs():
            values = (None if part is None else next(part, None) for part in more)
            yield EdgeBlock(source, target, *values)

    def _pairs(self) -> Iterator[tuple[Array, Array]]:
        if self._pointer is not None:
            first = 0
            for source in self._file.blocks(self._index, BLOCK):
                numbers = np.arange(first, first + len(source))
                # The row of edge e is the last r with pointer[r] <= e; `right` passes over empty
                # rows, whose pointers are equal.
                yield source, np.searchsorted(self._pointer, numbers, side="right") - 1
                first += len(source)
            return
        shape = self._file.shape(self._index)
        if shape[0] == 2:
            yield from self._halves(shape[1])
            return
        for pair in self._file.blocks(self._index, BLOCK):
            yield pair[:, 0], pair[:, 1]

    def _halves(self, edges: int) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of both rows of a (2, E) array."""
        if self.path.suffix.lower() in (".h5", ".hdf5"):
            import h5py

            with h5py.File(self.path) as file:
                for a in range(0, edges, BLOCK):
                    yield tuple(file[self._index][:, a : a + BLOCK])
            return
        # Both rows are contiguous in the file, E apart: one reader for each, instead of one that
        # seeks back and forth, which an archive answers by decompressing from its beginning.
        streams: list[ArrayStream] = [
            self._file.stream(self._index).seek(edges * row) for row in (0, 1)
        ]
        try:
            for a in range(0, edges, BLOCK):
                source, target = (s.take(min(BLOCK, edges - a)) for s in streams)
                yield source, target
        finally:
            for stream in streams:
                stream.close()


class EdgeTable(EdgeFile):
    """Delimited text with columns `source`, `target` and optionally `weight`.

    Without a header, the first two columns are source and target, and a third one is the weight.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".txt")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                first = file.readline().strip()
        except UnicodeDecodeError as error:
            self._refuse(f"not a table of edges ({error})", "text in UTF-8")
        self._separator = next((c for c in (",", "\t", ";") if c in first), r"\s+")
        names = first.split(self._separator if len(self._separator) == 1 else None)
        # Node numbers are numbers, names of columns are not.
        self._header = not all(_is_number(name) for name in names)
        columns = [n.strip().lower() for n in names] if self._header else ["source", "target"]
        if not self._header and len(names) > 2:
            columns.append("weight")
        self._columns = columns
        if not {"source", "target"} <= set(columns):
            self._refuse(f"columns {', '.join(columns)}", "source, target and, if any, weight")
        self.weighted: bool = "weight" in columns

    def _blocks(self) -> Iterator[EdgeBlock]:
        import pandas as pd

        try:
            reader = pd.read_csv(
                self.path,
                sep=self._separator,
                header=0 if self._header else None,
                names=self._columns,
                usecols=range(len(self._columns)),
                chunksize=BLOCK,
            )
            for table in reader:
                weight = table["weight"].to_numpy(np.float64) if self.weighted else None
                yield EdgeBlock(
                    table["source"].to_numpy(), table["target"].to_numpy(), weight, None
                )
        except (ValueError, pd.errors.ParserError) as error:
            self._refuse(f"not a table of edges ({error})", "columns source, target, weight")


class EdgeParquet(EdgeFile):
    """A Parquet file with columns `source`, `target` and optionally `weight`."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise BackendError(
                "edges in Parquet need the package 'pyarrow'",
                where=str(self.path),
                fix="pip install pyarrow",
            ) from None
        with self._reading():
            self._file = parquet.ParquetFile(self.path)
        names = set(self._file.schema_arrow.names)
        if not {"source", "target"} <= names:
            self._refuse(
                f"columns {', '.join(sorted(names))}", "source, target and, if any, weight"
            )
        self.weighted: bool = "weight" in names

    def _blocks(self) -> Iterator[EdgeBlock]:
        columns = ["source", "target", *(["weight"] if self.weighted else [])]
        batches = self._file.iter_batches(BLOCK, columns=columns)
        while True:
            with self._reading():
                batch = next(batches, None)
                if batch is None:
                    return
                arrays = [batch.column(name).to_numpy(zero_copy_only=False) for name in columns]
            yield EdgeBlock(arrays[0], arrays[1], arrays[2] if self.weighted else None, None)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Translate errors of pyarrow."""
        try:
            yield
        except (OSError, ValueError, NotImplementedError) as error:
            what = " ".join(str(error).split())[:200]
            self._refuse(f"not a readable Parquet file ({what})", "a whole file")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def open_edges(path: Path) -> EdgeFile:
    """Open an edge list by its suffix, or a folder of .npy files.

    Raises:
        DataError: no such file, an unknown suffix, or contents that are not edges.
    """
    path = Path(path)
    for kind in (EdgeArrays, EdgeTable, EdgeParquet):
        # No suffix stands for a folder only, not for a file without one.
        if path.suffix.lower() in kind.suffixes and (path.suffix or path.is_dir()):
            return kind(path)
    suffixes = [s for kind in (EdgeArrays, EdgeTable, EdgeParquet) for s in kind.suffixes if s]
    raise DataError(
        "no such file" if not path.exists() else f"suffix {path.suffix!r}",
        where=str(path),
        allowed=f"{', '.join(suffixes)}, or a folder of .npy files",
    )
