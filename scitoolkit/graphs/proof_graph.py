"""The small graph of the proof, its partition and its grid."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import ProcessGrid

NODES, EDGES = 41, 160


def small_grid(grid: ProcessGrid) -> ProcessGrid:
    """Return a smaller grid of the same kind, for the simulation."""
    rows = grid.rows if grid.size <= 4 else min(grid.rows, 3 if grid.size == grid.rows else 2)
    return ProcessGrid(rows, min(grid.columns, 3), min(grid.slices, 2), grid.sparse)


def unequal_owners(size: int) -> np.ndarray:
    """Return a random partition in which the size of part r is proportional to r + 1."""
    share = np.arange(1, size + 1) / (size * (size + 1) / 2)
    owner = np.searchsorted(np.cumsum(share), (np.arange(NODES) + 0.5) / NODES)
    return np.random.default_rng(3).permutation(np.minimum(owner, size - 1))


def proof_graph(inputs: GraphInputs, features: np.ndarray | None = None) -> Graph:
    """Return the small graph of the check, with inputs of the given shapes.

    Args:
        inputs: shapes of node and edge inputs.
        features: features of its nodes, shape (NODES, F); None for normal random numbers.
    """
    r = np.random.default_rng(1)
    # The last node is isolated, one node has two self-loops, one edge is duplicated.
    source, target = r.integers(NODES - 1, size=(2, EDGES))
    source[:2], target[:2] = 5, 5
    source[2:4], target[2:4] = 7, 9
    order = np.lexsort((source, target))
    graph = Graph(source[order], target[order], NODES, np.zeros((NODES, 1), np.float32))
    graph.features = r.normal(size=(NODES, inputs.num_features))
    if features is not None:
        graph.features = features
    if inputs.edge_weight:
        graph.edge_weight = r.uniform(0.5, 1.5, EDGES)
    if inputs.edge_attr is not None:
        graph.edge_attr = r.normal(size=(EDGES, *inputs.edge_attr))
    if inputs.edge_types:
        graph.edge_type = r.permutation(np.arange(EDGES) % inputs.edge_types)
        graph.edge_type[-1] = inputs.edge_types - 1
    if inputs.node_types:
        graph.node_type = r.permutation(np.arange(NODES) % inputs.node_types)
        graph.node_type[-1] = inputs.node_types - 1
        graph.types_in_features = inputs.types_in_features
    if inputs.dimensions:
        graph.pos = r.normal(size=(NODES, inputs.dimensions))
    return graph
