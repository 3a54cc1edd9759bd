"""Graphs with features, labels and a split, validated on construction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import DataError
from scitoolkit.graphs import ugrid
from scitoolkit.graphs.graph_set import ENCODINGS
from scitoolkit.graphs.hetero import array_of, merged
from scitoolkit.graphs.targets import TARGETS, Target, TargetName, real_numbers, whole_numbers
from scitoolkit.io.familiar import LARGE, refuse_marks
from scitoolkit.io.numpy_file import DAMAGED

Array = np.ndarray


@dataclass(frozen=True)
class GraphInputs:
    """Shapes of a graph's inputs to a model.

    Attributes:
        num_features: number of node features.
        edge_weight: whether edges have weights.
        edge_attr: shape of an edge's features; None without features.
        edge_types: number of types of edges, from 0; 0 without types.
        node_types: number of types of nodes, from 0; 0 without types.
        dimensions: number of coordinates of a node; 0 without positions.
        receivers: type of the nodes at which edges of each type end, -1 for several; empty unless
            nodes and edges have types.
        types_in_features: whether the features tell the type of a node as well.
        type_names: names of the types of nodes, then of those of edges; empty if not stated.
    """

    num_features: int
    edge_weight: bool = False
    edge_attr: tuple[int, ...] | None = None
    edge_types: int = 0
    node_types: int = 0
    dimensions: int = 0
    receivers: tuple[int, ...] = ()
    types_in_features: bool = False
    type_names: tuple[str, ...] = ()

    def measured(self) -> dict[str, Any]:
        """Return what a model is built for, as it is stored with the model."""
        return {
            "features": self.num_features,
            "edge_types": self.edge_types,
            "edge_features": self.edge_features,
            "node_types": self.node_types,
            "receivers": list(self.receivers),
            "type_names": list(self.type_names),
        }

    @property
    def edge_features(self) -> int:
        """Number of features of an edge; 0 without features."""
        return int(np.prod(self.edge_attr)) if self.edge_attr is not None else 0

    @property
    def of_edges(self) -> list[str]:
        """Names of the edge inputs."""
        stored = {
            "edge_weight": self.edge_weight,
            "edge_attr": self.edge_attr is not None,
            "edge_type": self.edge_types > 0,
        }
        return [name for name, present in stored.items() if present]

    @property
    def of_nodes(self) -> list[str]:
        """Names of the node inputs besides the features."""
        stored = {"node_type": self.node_types, "pos": self.dimensions}
        return [name for name, size in stored.items() if size]


@dataclass
class Graph:
    """A directed graph; undirected graphs contain each edge in both directions.

    Attributes:
        source, target: nodes of each edge, shape (E,), int64; messages flow source -> target.
        num_nodes: number of nodes, including isolated ones.
        features: shape (N, F), float32 or float64, or a scipy CSR matrix of that shape.
        labels: prediction target of each node according to `target_name`: classes, shape (N,),
            int64, -1 if unknown; labels of 0 and 1, (N, L); or values, (N, D); or None.
        parts: node numbers (or masks of shape (N,)) of train, validation and test; stored as int64
            arrays.
        where: source of the graph, for messages.
        edge_weight: shape (E,), float32 or float64; or None.
        edge_attr: features of each edge, shape (E,) or (E, D), float32 or float64; or None.
        target_name: `classes`, `labels` or `values`.
        edge_type: type of each edge, shape (E,), int64 from 0; or None.
        node_type: type of each node, shape (N,), int64 from 0; or None.
        pos: coordinates of each node, shape (N, D), float32 or float64; or None.
        types_in_features: whether the features tell `node_type` as well, so that a model need not
            receive it.
        node_type_names: name of each type of nodes, in their order; empty if not stated.
        edge_type_names: types of the senders, name, and types of the receivers of each type of
            edges, in their order.

    Raises:
        DataError: an index out of range, different lengths, NaN, or a part with unlabelled nodes.

    Example:
        >>> graph = Graph([0, 1], [1, 0], 3, np.zeros((3, 2), np.float32))
        >>> graph.num_edges, graph.in_degrees().tolist()
        (2, [1, 1, 0])
    """

    source: Array
    target: Array
    num_nodes: int
    features: Any
    labels: Array | None = None
    parts: dict[str, Array] = field(default_factory=dict)
    where: str = ""
    edge_weight: Array | None = None
    edge_attr: Array | None = None
    target_name: TargetName = "classes"
    edge_type: Array | None = None
    node_type: Array | None = None
    pos: Array | None = None
    types_in_features: bool = False
    node_type_names: tuple[str, ...] = ()
    edge_type_names: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        where = self.where or "graph"
        self.source = whole_numbers("source nodes", self.source, where)
        self.target = whole_numbers("target nodes", self.target, where)
        self._check_edges()
        self._check_edge_inputs()
        self._check_features()
        if self.labels is not None:
            self.labels = self.learned.checked(self.labels, self.num_nodes, where)
        # Parts last: a part may hold labelled nodes only, which the labels in their stored form
        # tell.
        for name, nodes in self.parts.items():
            self.parts[name] = self._checked_part(name, nodes)
        self._check_parts_apart()

    def _refuse(self, what: str, allowed: str, fix: str = "") -> NoReturn:
        raise DataError(what, where=self.where or "graph", allowed=allowed, fix=fix)

    def _check_edges(self) -> None:
        if self.source.ndim != 1 or self.source.shape != self.target.shape:
            self._refuse(
                f"sources of shape {self.source.shape} and targets of shape {self.target.shape}",
                "two vectors of one length",
            )
        for name, nodes in (("source", self.source), ("target", self.target)):
            if len(nodes) and not 0 <= nodes.min() <= nodes.max() < self.num_nodes:
                self._refuse(
                    f"{name} nodes run from {nodes.min()} to {nodes.max()}",
                    f"0 to {self.num_nodes - 1}",
                )

    def _check_edge_inputs(self) -> None:
        for name in ("edge_weight", "edge_attr"):
            if getattr(self, name) is None:
                continue
            values = self._real(name, getattr(self, name))
            # A weight multiplies a message and is one number; features of an edge may be several.
            dimensions = (1,) if name == "edge_weight" else (1, 2)
            if values.ndim not in dimensions or len(values) != len(self.source):
                self._refuse(
                    f"{name} of shape {values.shape}", f"a row for {len(self.source)} edges"
                )
            if not np.isfinite(values).all():
                self._refuse(f"{name} has NaN or Inf", "finite numbers")
            setattr(self, name, values)
        for name, count in (("edge_type", self.num_edges), ("node_type", self.num_nodes)):
            if getattr(self, name) is not None:
                setattr(self, name, self._checked_types(name, count))
        if self.pos is not None:
            self.pos = self._real("pos", self.pos)
            if self.pos.ndim != 2 or len(self.pos) != self.num_nodes:
                self._refuse(f"pos of shape {self.pos.shape}", f"({self.num_nodes}, dimensions)")
            if not np.isfinite(self.pos).all():
                self._refuse("pos has NaN or Inf", "finite numbers")

    def _checked_types(self, name: str, count: int) -> Array:
        types = whole_numbers(name, getattr(self, name), self.where or "graph")
        if types.shape != (count,) or (count and types.min() < 0):
            self._refuse(f"{name} of shape {types.shape}", f"({count},), numbers from 0")
        return types

    def _check_parts_apart(self) -> None:
        # A node of two parts would be trained on and tested on: its score says nothing about new
        # nodes.
        for a, b in itertools.combinations(self.parts, 2):
            common = np.intersect1d(self.parts[a], self.parts[b])
            if len(common):
                self._refuse(
                    f"parts {a} and {b} share {len(common)} nodes, such as {common[0]}",
                    "parts without a common node",
                )

    def _check_features(self) -> None:
        if sp.issparse(self.features):
            self._real("x", self.features.data)
        else:
            self.features = self._real("x", self.features)
        if self.features.ndim != 2 or self.features.shape[0] != self.num_nodes:
            self._refuse(
                f"features of shape {self.features.shape}", f"({self.num_nodes}, any width)"
            )
        stored = self.features.data if sp.issparse(self.features) else self.features
        # Entries that a sparse matrix does not store are zeros, so that its values are enough.
        bad = ~np.isfinite(stored)
        if bad.any():
            self._refuse(f"{bad.sum()} features are NaN or Inf", "finite features", "repair them")
        refuse_marks(stored, f"{self.where or 'graph'}: x", LARGE)

    def _real(self, name: str, values: Any) -> Array:
        values = real_numbers(name, values, self.where or "graph")
        # Only float64 stays: half precision and integers would otherwise decide the dtype of the
        # model.
        return values if values.dtype == np.float64 else values.astype(np.float32)

    def _checked_part(self, name: str, nodes: Any) -> Array:
        nodes = np.asarray(nodes)
        mask = nodes.dtype == bool
        if nodes.ndim != 1 or (mask and len(nodes) != self.num_nodes):
            what = "is a mask" if mask else "is an array"
            self._refuse(
                f"part {name} {what} of shape {nodes.shape}",
                f"a mask of shape ({self.num_nodes},), or a vector of node numbers",
                "one column of the mask" if nodes.ndim == 2 else "",
            )
        # Before the check for integers: as numbers a mask would name the nodes 0 and 1 only.
        if mask:
            nodes = np.flatnonzero(nodes)
        nodes = whole_numbers(f"nodes of part {name}", nodes, self.where or "graph")
        outside = nodes[(nodes < 0) | (nodes >= self.num_nodes)]
        if len(outside):
            self._refuse(f"part {name} names node {outside[0]}", f"0 to {self.num_nodes - 1}")
        if len(np.unique(nodes)) != len(nodes):
            self._refuse(f"part {name} names a node twice", "each node at most once")
        if self.labels is None or not self.learned.known(self.labels[nodes]).all():
            self._refuse(f"part {name} holds nodes without a label", "labelled nodes")
        return nodes

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return len(self.source)

    @property
    def inputs(self) -> GraphInputs:
        """Shapes of the graph's inputs to a model."""
        attr = None if self.edge_attr is None else tuple(self.edge_attr.shape[1:])
        # A type without a node or edge in this graph, such as one sample of several, has its name.
        edges, nodes = (
            0 if types is None else max(int(types.max(initial=-1)) + 1, len(names))
            for types, names in (
                (self.edge_type, self.edge_type_names),
                (self.node_type, self.node_type_names),
            )
        )
        dimensions = 0 if self.pos is None else self.pos.shape[1]
        names = (*self.node_type_names, *map(" ".join, self.edge_type_names)) if edges else ()
        return GraphInputs(
            *(int(self.features.shape[1]), self.edge_weight is not None, attr, edges, nodes),
            *(dimensions, self._receivers(edges) if nodes else (), self.types_in_features, names),
        )

    def _receivers(self, edge_types: int) -> tuple[int, ...]:
        assert self.node_type is not None
        if self.edge_type_names:
            return tuple(self.node_type_names.index(name[-1]) for name in self.edge_type_names)
        out = []
        for kind in range(edge_types):
            # A type without an edge in this graph ends at no type; like one that ends at several,
            # it is -1.
            ends = np.unique(self.node_type[self.target[self.edge_type == kind]])
            out.append(int(ends[0]) if len(ends) == 1 else -1)
        return tuple(out)

    @property
    def known_labels(self) -> Array:
        """The labels; raises if there are none.

        Raises:
            DataError: the graph has no labels.
        """
        if self.labels is None:
            self._refuse("no labels", f"shape ({self.num_nodes},)")
        return self.labels

    @property
    def learned(self) -> Target:
        """The prediction target."""
        return TARGETS[self.target_name]

    @property
    def num_classes(self) -> int:
        """Highest class + 1, or the number of labels or values; 0 without labels."""
        return 0 if self.labels is None else self.learned.outputs(self.labels)

    def edge_facts(self) -> dict[str, int]:
        """Return counts of self-loops, duplicate edges and isolated nodes, which may be mistakes.

        Example:
            >>> Graph([0, 0, 1], [1, 1, 1], 3, np.zeros((3, 1))).edge_facts()
            {'self_loops': 1, 'duplicate_edges': 1, 'isolated_nodes': 1}
        """
        pairs = self.target * self.num_nodes + self.source
        ends = np.bincount(np.concatenate([self.source, self.target]), minlength=self.num_nodes)
        return {
            "self_loops": int((self.source == self.target).sum()),
            "duplicate_edges": len(pairs) - len(np.unique(pairs)),
            "isolated_nodes": int((ends == 0).sum()),
        }

    def in_degrees(self) -> Array:
        """Return the number of edges into each node, shape (N,)."""
        return np.bincount(self.target, minlength=self.num_nodes)

    def dense_features(self, nodes: Array) -> Array:
        """Return the features of some nodes, shape (len(nodes), F), float32."""
        rows = self.features[nodes]
        return np.asarray(rows.todense() if sp.issparse(rows) else rows, dtype=np.float32)


def read_graph(path: Path, target: TargetName = "classes", split: int | None = None) -> Graph:
    """Read a graph from an .npz file, a .pt file of (Hetero)Data, or a mesh by UGRID in NetCDF.

    Nothing in a file is executed. An .npz file holds arrays, a .pt file what `from_data` takes, a
    mesh what `scitoolkit.graphs.ugrid.graph_arrays` takes.

    Keys: `adj_indptr` and `adj_indices` (CSR: row = target, column = source) or `edge_index`
    (2, E); `x`, or `x_indptr`, `x_indices`, `x_data` and `n_feat` for sparse features; optional
    `y`, `labelled`, `edge_weight` (or `adj_data`), `edge_attr` and `edge_type` in the order of the
    edges, `node_type` and `pos` of the nodes, and the parts `train`, `val` (or `validation`) and
    `test`, or the masks `train_mask`, `val_mask` and `test_mask`.

    Args:
        path: the file.
        target: meaning of `y`: classes, labels or values.
        split: column of masks of shape (N, splits); None for files with one split.

    Raises:
        DataError: no such file, not an npz file, a missing key, or inconsistent contents.
    """
    path = Path(shipped_path(path))
    if path.suffix == ".pt":
        from scitoolkit.graphs.pyg_files import load_data

        return from_data(load_data(path), target, where=str(path), split=split)
    if path.suffix.lower() in ugrid.SUFFIXES:
        arrays = ugrid.graph_arrays(path)
    else:
        arrays = arrays_of(path)
    return graph_from_arrays(arrays, where=str(path), target=target, split=split)


def arrays_of(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file, without unpickling.

    Raises:
        DataError: no such file, or not an npz file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise DataError("no such file", where=str(path)) from None
    except (OSError, *DAMAGED) as error:
        raise DataError(f"not a readable npz file ({error})", where=str(path)) from None


def graph_from_arrays(
    arrays: dict[str, Array],
    where: str = "graph",
    target: TargetName = "classes",
    split: int | None = None,
) -> Graph:
    """Return the graph of arrays as described by `read_graph`.

    Raises:
        DataError: a missing key, or inconsistent contents.
    """
    source, end, num_nodes = _edges(arrays, where)
    labels = arrays.get("y")
    if labels is not None and "labelled" in arrays:
        labels = only_labelled(labels, arrays["labelled"], target, where)
    names = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
    parts = {part: arrays[n].astype(bool) for n, part in _MASKS.items() if n in arrays}
    parts |= {part: arrays[name] for name, part in names.items() if name in arrays}
    parts = _of_split(parts, split, where)
    features = _features(arrays, num_nodes, where)
    # `adj_data` are the values of a CSR matrix in the files of Shchur et al. (2018). All 1 there
    # only says that an edge exists, which is no input for a model.
    weight = arrays.get("edge_weight", arrays.get("adj_data"))
    if "edge_weight" not in arrays and weight is not None and (weight == 1).all():
        weight = None  # a binary adjacency matrix
    named: dict[str, Any] = {
        n: arrays.get(n) for n in ("edge_attr", "edge_type", "node_type", "pos")
    }
    none = np.zeros(0)
    return Graph(
        *(source, end, num_nodes, features, labels, parts, where, weight),
        target_name=target,
        types_in_features=bool(arrays.get("types_in_features", False)),
        node_type_names=tuple(arrays.get("node_type_names", none).tolist()),
        edge_type_names=tuple(map(tuple, arrays.get("edge_type_names", none).tolist())),
        **named,
    )


def _edges(arrays: dict[str, Array], where: str) -> tuple[Array, Array, int]:
    if "adj_indptr" in arrays and "adj_indices" in arrays:
        pointer, source = arrays["adj_indptr"].astype(np.int64), arrays["adj_indices"]
        if len(pointer) < 1 or (np.diff(pointer) < 0).any() or pointer[-1] != len(source):
            raise DataError(
                f"adj_indptr does not rise from 0 to the {len(source)} edges", where=where
            )
        return source, np.repeat(np.arange(len(pointer) - 1), np.diff(pointer)), len(pointer) - 1
    if "edge_index" in arrays:
        index = arrays["edge_index"]
        if index.ndim == 2 and index.shape[1] == 2 != index.shape[0]:
            index = index.T  # pairs, as in `edge_files`
        if index.ndim != 2 or index.shape[0] != 2:
            raise DataError(f"edge_index of shape {index.shape}", where=where, allowed="(2, edges)")
        lengths = [len(arrays[name]) for name in ("x", "y") if name in arrays]
        lengths += [len(arrays["x_indptr"]) - 1] if "x_indptr" in arrays else []
        # The highest number in an edge misses isolated nodes behind it; rows of x or y count them.
        largest = int(index.max()) + 1 if index.size else 0
        return index[0], index[1], lengths[0] if lengths else largest
    allowed = "keys adj_indptr and adj_indices, or edge_index"
    raise DataError("no edges in the file", where=where, allowed=allowed)


def _features(arrays: dict[str, Array], num_nodes: int, where: str) -> Any:
    if "x" in arrays:
        return arrays["x"]
    names = ("x_indptr", "x_indices", "x_data", "n_feat")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(
            f"no features: {', '.join(missing)} missing",
            where=where,
            allowed="x, or x_indptr, x_indices, x_data and n_feat",
        )
    pointer, index, data = (arrays[name] for name in names[:3])
    try:
        shape = (num_nodes, int(arrays["n_feat"]))
        matrix = sp.csr_matrix((data.astype(np.float32), index, pointer), shape=shape)
        # Without the full check scipy accepts indices beyond the width, and reads outside of the
        # array.
        matrix.check_format(full_check=True)
        return matrix
    except ValueError as error:
        raise DataError(f"the sparse features do not fit: {error}", where=where) from None


def _of_split(parts: dict[str, Array], split: int | None, where: str) -> dict[str, Array]:
    """Return the parts of one of several splits; a mask of one column belongs to all of them."""
    columns = {name: part.shape[1] for name, part in parts.items() if np.ndim(part) == 2}
    if not columns and split is None:
        return parts
    count = min(columns.values(), default=1)
    if split is None or not columns or split >= count or len(set(columns.values())) > 1:
        raise DataError(
            f"{count} split{'s' * (count > 1)}" + ("" if split is None else f", not {split}"),
            where=where,
            allowed=f"data.split from 0 to {count - 1}" if columns else "data.split left out",
            fix="data.split=0" if columns else "",
        )
    return {name: part[:, split] if name in columns else part for name, part in parts.items()}


def only_labelled(labels: Array, labelled: Array, target: TargetName, where: str) -> Array:
    """Return labels with those of unlabelled nodes set to the value for unknown.

    Raises:
        DataError: `labelled` is not a mask of the nodes.
    """
    if labelled.shape != labels.shape[:1] or not np.isin(labelled, (0, 1)).all():
        raise DataError(
            f"labelled of shape {labelled.shape} is not a mask",
            where=where,
            allowed=f"0 and 1, shape ({len(labels)},)",
        )
    has_label = labelled.astype(bool).reshape(-1, *[1] * (labels.ndim - 1))
    return np.where(has_label, labels, TARGETS[target].unknown)


_OF_DATA = "x edge_index y edge_weight edge_attr edge_type node_type pos".split()
_MASKS = {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}
_READ_OF_DATA = (*_OF_DATA, *ENCODINGS, *_MASKS, "num_nodes")


def from_data(
    data: Any, target: TargetName = "classes", where: str = "", split: int | None = None
) -> Graph:
    """Return the graph of a torch-geometric `Data` or `HeteroData`.

    A `Data` has x, edge_index and optionally y, masks, edge_weight, edge_attr, edge_type, node_type
    and pos, and positional encodings (`ENCODINGS`), which become columns of x. Nodes of a
    `HeteroData` are numbered type by type in its order; see `hetero.merged`.

    Args:
        data: the data; of a `HeteroData` one node type has y and masks.
        target: meaning of `y`: classes, labels or values.
        where: source of the data, for messages; its class by default.
        split: column of masks of shape (N, splits); None for data with one split.

    Raises:
        DataError: no x or edge_index, inconsistent contents, or an entry that is not read.
    """
    where = where or f"torch_geometric.data.{type(data).__name__}"
    if not hasattr(data, "keys") or (
        not hasattr(data, "edge_index") and not hasattr(data, "node_types")
    ):
        raise DataError(
            f"a {type(data).__name__}",
            where=where,
            allowed="a Data or HeteroData",
            fix="domain: graph_sets, for a list of graphs",
        )
    if hasattr(data, "node_types"):
        arrays = merged(data, TARGETS[target].unknown)
        return graph_from_arrays(arrays, where=where, target=target, split=split)
    unread = [key for key in data.keys() if key not in _READ_OF_DATA and data[key] is not None]
    if unread:
        raise DataError(
            f"the Data has {', '.join(unread)}, which are not read",
            where=where,
            allowed=", ".join(_READ_OF_DATA),
            fix=f"del data[{unread[0]!r}], or concatenate it to x or edge_attr",
        )
    read = (*_OF_DATA, *ENCODINGS, *_MASKS)
    present = {key: array_of(v) for key in read if (v := getattr(data, key, None)) is not None}
    arrays = {key: present[key] for key in _OF_DATA if key in present}
    features = [present[key] for key in ("x", *ENCODINGS) if key in present]
    if len(features) > ("x" in present):
        arrays["x"] = np.column_stack(features)
    arrays |= {n: present[key].astype(bool) for key, n in _MASKS.items() if key in present}
    return graph_from_arrays(arrays, where=where, target=target, split=split)


def write_graph(graph: Graph, path: Path) -> None:
    """Write a graph to an .npz file for `read_graph`, with sparse float32 features."""
    # By target for the CSR pointers, then by source: the same graph gives the same file whatever
    # the order of its edges was. Arrays of edges follow the permutation.
    order = np.lexsort((graph.source, graph.target))
    features = sp.csr_matrix(graph.features)
    arrays = {
        "adj_indptr": np.concatenate([[0], np.cumsum(graph.in_degrees())]).astype(np.int32),
        "adj_indices": graph.source[order].astype(np.int32),
        "x_indptr": features.indptr,
        "x_indices": features.indices,
        "x_data": features.data.astype(np.float32),
        "n_feat": np.int64(features.shape[1]),
    }
    if graph.labels is not None:
        labelled = graph.learned.known(graph.labels)
        by_row = labelled.reshape(-1, *[1] * (graph.labels.ndim - 1))
        # Unknown labels (-1 or NaN, by target) are stored as 0 with a mask, which any reader
        # understands.
        arrays |= {"y": np.where(by_row, graph.labels, 0), "labelled": labelled}
    for name in ("edge_weight", "edge_attr", "edge_type"):
        if getattr(graph, name) is not None:
            arrays[name] = getattr(graph, name)[order]
    for name in ("node_type", "pos"):
        if getattr(graph, name) is not None:
            arrays[name] = getattr(graph, name)
    if graph.types_in_features:
        arrays["types_in_features"] = np.array(True)
    for name in ("node_type_names", "edge_type_names"):
        if getattr(graph, name):
            arrays[name] = np.array(getattr(graph, name))
    names = {"train": "train", "validation": "val", "test": "test"}
    arrays |= {names[part]: nodes for part, nodes in graph.parts.items()}
    np.savez_compressed(path, **arrays)
