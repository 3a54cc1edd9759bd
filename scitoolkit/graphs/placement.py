"""Streaming partitioners for graphs that do not fit in memory.

Power-law graphs are partitioned greedily in one pass. Meshes are first clustered (size-constrained
label propagation, Meyerhenke, Sanders and Schulz 2014); METIS partitions the contracted graph, and
further label-propagation passes refine the boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from logging import Logger
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.log import get_logger
from scitoolkit.graphs.order import has_hubs
from scitoolkit.graphs.partition import metis

Array = np.ndarray
log: Logger = get_logger(__name__)

BYTES_PER_NEIGHBOUR, BYTES_PER_NODE = 64, 120  # memory of METIS, measured

# Symbols: w(v) weight of a node, L(p) load of a part, P number of parts, W sum of w.
#
# greedy    LDG (Stanton and Kliot 2012): argmax_p |N(v) in p| (1 - L(p) / limit), one pass
# clusters  v joins the label of most neighbours whose load stays below the limit
#
# Clusters are small against a part (W / (2000 P)), so that METIS can still balance them, and at
# least 20 heaviest nodes large, so that the pass can merge anything.

CLUSTERS_PER_PART = 2000
CLUSTER_PASSES, BOUNDARY_PASSES = 3, 3
SLACK = 1.05


class NodeRows(NamedTuple):
    """CSR rows of the nodes from `begin` on, with their neighbours along in- and out-edges."""

    begin: int
    pointer: Array
    column: Array


METHODS = ("auto", "metis", "clusters", "greedy", "block")
Neighbours = Callable[[], Iterator[NodeRows]]  # one pass over all rows


def blocks(weights: Array, parts: int) -> Array:
    """Partition into consecutive nodes of equal total weight; return the owner of each, (N,).

    Example:
        >>> blocks(np.array([1, 1, 1, 3]), 2).tolist()
        [0, 0, 0, 1]
    """
    # A node belongs to the part in which the middle of its weight lies: no part differs from W / P
    # by more than the weight of the nodes at its ends.
    middle = np.cumsum(weights, dtype=np.float64) - weights / 2
    return np.minimum(middle * parts / max(1, weights.sum()), parts - 1).astype(np.int32)


def choose_method(degrees: Array, memory: int) -> str:
    """Return the method for a graph: METIS if it fits in memory, else a streaming method.

    Args:
        degrees: in- plus out-degree of each node, shape (N,).
        memory: memory limit in bytes.

    Example:
        >>> choose_method(np.full(10**6, 6), 2**30), choose_method(np.full(10**6, 6), 2**28)
        ('metis', 'clusters')
    """
    neighbours = int(degrees.sum(dtype=np.int64))
    if neighbours * BYTES_PER_NEIGHBOUR + len(degrees) * BYTES_PER_NODE <= memory:
        return "metis"
    return "greedy" if has_hubs(degrees) else "clusters"


def place(
    neighbours: Neighbours, degrees: Array, parts: int, method: str, node_weight: int = 1
) -> Array:
    """Return the owner of each node, shape (N,), int32.

    Args:
        neighbours: returns an iterator over the rows of all nodes.
        degrees: in- plus out-degree of each node, shape (N,).
        parts: number of parts, balanced by the sum of degree and `node_weight`.
        method: `metis`, `clusters`, `greedy` or `block`.
        node_weight: ends of edges that the rows of a node count for.
    """
    weights = (degrees + node_weight).astype(np.int32)
    log.info("placing %d nodes in %d parts: %s", len(degrees), parts, method)
    if parts > 1 and method in _PASSES:
        return _PASSES[method](neighbours, weights, parts)
    return blocks(weights, parts)


def _whole(neighbours: Neighbours, weights: Array, parts: int) -> Array:
    rows = list(neighbours())
    lengths = np.concatenate([np.diff(block.pointer) for block in rows])
    columns = np.concatenate([block.column for block in rows])
    pointer = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_matrix((np.ones(len(columns), bool), columns, pointer))
    matrix.resize(len(weights), len(weights))
    return metis(matrix, parts, weights).astype(np.int32)


def _greedy(neighbours: Neighbours, weights: Array, parts: int) -> Array:
    owner, load = np.full(len(weights), -1, np.int32), np.zeros(parts, np.int64)
    near = np.zeros(parts, np.int64)
    limit = int(SLACK * weights.sum(dtype=np.int64) / parts) + 1
    for rows in neighbours():
        _run("place_greedily", rows, weights, owner, load, parts, limit, near)
    return owner


def _clustered(neighbours: Neighbours, weights: Array, parts: int) -> Array:
    total = weights.sum(dtype=np.int64)
    # Every node starts as its own cluster.
    label, load = np.arange(len(weights), dtype=np.int32), weights.astype(np.int64)
    limit = max(int(total / (parts * CLUSTERS_PER_PART)), 20 * int(weights.max()))
    for _ in range(CLUSTER_PASSES):
        _majority(neighbours, weights, label, load, limit)
    cluster = np.unique(label, return_inverse=True)[1].astype(np.int32)
    small = _contracted(neighbours, cluster)
    sizes = np.bincount(cluster, weights=weights).astype(np.int64)
    log.info("%d clusters, %d edges between them", small.shape[0], small.nnz // 2)
    owner = metis(small, parts, sizes, small.data)[cluster].astype(np.int32)
    load = np.bincount(owner, weights=weights, minlength=parts).astype(np.int64)
    # The load that METIS left is allowed, else no node could move into the heaviest parts at all.
    limit = max(int(SLACK * total / parts), int(load.max()))
    for _ in range(BOUNDARY_PASSES):
        _majority(neighbours, weights, owner, load, limit)
    return owner


_PASSES = {"metis": _whole, "greedy": _greedy, "clusters": _clustered}


def _majority(
    neighbours: Neighbours, weights: Array, label: Array, load: Array, limit: int
) -> None:
    # Scratch of the C function: edges of the present node to each label. It resets only the entries
    # in `seen`, because clearing all of them would cost O(labels) a node.
    count = np.zeros(len(load), np.int32)
    for rows in neighbours():
        seen = np.empty(int(np.diff(rows.pointer).max(initial=0)) + 1, np.int32)
        _run("take_majority", rows, weights, label, load, limit, count, seen)


def _contracted(neighbours: Neighbours, cluster: Array) -> sp.csr_matrix:
    """Return the contracted graph, with numbers of edges between clusters as values."""
    size = int(cluster.max()) + 1
    total = sp.csr_matrix((size, size), dtype=np.int64)
    for rows in neighbours():
        nodes = np.repeat(np.arange(len(rows.pointer) - 1), np.diff(rows.pointer))
        a, b = cluster[rows.begin + nodes], cluster[rows.column]
        between = a != b
        ones = np.ones(int(between.sum()), np.int64)
        total = total + sp.coo_matrix((ones, (a[between], b[between])), shape=total.shape).tocsr()
    return total


def _run(name: str, rows: NodeRows, *arguments: Array | int) -> None:
    """Call a function of `placement.c` on some rows."""
    call_c(name, len(rows.pointer) - 1, rows.begin, rows.pointer, rows.column, *arguments)


def group_pairs(pairs: Array, begin: int, counts: Array) -> NodeRows:
    """Return pairs (node, neighbour) as CSR rows.

    Args:
        pairs: shape (count, 2), int32; node numbers start at `begin`.
        begin: the first node.
        counts: number of pairs of each node, shape (rows,).
    """
    pointer = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointer[1:])
    column = np.empty(len(pairs), np.int32)
    call_c("group_pairs", len(pairs), pairs, begin, pointer[:-1].copy(), column)
    return NodeRows(begin, pointer, column)


def call_c(name: str, *arguments: Array | int) -> None:
    """Call a function of `placement.c`, with arrays as pointers."""
    import torch

    from scitoolkit.ops.codegen import call, load_library
    from scitoolkit.ops.codegen.compile import read

    library = load_library(read(__file__, "placement.c"))
    passed = [a if isinstance(a, int) else torch.from_numpy(a) for a in arguments]
    call(getattr(library, name), *passed)
