"""Block-wise reader of node features, labels and splits in .npz or HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.arrays_on_disk import ArrayFile
from scitoolkit.graphs.targets import TargetName
from scitoolkit.io.familiar import LARGE, refuse_marks

Array = np.ndarray
SPLIT_NAMES = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
SPARSE = ("x_indptr", "x_indices", "x_data", "n_feat")


class NodeFile:
    """Node data with the keys `x` (or sparse ones), `y`, `labelled`, `train`, `val` and `test`.

    The keys are those of `read_graph`.

    Args:
        path: .npz or HDF5 file, or a folder of .npy files.
        num_nodes: number of nodes of the graph.
        target: meaning of `y`: classes, labels or values.

    Attributes:
        width: number of features, 0 without features.
        dtype: dtype of the features, float32 or float64.
        labels: as `Graph.labels`; None without labels.
        num_outputs: as `Graph.num_classes`.
        splits: nodes of train, validation and test.

    Raises:
        DataError: inconsistent shapes, invalid labels, or overlapping splits.
    """

    def __init__(self, path: Path, num_nodes: int, target: TargetName = "classes") -> None:
        # Imported here to reuse the validation of `Graph`.
        from scitoolkit.graphs.graph import Graph, only_labelled

        self._file, self.num_nodes = ArrayFile(path), num_nodes
        self.path: Path = Path(path)
        unread = [name for name in ("node_type", "pos") if name in self._file]
        if unread:
            raise DataError(
                f"{unread[0]}, which is not kept in partitioned graphs",
                where=str(path),
                fix=f"{unread[0]} as columns of x, or training from the file",
            )
        self._sparse: bool = all(name in self._file for name in SPARSE)
        self.width, self.dtype = self._shape()
        named = {s: self._file.read(n) for n, s in SPLIT_NAMES.items() if n in self._file}
        labels = self._file.read("y") if "y" in self._file else None
        if labels is not None and "labelled" in self._file:
            labels = only_labelled(labels, self._file.read("labelled"), target, str(path))
        none = np.zeros((num_nodes, 0), np.float32)
        no_edges = np.zeros(0, np.int64)
        # A graph without edges validates labels and splits as for graphs in memory.
        checked = Graph(
            no_edges, no_edges, num_nodes, none, labels, named, str(path), target_name=target
        )
        self.num_outputs: int = checked.num_classes
        self.labels: Array | None = checked.labels
        self.splits: dict[str, Array] = checked.parts

    def _shape(self) -> tuple[int, np.dtype]:
        if self._sparse:
            nodes, dtype = self._file.shape("x_indptr")[0] - 1, self._file.dtype("x_data")
            shape: tuple[int, ...] = (nodes, int(self._file.read("n_feat")))
        elif "x" in self._file:
            shape, dtype = self._file.shape("x"), self._file.dtype("x")
        else:
            return 0, np.dtype(np.float32)
        if len(shape) != 2 or shape[0] != self.num_nodes:
            raise DataError(
                f"features of shape {shape}",
                where=str(self.path),
                allowed=f"({self.num_nodes}, any width)",
            )
        if dtype.kind not in "biuf":
            raise DataError(f"x of {dtype}", where=str(self.path), allowed="real numbers")
        return shape[1], np.dtype(np.float64 if dtype == np.float64 else np.float32)

    def features(self, rows: int) -> Iterator[Array]:
        """Yield the features of all nodes, at most `rows` nodes at a time.

        Raises:
            DataError: a feature is NaN or Inf.
        """
        first = 0
        for block in self._sparse_blocks(rows) if self._sparse else self._file.blocks("x", rows):
            block = np.asarray(block, dtype=self.dtype)
            bad = ~np.isfinite(block).all(1)
            if bad.any():
                raise DataError(
                    f"{bad.sum()} nodes, such as {first + int(bad.argmax())}, have features that "
                    "are NaN or Inf",
                    where=str(self.path),
                    allowed="finite features",
                )
            refuse_marks(block, f"{self.path}: x", LARGE)
            yield block
            first += len(block)

    def _sparse_blocks(self, rows: int) -> Iterator[Array]:
        pointer = self._file.read("x_indptr").astype(np.int64)
        count = self._file.shape("x_indices")[0]
        if pointer[0] != 0 or pointer[-1] != count or (np.diff(pointer) < 0).any():
            self._refuse_sparse(f"x_indptr does not rise from 0 to the {count} entries")
        for first in range(0, self.num_nodes, rows):
            last = min(first + rows, self.num_nodes)
            begin, end = int(pointer[first]), int(pointer[last])
            columns, values = (self._file.rows(name, begin, end) for name in SPARSE[1:3])
            if len(columns) and not 0 <= columns.min() <= columns.max() < self.width:
                self._refuse_sparse(f"x_indices run from {columns.min()} to {columns.max()}")
            block = np.zeros((last - first, self.width), self.dtype)
            place = np.repeat(np.arange(last - first), np.diff(pointer[first : last + 1]))
            np.add.at(block, (place, columns), values)
            yield block

    def _refuse_sparse(self, what: str) -> NoReturn:
        raise DataError(
            what, where=str(self.path), allowed=f"a CSR matrix with {self.width} columns"
        )


def has_node_data(path: Path) -> bool:
    """Return whether an edge file also contains node data."""
    if Path(path).suffix.lower() not in (".npz", ".h5", ".hdf5") and not Path(path).is_dir():
        return False
    file = ArrayFile(path)
    has_nodes = any(name in file for name in ("x", "y", "x_indptr"))
    file.close()
    return has_nodes


def num_nodes_of(path: Path) -> int:
    """Return the number of nodes of a file with node data."""
    file = ArrayFile(path)
    sizes = [file.shape(name)[0] for name in ("x", "y") if name in file]
    if "x_indptr" in file:
        sizes.append(file.shape("x_indptr")[0] - 1)
    file.close()
    if not sizes:
        raise DataError("no data of nodes", where=str(path), allowed="keys x, y")
    return sizes[0]
