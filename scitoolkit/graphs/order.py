"""The order in which a process keeps its nodes: sums over neighbours find them in cache."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph

Array = np.ndarray
HUB_NODES, HUB_ENDS = 0.1, 0.3  # the busiest tenth of the nodes holds this share of the edges' ends


def cache_order(graph: Graph) -> Array | None:
    """Return the nodes by falling degree where few nodes hold many edges, else nothing to change.

    In a power-law graph the rows that most sums read then lie side by side: they stay in cache and
    share pages of memory. A mesh, whose degrees are nearly equal, keeps its numbering, which mostly
    has neighbours near each other.

    Returns:
        a permutation of the node numbers, shape (N,), int64, equal degrees in ascending number;
        None where the numbering stays.

    Example:
        >>> star = Graph([0, 1, 2, 3], [3, 3, 3, 0], 4, np.zeros((4, 1)))
        >>> cache_order(star).tolist()
        [3, 0, 1, 2]
    """
    degree = np.bincount(graph.source, minlength=graph.num_nodes) + graph.in_degrees()
    return np.argsort(-degree, kind="stable") if has_hubs(degree) else None


def has_hubs(degree: Array) -> bool:
    """Return whether few nodes hold many of the edges' ends, by the nodes' degrees."""
    if not len(degree):
        return False
    busiest = np.partition(degree, len(degree) - _few(degree))[len(degree) - _few(degree) :]
    return bool(busiest.sum() >= HUB_ENDS * degree.sum())


def _few(degree: Array) -> int:
    return max(1, int(HUB_NODES * len(degree)))
