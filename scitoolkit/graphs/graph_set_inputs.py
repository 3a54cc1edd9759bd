"""Inputs of models of whole graphs: numbers and categories of nodes and edges, in batches."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.graph_set import ENCODINGS, StackedGraphs
from scitoolkit.graphs.graph_set_config import GraphSetDataConfig

Array = np.ndarray
log = get_logger(__name__)
MAX_CATEGORIES = 10_000
OF_EDGES = ("offsets", "distances")
"""Values of `data.positions` that make features of edges."""


@dataclass(frozen=True)
class Columns:
    """Inputs of all nodes or of all edges.

    Attributes:
        numbers: shape (n, columns), float32.
        categories: whole numbers of any size, shape (n, columns), int64.
    """

    numbers: Array
    categories: Array

    def measured(self, rows: Array, where: str) -> dict[str, Any]:
        """Return mean and deviation of the numbers, and the categories of each column, of rows.

        Raises:
            DataError: a column has too many categories.
        """
        numbers, tables = self.numbers[rows].astype(np.float64), []
        for column in self.categories[rows].T:
            table = np.unique(column)
            if len(table) > MAX_CATEGORIES:
                raise DataError(
                    f"a column of whole numbers has {len(table)} different ones",
                    where=where,
                    allowed=f"at most {MAX_CATEGORIES} categories",
                    fix="data.integers=numbers",
                )
            tables.append(table.tolist())
        none = [0.0] * numbers.shape[1]
        mean, deviation = (
            (numbers.mean(0).tolist(), numbers.std(0).tolist()) if len(rows) else (none, none)
        )
        return {"mean": mean, "deviation": deviation, "categories": tables}

    def encoded(self, tables: Sequence[Sequence[int]]) -> tuple[Array, int]:
        """Return the place of each category in its table from 1, 0 for others; count the others."""
        out = np.zeros_like(self.categories)
        for column, table in enumerate(tables):
            values, trained = self.categories[:, column], np.asarray(table, np.int64)
            if len(trained):
                place = np.searchsorted(trained, values).clip(max=len(trained) - 1)
                out[:, column] = np.where(trained[place] == values, place + 1, 0)
        return out, int((out == 0).sum())


def node_columns(graphs: StackedGraphs, config: GraphSetDataConfig) -> Columns:
    """Return `x`, `z`, encodings and positions as features; 1 for nodes of graphs without any.

    Raises:
        DataError: positions are to be features, and there are none.
    """
    count = int(graphs.num_nodes.sum())
    numbers, categories = _split(graphs.arrays.get("x"), count)
    if "z" in graphs.arrays:
        categories = np.concatenate([categories, graphs.arrays["z"][:, None]], axis=1)
    appended = [name for name in ENCODINGS if name in graphs.arrays]
    if config.positions == "features":
        _require_positions(graphs)
        appended.append("pos")
    every = [numbers, *(graphs.arrays[name] for name in appended)]
    numbers = np.concatenate(every, axis=1, dtype=np.float32)
    if not numbers.shape[1] and not categories.shape[1]:
        numbers = np.ones((count, 1), np.float32)
    return Columns(numbers, categories)


def edge_columns(graphs: StackedGraphs, config: GraphSetDataConfig) -> Columns | None:
    """Return `edge_attr` and what `data.positions` appends to it; None without either."""
    count = int(graphs.num_edges.sum())
    numbers, categories = _split(graphs.arrays.get("edge_attr"), count)
    if config.positions in OF_EDGES:
        _require_positions(graphs)
        first = np.repeat(graphs.first_node[:-1], graphs.num_edges)
        sender, receiver = graphs.arrays["pos"][graphs.edge_index + first]
        offset = receiver - sender
        lengths = np.linalg.norm(offset, axis=1, keepdims=True)
        appended = [lengths] if config.positions == "distances" else [offset, lengths]
        numbers = np.concatenate([numbers, *appended], axis=1)
    if not numbers.shape[1] and not categories.shape[1]:
        return None
    return Columns(numbers.astype(np.float32), categories)


def _require_positions(graphs: StackedGraphs) -> None:
    if "pos" not in graphs.arrays:
        raise DataError(
            "no pos", where=graphs.where, fix="leave data.positions out", allowed="key pos"
        )


def _split(array: Array | None, count: int) -> tuple[Array, Array]:
    """Return an array as numbers and as categories; one of them is empty."""
    no_numbers, no_categories = np.zeros((count, 0), np.float32), np.zeros((count, 0), np.int64)
    if array is None:
        return no_numbers, no_categories
    return (no_numbers, array) if array.dtype.kind == "i" else (array, no_categories)


def passed(graphs: StackedGraphs, config: GraphSetDataConfig) -> list[str]:
    """Return the names of the inputs besides `x` and `edge_index`, as a network calls them."""
    names: list[str] = [n for n in ("z", "edge_weight", "edge_type") if n in graphs.arrays]
    if "pos" in graphs.arrays and config.positions == "pass":
        names.append("pos")
    if "edge_attr" in graphs.arrays or config.positions in OF_EDGES:
        names.append("edge_attr")
    return names


@dataclass
class GraphBatches:
    """Source of samples for a loader, whose samples are graphs.

    A batch is one graph without edges between its members: `node_numbers`, `node_categories`,
    `edge_index` with nodes numbered through the batch, `edge_numbers`, `edge_categories`, `batch`
    (graph of each node), `num_graphs`, `y`, and those of `z`, `pos`, `edge_weight` and `edge_type`
    that the graphs have.

    Args:
        graphs: all graphs.
        config: the `data:` section.
        rows: numbers of the graphs that are samples.
        measured: what was measured on the training graphs.
        reference: what is subtracted from the values of each graph, (G, D); None for nothing.
    """

    graphs: StackedGraphs
    config: GraphSetDataConfig
    rows: Array
    measured: Mapping[str, Any]
    reference: Array | None = None
    bytes_read: int = 0
    _nodes: dict[str, Array] = field(init=False)
    _edges: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        stored = self.graphs.arrays
        used = passed(self.graphs, self.config)
        if "edge_type" in used:
            last = int(stored["edge_type"].max(initial=-1))
            if last >= self.measured["edge_types"]:
                raise DataError(
                    f"an edge of type {last}",
                    where=self.graphs.where,
                    allowed=f"types below {self.measured['edge_types']}, as in training",
                )
        self._nodes = {n: stored[n] for n in ("z", "pos") if n in used}
        self._edges = {n: stored[n] for n in ("edge_weight", "edge_type") if n in used}
        node = node_columns(self.graphs, self.config)
        columns = {"node": (node, self._nodes)}
        edge = edge_columns(self.graphs, self.config)
        if edge is not None:
            columns["edge"] = (edge, self._edges)
        for name, (values, arrays) in columns.items():
            places, unseen = values.encoded(self.measured[name]["categories"])
            arrays |= {f"{name}_numbers": values.numbers, f"{name}_categories": places}
            if unseen:
                log.warning(
                    "%d categories of %ss are not in the training graphs: they count as none",
                    unseen,
                    name,
                )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.rows)

    def read(self, indices: Array) -> dict[str, Array]:
        """Return the batch of some samples."""
        chosen = np.asarray(self.rows)[indices]
        nodes, edges = self.graphs.rows(chosen)
        sizes, counts = self.graphs.num_nodes[chosen], self.graphs.num_edges[chosen]
        # A batch is one graph with a block-diagonal adjacency: each member's nodes are shifted by
        # the number of nodes before it.
        first = np.cumsum(sizes) - sizes
        batch = {
            "edge_index": self.graphs.edge_index[:, edges] + np.repeat(first, counts),
            "batch": np.repeat(np.arange(len(chosen)), sizes),
            "num_graphs": np.array(len(chosen)),
            **{name: array[nodes] for name, array in self._nodes.items()},
            **{name: array[edges] for name, array in self._edges.items()},
        }
        if self.graphs.labels is not None:
            labels = self.graphs.labels[chosen]
            if self.reference is not None:
                labels = labels - self.reference[chosen]
            batch["y"] = labels if labels.ndim == 1 else labels.astype(np.float32)
        self.bytes_read += sum(array.nbytes for array in batch.values())
        return batch

    def describe(self) -> dict[str, Any]:
        """Return sizes and checksums, by which a resumed run recognises the graphs."""
        arrays = {"rows": np.asarray(self.rows), "edge_index": self.graphs.edge_index}
        arrays |= {**self._nodes, **self._edges}
        return {
            name: [list(array.shape), zlib.crc32(np.ascontiguousarray(array).tobytes())]
            for name, array in arrays.items()
        }
