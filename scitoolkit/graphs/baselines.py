"""Baselines of node prediction: training mean and label propagation."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.weighting import weighted_adjacency

Array = np.ndarray


def majority(graph: Graph) -> Array:
    """Return the training mean for every node; for classes, the most frequent class."""
    mean = _known(graph).mean(0, keepdims=True)
    return np.repeat(graph.learned.decided(mean), graph.num_nodes, axis=0)


def _known(graph: Graph) -> Array:
    return graph.learned.columns(graph.known_labels[graph.parts["train"]], graph.num_classes)


def label_propagation(graph: Graph, alpha: float = 0.9, iterations: int = 50) -> Array:
    """Return classes, labels or values propagated from training nodes along edges.

    F <- alpha S F + (1 - alpha) Y with S = D^-1/2 (A + I) D^-1/2 (Zhou et al. 2004, eq. 4), for Y
    and for its mask; the ratio of both is the weighted mean of the labels that reach a node. Nodes
    that are not reached get the mean of the training nodes.

    Args:
        graph: a graph with labels and a part `train`.
        alpha: weight of the neighbours.
        iterations: number of propagation steps.
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
