"""A process's part of a partitioned graph, read from its own files only."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.arrays_on_disk import ArrayFile
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.layout import ProductLayout
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.partitioned import PartFiles, PartitionedGraph
from scitoolkit.graphs.product import Product
from scitoolkit.graphs.weighting import check_weighting
from scitoolkit.io.split import SPLITS
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.training.ranks.communicator import Communicator, RowExchange

Array = np.ndarray
ROWS = 1 << 16  # read at a time


class ScaledPart(Part):
    """Part with weighted products that scale rows, so that nonzeros need no values.

    Args:
        product: returns unweighted sums over in-neighbours.
        degree, loops: in-degree and number of self-loops of each local node.
    """

    def __init__(self, product: Callable[[Tensor], Tensor], degree: Tensor, loops: Tensor) -> None:
        self._sum, self._degree, self._loops = product, degree, loops

    def aggregate(self, x: Tensor, weighting: str) -> Tensor:
        """Return the weighted sums over in-neighbours of local nodes, differentiable.

        Args:
            x: features of local nodes, shape (n_own, F).
            weighting: as in `weighted_adjacency`.
        """
        # Weightings of `weighted_adjacency` as scalings of rows of the sum A x, d = in-degrees:
        #
        # mean       D^-1 A x
        # symmetric  D^-1/2 A D^-1/2 x, where a node with d = 0 neither sends nor receives
        # gcn        D'^-1/2 A' D'^-1/2 x, with A' = A without loops + I and d' its in-degrees
        check_weighting(weighting)
        if weighting == "sum":
            return self._sum(x)
        if weighting == "mean":
            return self._sum(x) / self._degree.clamp(min=1).to(x)[:, None]
        if weighting == "symmetric":
            scale = self._degree.clamp(min=1).to(x).rsqrt()[:, None]
            scale = scale * (self._degree > 0).to(x)[:, None]
            return self._sum(x * scale) * scale
        # The self-loops of a node are replaced by exactly one of weight 1.
        scale = (self._degree - self._loops + 1).to(x).rsqrt()[:, None]
        scaled = x * scale
        # A x holds each node `loops` times: 1 - loops more make it exactly one.
        return (self._sum(scaled) + (1 - self._loops).to(x)[:, None] * scaled) * scale


class StoredPart(ScaledPart):
    """This rank's part of a partitioned graph; needs 8 bytes per edge.

    Args:
        graph: a graph with as many parts as ranks.
        ranks: the communicator.

    Raises:
        ConfigError: the numbers of parts and ranks differ.
        DataError: missing or modified files.
    """

    def __init__(self, graph: PartitionedGraph, ranks: Communicator) -> None:
        if graph.num_parts != ranks.size:
            raise ConfigError(
                f"{ranks.size} processes for a graph of {graph.num_parts} parts",
                where=str(graph.path),
                allowed=f"{graph.num_parts} processes",
                fix=f"--nproc {graph.num_parts}, or partition it again",
            )
        self.files: PartFiles = graph.part(ranks.rank)
        self.ranks, self.grid, self.num_nodes = ranks, ProcessGrid(ranks.size), graph.num_nodes
        attr, record = graph.header["edge_attr"], self.files.record
        self.inputs: GraphInputs = GraphInputs(
            graph.header["num_features"],
            graph.header["edge_weight"],
            None if attr is None else tuple(attr),
            graph.header.get("edge_types", 0),
        )
        self.nodes: Tensor = torch.from_numpy(self.files.read("nodes"))
        self._num_edges = int(record["edges"])
        pointer = self.files.read("pointer")
        near, far, loops = _split(self.files, pointer)
        exchange = RowExchange(
            torch.from_numpy(self.files.read("send")),
            tuple(record["sent"]),
            tuple(record["received"]),
        )
        none = torch.zeros(0, dtype=torch.int64)
        nothing = RowExchange(none, (0,) * ranks.size, (0,) * ranks.size)
        numbers, count = self.nodes.numpy(), len(self.nodes)
        blocks = near, far, exchange, nothing
        layout = ProductLayout(
            self.grid, ranks.rank, numbers, (count,), *blocks, slice(0, count), none
        )
        self._layout = layout
        degree = torch.from_numpy(np.diff(pointer))
        super().__init__(Product(layout, ranks), degree, torch.from_numpy(loops))

    @property
    def num_edges(self) -> int:
        """Number of edges into local nodes."""
        return self._num_edges

    @functools.cached_property
    def edges(self) -> Tensor:
        """Edges into local nodes, (2, E_own), sorted by target, then source."""
        source = torch.from_numpy(self.files.read("column")).long()
        target = torch.repeat_interleave(torch.arange(len(self.nodes)), self._degree)
        return torch.stack([source, target])

    @functools.cached_property
    def edge_numbers(self) -> Tensor:
        """Global number of each edge plus the number of nodes, shape (E_own,)."""
        # The edges into a node are contiguous here and in the whole graph: local numbers differ
        # from global ones by one shift for each node.
        first = torch.from_numpy(self.files.read("first") - self.files.read("pointer")[:-1])
        shift = torch.repeat_interleave(first, self._degree)
        return self.num_nodes + shift + torch.arange(self.num_edges)

    @property
    def halo(self) -> RowExchange:
        """Halo exchange: local rows sent to other ranks, and numbers of rows received."""
        return self._layout.gather

    def edge_input(self, name: str) -> Array:
        """Return `edge_weight`, `edge_attr` or `edge_type` of local edges."""
        values = self.files.read(name)
        return values.astype(np.int64) if name == "edge_type" else values


def _split(files: PartFiles, pointer: Array) -> tuple[SparseMatrix, SparseMatrix, Array]:
    """Return the matrices over local and halo columns and self-loop counts, read in blocks."""
    own, halo = files.record["nodes"], files.record["halo"]
    num_far = int(files.record["far_edges"])
    columns = [np.empty(int(pointer[-1]) - num_far, np.int32), np.empty(num_far, np.int32)]
    pointers = [np.zeros(own + 1, np.int64) for _ in columns]
    loops = np.zeros(own, np.int64)
    file = ArrayFile(files.path)
    for begin in range(0, own, ROWS):
        end = min(begin + ROWS, own)
        first, last = int(pointer[begin]), int(pointer[end])
        block = file.rows("column", first, last)
        rows = pointer[begin : end + 1] - first
        for number, (chosen, shift) in enumerate(((block < own, 0), (block >= own, own))):
            # The number of chosen columns before each row's begin is the pointer of the matrix of
            # only those columns.
            ends = np.concatenate([[0], np.cumsum(chosen)])[rows] + pointers[number][begin]
            pointers[number][begin : end + 1] = ends
            columns[number][ends[0] : ends[-1]] = block[chosen] - shift
        of_edges = np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(rows))
        loops += np.bincount(of_edges[block == of_edges], minlength=own)
    file.close()
    near, far = (
        SparseMatrix.from_csr(p, c, None, width)
        for p, c, width in zip(pointers, columns, (own, halo), strict=True)
    )
    return near, far, loops


def whole_graph(graph: PartitionedGraph) -> Graph:
    """Return the whole graph in memory, with edges sorted by target, then source."""
    parts = [graph.part(number) for number in range(graph.num_parts)]
    source, target = [], []
    for part in parts:
        nodes, pointer = part.read("nodes"), part.read("pointer")
        source.append(np.concatenate([nodes, part.read("halo")])[part.read("column")])
        target.append(np.repeat(nodes, np.diff(pointer)))
    # Stable: within a target the edges keep the order of their sources, as edges are numbered.
    order = np.argsort(np.concatenate(target), kind="stable")

    def of_edges(name: str) -> Array | None:
        present = name in parts[0]
        return np.concatenate([p.read(name) for p in parts])[order] if present else None

    def of_nodes(name: str) -> Array | None:
        if name not in parts[0]:
            return None
        rows = np.concatenate([p.read(name) for p in parts])
        out = np.empty_like(rows)
        out[np.concatenate([p.read("nodes") for p in parts])] = rows
        return out

    splits = {
        s: np.sort(np.concatenate([p.read("nodes")[p.read(s)] for p in parts]))
        for s in SPLITS
        if s in parts[0]
    }
    x = of_nodes("x")
    return Graph(
        np.concatenate(source)[order],
        np.concatenate(target)[order],
        graph.num_nodes,
        np.zeros((graph.num_nodes, 0)) if x is None else x,
        of_nodes("y"),
        splits,
        str(graph.path),
        of_edges("edge_weight"),
        of_edges("edge_attr"),
        graph.header["target"],
        of_edges("edge_type"),
    )
