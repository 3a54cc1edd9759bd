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
    busiest = np.argsort(-degree, kind="stable")
    hubs = degree[busiest[: max(1, int(HUB_NODES * graph.num_nodes))]].sum()
    return busiest if hubs >= HUB_ENDS * degree.sum() else None
