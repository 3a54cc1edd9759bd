"""Out-of-core inference on a partitioned graph, layer by layer and part by part.

Memory holds one part at a time (its edges, and the rows of its nodes and halo before and after a
layer) and two counts (8 bytes) for every node. Rows of layers are stored on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.graphs.fast_layers import fast_forward, passes_once
from scitoolkit.graphs.graph import GraphInputs
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.networks import NodeModel
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partitioned import PartFiles, PartitionedGraph
from scitoolkit.graphs.product import multiply
from scitoolkit.graphs.proof import prove
from scitoolkit.graphs.proof_graph import proof_graph
from scitoolkit.graphs.stored_part import ScaledPart
from scitoolkit.io.numpy_file import save_array
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.training.ranks.communicator import RowExchange, SingleProcess

Array = np.ndarray
Rows = Callable[[int, Array | slice], Array]  # (part, local indices) -> rows


class _Extended(ScaledPart):
    """Local nodes and halo of a part as the nodes of one process; sums only for local nodes."""

    def __init__(self, files: PartFiles, inputs: GraphInputs, degree: Array, loops: Array) -> None:
        nodes, self._own = len(degree), int(files.record["nodes"])
        pointer, self._column = files.read("pointer"), files.read("column")
        matrix = SparseMatrix.from_csr(pointer, self._column, None, nodes)

        def sums(x: Tensor) -> Tensor:
            out = x.new_zeros(nodes, x.shape[1])
            out[: self._own] = multiply(matrix, x.contiguous())
            return out

        super().__init__(sums, torch.from_numpy(degree), torch.from_numpy(loops))
        self._rows = matrix.rows
        self.nodes, self.num_nodes, self.inputs = torch.arange(nodes), nodes, inputs
        self.grid, self.ranks = ProcessGrid(1), SingleProcess()

    @property
    def edges(self) -> Tensor:
        """Edges into local nodes."""
        return torch.stack([torch.from_numpy(self._column).long(), self._rows])

    @property
    def num_edges(self) -> int:
        """Edges into local nodes."""
        return len(self._column)

    @property
    def edge_numbers(self) -> Tensor:
        """Local number of each edge plus the number of nodes."""
        return self.num_nodes + torch.arange(self.num_edges)

    @functools.cached_property
    def halo(self) -> RowExchange:
        """Empty exchange, because halo rows are local rows here."""
        return RowExchange(torch.zeros(0, dtype=torch.int64), (0,), (0,))

    def edge_input(self, name: str) -> Array:
        """Raise, because layers with edge inputs are not supported."""
        raise NotImplementedError(name)


class _Neighbourhood:
    """Access to the rows that a layer of a part reads from all parts, and degree counts."""

    def __init__(self, graph: PartitionedGraph) -> None:
        self.parts = [graph.part(p) for p in range(graph.num_parts)]
        self._counts = [_counts(files) for files in self.parts]

    def rows(self, number: int, rows: Rows) -> Array:
        """Return the rows of a part's local nodes, then of its halo, from `rows` of each part."""
        files = self.parts[number]
        halo, begin = files.read("halo"), 0
        blocks = [rows(number, slice(None))]
        for other, count in enumerate(files.record["received"]):
            if count:
                # The halo is sorted by owner, and the nodes of a part ascend: a search finds their
                # places without an array over all nodes.
                places = np.searchsorted(self.parts[other].map("nodes"), halo[begin:][:count])
                blocks.append(rows(other, places))
            begin += count
        return np.concatenate(blocks)

    def extended(self, number: int, inputs: GraphInputs) -> _Extended:
        """Return a part extended by its halo."""
        counts = self.rows(number, lambda p, places: self._counts[p][places])
        return _Extended(self.parts[number], inputs, *counts.astype(np.int64).T)


def _counts(files: PartFiles) -> Array:
    """Return in-degree and self-loops of each local node, shape (n_own, 2), int32."""
    degree = np.diff(files.read("pointer"))
    column, target = files.map("column"), np.repeat(np.arange(len(degree)), degree)
    loops = np.bincount(target[column == target], minlength=len(degree))
    return np.stack([degree, loops], 1).astype(np.int32)


def why_not(model: nn.Module, inputs: GraphInputs) -> str:
    """Return why a model cannot run out of core; an empty string if it can."""
    if not isinstance(model, NodeModel):
        return f"{type(model).__name__} is not a sequence of layers"
    if inputs.of_edges:
        return f"the layers read {' and '.join(inputs.of_edges)}"
    layers = model.layers.named_children()
    fast: tuple[str, ...] = ()
    # A layer of several rounds, such as APPNP, reads rows beyond the halo.
    if all(passes_once(layer) for layer in model.layers):
        small = proof_graph(inputs)
        owner = np.zeros(small.num_nodes, np.int64)
        fast = prove(model, GraphPart(small, owner, ProcessGrid(1), SingleProcess())).fast
    others = [type(layer).__name__ for i, layer in layers if f"layers.{i}" not in fast]
    return f"{others[0]} is not a single sparse product" if others else ""


@torch.no_grad()
def infer(
    model: Any,
    graph: PartitionedGraph,
    inputs: GraphInputs,
    scratch: Path,
    prepare: Callable[[Array], Tensor],
) -> Array:
    """Return a model's output for every node, by node number, shape (N, outputs), float32.

    Args:
        model: a `NodeModel` in evaluation mode for which `why_not` returns an empty string.
        graph: a partitioned graph with features.
        inputs: shapes of node and edge inputs.
        scratch: folder for the rows of up to two layers.
        prepare: normalises features, shape (n, F).
    """
    near = _Neighbourhood(graph)

    def features(number: int, places: Array | slice) -> Array:
        return prepare(np.array(near.parts[number].map("x")[places])).numpy()

    rows: Rows = features
    for depth, layer in enumerate(model.layers):
        form, last = fast_forward(layer), depth + 1 == len(model.layers)
        assert form is not None
        for number, files in enumerate(near.parts):
            part = near.extended(number, inputs)
            x = torch.from_numpy(near.rows(number, rows))
            out = form(layer, part, x)[: files.record["nodes"]]
            out = out if last else model.activation(out)
            save_array(_rows_file(scratch, depth, number), out.numpy())
        # Only now: parts read their halo from the files of all others.
        for number in range(len(near.parts)):
            _rows_file(scratch, depth - 1, number).unlink(missing_ok=True)
        rows = functools.partial(_stored_rows, scratch, depth)
    return _in_order(graph, near.parts, rows)


def _rows_file(scratch: Path, depth: int, number: int) -> Path:
    return scratch / f"layer-{depth}-{number:04d}.npy"


def _stored_rows(scratch: Path, depth: int, number: int, places: Array | slice) -> Array:
    return np.load(_rows_file(scratch, depth, number), mmap_mode="r")[places]


def _in_order(graph: PartitionedGraph, parts: list[PartFiles], rows: Rows) -> Array:
    out = np.empty((graph.num_nodes, rows(0, slice(0, 1)).shape[1]), np.float32)
    for number, files in enumerate(parts):
        out[files.read("nodes")] = rows(number, slice(None))
    return out
