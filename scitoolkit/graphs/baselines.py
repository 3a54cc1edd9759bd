"""What a graph network has to beat."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.weighting import weighted_adjacency

Array = np.ndarray


def majority(graph: Graph) -> Array:
    """Return the most frequent training class for every node, shape (N,)."""
    counts = np.bincount(graph.known_labels[graph.parts["train"]], minlength=graph.num_classes)
    return np.full(graph.num_nodes, counts.argmax())


def label_propagation(graph: Graph, alpha: float = 0.9, iterations: int = 50) -> Array:
    """Return classes spread from training nodes over edges alone, shape (N,).

    F <- alpha S F + (1 - alpha) Y with S = D^-1/2 (A + I) D^-1/2 (Zhou et al. 2004, eq. 4).

    Args:
        graph: with labels and the part `train`.
        alpha: share of the neighbours' word.
        iterations: steps of spreading.
    """
    train = graph.parts["train"]
    known = np.zeros((graph.num_nodes, graph.num_classes), np.float32)
    known[train, graph.known_labels[train]] = 1.0
    spread, found = weighted_adjacency(graph, "gcn"), known.copy()
    for _ in range(iterations):
        found = alpha * (spread @ found) + (1 - alpha) * known
    return found.argmax(1)
