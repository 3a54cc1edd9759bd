"""Sets of graphs with targets of whole graphs: molecules, crystals, meshes of several sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.targets import TARGETS, Target, TargetName, real_numbers, whole_numbers
from scitoolkit.io.familiar import LARGE, refuse_marks
from scitoolkit.io.split import SPLITS

Array = np.ndarray
ENCODINGS = ("laplacian_eigenvector_pe", "random_walk_pe")
"""Positional encodings of nodes that transforms of torch-geometric write, read as features."""
NODE_ARRAYS = ("x", "z", "pos", *ENCODINGS)
EDGE_ARRAYS = ("edge_attr", "edge_weight", "edge_type")
INTEGERS = ("z", "edge_type")


@dataclass
class StackedGraphs:
    """Many graphs, whose arrays follow each other graph by graph.

    Attributes:
        num_nodes, num_edges: numbers of nodes and of directed edges of each graph, shape (G,).
        edge_index: sender and receiver of each edge, (2, E), numbered from 0 within its graph.
        arrays: inputs by name, any of `x` (N, F), `z` (N,) integers such as atomic numbers, `pos`
            (N, D) coordinates, `ENCODINGS` (N, D), `edge_attr` (E, D), `edge_weight` (E,) and
            `edge_type` (E,); N and E are sums over graphs. `x` and `edge_attr` of integers may be
            categories.
        labels: target of each graph as `y` of a graph has of each node, (G,) or (G, D); or None.
        parts: numbers of the graphs of train, validation and test; empty if the file has none.
        where: source of the graphs, for messages.
        target_name: `classes`, `labels` or `values`.
        units: unit of each array that states one, by name.

    Raises:
        DataError: inconsistent lengths, nodes that are not in their graph, NaN.

    Example:
        >>> pair = StackedGraphs([2, 1], [1, 0], [[0], [1]], {"z": [6, 8, 1]}, [0.5, 0.25])
        >>> pair.first_node.tolist(), pair.target.tolist(), len(pair)
        ([0, 2, 3], [[0.5], [0.25]], 2)
    """

    num_nodes: Array
    num_edges: Array
    edge_index: Array
    arrays: dict[str, Array]
    labels: Array | None = None
    parts: dict[str, Array] = field(default_factory=dict)
    where: str = "graphs"
    target_name: TargetName = "values"
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_nodes = whole_numbers("num_nodes", self.num_nodes, self.where)
        self.num_edges = whole_numbers("num_edges", self.num_edges, self.where)
        self._check_counts()
        self.edge_index = whole_numbers("edge_index", self.edge_index, self.where)
        self._check_edges()
        self.arrays = {name: self._checked(name, array) for name, array in self.arrays.items()}
        if self.labels is not None:
            self.labels = self.learned.checked(self.labels, len(self), self.where)
        self.parts = {name: self._checked_part(name, p) for name, p in self.parts.items()}
        for a, b in itertools.combinations(self.parts, 2):
            common = np.intersect1d(self.parts[a], self.parts[b])
            if len(common):
                self._refuse(f"graph {common[0]} is in {a} and {b}", "every graph in one part")

    def _refuse(self, what: str, allowed: str, fix: str = "") -> NoReturn:
        raise DataError(what, where=self.where, allowed=allowed, fix=fix)

    def _check_counts(self) -> None:
        nodes, edges = self.num_nodes, self.num_edges
        if nodes.ndim != 1 or nodes.shape != edges.shape or not len(nodes):
            self._refuse(
                f"num_nodes of shape {nodes.shape} and num_edges of shape {edges.shape}",
                "two vectors with a number for each graph",
            )
        if nodes.min() < 1 or edges.min() < 0:
            graph = int(np.argmax((nodes < 1) | (edges < 0)))
            self._refuse(
                f"graph {graph} has {nodes[graph]} nodes and {edges[graph]} edges",
                "at least one node",
            )

    def _check_edges(self) -> None:
        shape = (2, int(self.num_edges.sum()))
        if self.edge_index.shape != shape:
            self._refuse(f"edge_index of shape {self.edge_index.shape}", str(shape))
        limit = np.repeat(self.num_nodes, self.num_edges)
        wrong = (self.edge_index < 0) | (self.edge_index >= limit)
        if wrong.any():
            edge = int(wrong.any(0).argmax())
            graph = int(self.graph_of_edge[edge])
            self._refuse(
                f"an edge of graph {graph} is between nodes {self.edge_index[:, edge].tolist()}, "
                f"but the graph has {self.num_nodes[graph]} nodes",
                "nodes numbered from 0 within each graph",
            )

    def _checked(self, name: str, array: Any) -> Array:
        if name not in (*NODE_ARRAYS, *EDGE_ARRAYS):
            self._refuse(
                f"{name}, which is not read",
                ", ".join((*NODE_ARRAYS, *EDGE_ARRAYS)),
                f"data.ignore=[{name}]",
            )
        values = real_numbers(name, array, self.where)
        rows = int((self.num_nodes if name in NODE_ARRAYS else self.num_edges).sum())
        flat = (1,) if name in (*INTEGERS, "edge_weight") else (1, 2)
        if name in (*INTEGERS, "edge_weight") and values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim not in flat or len(values) != rows:
            what = "nodes" if name in NODE_ARRAYS else "edges"
            self._refuse(f"{name} of shape {values.shape}", f"a row for each of {rows} {what}")
        if name in INTEGERS:
            values = whole_numbers(name, values, self.where)
            if len(values) and values.min() < 0:
                self._refuse(f"{name} includes {values.min()}", "0 and above")
            return values
        values = values if values.ndim == 2 or name == "edge_weight" else values[:, None]
        # Whole numbers are categories (atom types, bond orders), which a network embeds; that 8
        # lies between 7 and 9 means nothing. `data.integers=numbers` says otherwise.
        if values.dtype.kind in "iub" and name in ("x", "edge_attr"):
            return values.astype(np.int64)
        bad = ~np.isfinite(values).reshape(rows, -1).all(1)
        if bad.any():
            owner = self.graph_of_node if name in NODE_ARRAYS else self.graph_of_edge
            graph = int(owner[bad.argmax()])
            self._refuse(f"{name} of graph {graph} has NaN or Inf", "finite numbers", "repair them")
        refuse_marks(values, f"{self.where}: {name}", LARGE)
        return values.astype(np.float32)

    def _checked_part(self, name: str, graphs: Any) -> Array:
        graphs = np.asarray(graphs)
        if graphs.dtype == bool:
            if graphs.shape != (len(self),):
                self._refuse(f"part {name} is a mask of shape {graphs.shape}", f"({len(self)},)")
            graphs = np.flatnonzero(graphs)
        graphs = whole_numbers(f"graphs of part {name}", graphs.reshape(-1), self.where)
        outside = graphs[(graphs < 0) | (graphs >= len(self))]
        if len(outside):
            self._refuse(f"part {name} names graph {outside[0]}", f"0 to {len(self) - 1}")
        if len(np.unique(graphs)) != len(graphs):
            self._refuse(f"part {name} names a graph twice", "each graph at most once")
        return graphs

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.num_nodes)

    @property
    def first_node(self) -> Array:
        """Number of the first node of each graph among all nodes, and the number of all, (G+1,)."""
        return np.concatenate([[0], np.cumsum(self.num_nodes)])

    @property
    def first_edge(self) -> Array:
        """Number of the first edge of each graph among all edges, and the number of all, (G+1,)."""
        return np.concatenate([[0], np.cumsum(self.num_edges)])

    @property
    def graph_of_node(self) -> Array:
        """Graph of each node, shape (N,)."""
        return np.repeat(np.arange(len(self)), self.num_nodes)

    @property
    def graph_of_edge(self) -> Array:
        """Graph of each edge, shape (E,)."""
        return np.repeat(np.arange(len(self)), self.num_edges)

    @property
    def learned(self) -> Target:
        """The prediction target."""
        return TARGETS[self.target_name]

    @property
    def target(self) -> Array:
        """The labels; raises if there are none.

        Raises:
            DataError: the graphs have no labels.
        """
        if self.labels is None:
            self._refuse("no labels", f"key y, {len(self)} rows")
        return self.labels

    @property
    def num_outputs(self) -> int:
        """Highest class + 1, or the number of labels or values; 0 without labels."""
        return 0 if self.labels is None else self.learned.outputs(self.labels)

    def labelled_parts(self) -> dict[str, Array]:
        """Return the parts without the graphs whose label is unknown."""
        labelled = self.learned.known(self.target)
        named = {name: self.parts[name] for name in SPLITS if name in self.parts}
        return {name: part[labelled[part]] for name, part in named.items()}

    def rows(self, graphs: Array) -> tuple[Array, Array]:
        """Return the numbers of the nodes and edges of some graphs, graph by graph."""
        return (
            _ranges(self.first_node[graphs], self.num_nodes[graphs]),
            _ranges(self.first_edge[graphs], self.num_edges[graphs]),
        )

    def has_reverse_edges(self) -> bool:
        """Return whether some edge between two nodes also exists in the other direction."""
        first = np.repeat(self.first_node[:-1], self.num_edges)
        a, b = self.edge_index + first
        total = int(self.num_nodes.sum())
        apart = a != b
        return (
            bool(np.isin((a * total + b)[apart], (b * total + a)[apart]).any()) or not apart.any()
        )

    def with_reverse_edges(self) -> StackedGraphs:
        """Return the set with each edge also in the other direction, with the same features.

        A self-loop is its own reverse and stays one edge.
        """
        apart = np.flatnonzero(self.edge_index[0] != self.edge_index[1])
        edge = np.concatenate([np.arange(self.edge_index.shape[1]), apart])
        # Edges of a graph must stay contiguous: sorted by graph, forward edges before reverse ones.
        order = np.argsort(self.graph_of_edge[edge], kind="stable")
        both = np.concatenate([self.edge_index, self.edge_index[::-1, apart]], axis=1)
        pairs, edge = both[:, order], edge[order]
        arrays = {
            name: array[edge] if name in EDGE_ARRAYS else array
            for name, array in self.arrays.items()
        }
        counts = np.bincount(self.graph_of_edge[edge], minlength=len(self))
        return replace(self, num_edges=counts, edge_index=pairs, arrays=arrays)


def _ranges(first: Array, counts: Array) -> Array:
    """Return the concatenation of `arange(first, first + count)`.

    Example:
        >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(first - starts, counts)
