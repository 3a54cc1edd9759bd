"""What a graph network has to beat."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.weighting import weighted_adjacency

Array = np.ndarray


def majority(graph: Graph) -> Array:
    """Return the mean of training nodes for every node: as a class, the most frequent one."""
    mean = _known(graph).mean(0, keepdims=True)
    return np.repeat(graph.learned.decided(mean), graph.num_nodes, axis=0)


def _known(graph: Graph) -> Array:
    return graph.learned.columns(graph.known_labels[graph.parts["train"]], graph.num_classes)


def label_propagation(graph: Graph, alpha: float = 0.9, iterations: int = 50) -> Array:
    """Return classes, labels or values spread from training nodes over edges alone.

    F <- alpha S F + (1 - alpha) Y with S = D^-1/2 (A + I) D^-1/2 (Zhou et al. 2004, eq. 4), for Y
    and for where it is known; the ratio of both is the mean of what reaches a node. A node that
    nothing reaches gets the mean of training nodes.

    Args:
        graph: with labels and the part `train`.
        alpha: share of the neighbours' word.
        iterations: steps of spreading.
    """
    train = graph.parts["train"]
    of_train = _known(graph)
    known = np.zeros((graph.num_nodes, of_train.shape[1] + 1))
    known[train, :-1], known[train, -1] = of_train, 1.0
    spread, found = weighted_adjacency(graph, "gcn"), known.copy()
    for _ in range(iterations):
        found = alpha * (spread @ found) + (1 - alpha) * known
    reached = found[:, -1:] > 0
    means = found[:, :-1] / np.where(reached, found[:, -1:], 1)
    return graph.learned.decided(np.where(reached, means, of_train.mean(0)))
