"""Baselines: training mean, label propagation, and a linear model of a graph's composition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.graph_set import StackedGraphs
from scitoolkit.graphs.graph_set_inputs import Columns
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
    labels = np.zeros((graph.num_nodes, of_train.shape[1] + 1))
    labels[train, :-1], labels[train, -1] = of_train, 1.0
    spread, spread_labels = weighted_adjacency(graph, "gcn"), labels.copy()
    for _ in range(iterations):
        spread_labels = alpha * (spread @ spread_labels) + (1 - alpha) * labels
    reached = spread_labels[:, -1:] > 0
    means = spread_labels[:, :-1] / np.where(reached, spread_labels[:, -1:], 1)
    return graph.learned.decided(np.where(reached, means, of_train.mean(0)))


MAX_COMPOSITION = 1000
"""Columns above which the linear model of the composition is left out."""


def composition(graphs: StackedGraphs, columns: Columns, tables: Sequence[Sequence[int]]) -> Array:
    """Return sums and means over the nodes of each graph of numbers and categories, and sizes.

    Args:
        graphs: the graphs.
        columns: inputs of their nodes.
        tables: categories of each column in the training.

    Returns:
        shape (G, columns), float64.
    """
    places, _ = columns.encoded(tables)
    blocks = [columns.numbers.astype(np.float64)]
    blocks += [np.eye(len(t) + 1)[places[:, i]] for i, t in enumerate(tables)]
    # `reduceat` needs non-empty ranges; every graph has a node.
    sums = np.add.reduceat(np.concatenate(blocks, axis=1), graphs.first_node[:-1])
    sizes = np.stack([np.ones(len(graphs)), graphs.num_nodes, graphs.num_edges], axis=1)
    return np.concatenate([sizes, sums, sums / graphs.num_nodes[:, None]], axis=1)


def fitted_composition(inputs: Array, outputs: Array) -> Array:
    """Return the coefficients of a ridge regression, shape (columns of inputs, columns of outputs).

    Args:
        inputs: shape (G, columns), from `composition`.
        outputs: shape (G, columns).
    """
    scale = np.abs(inputs).max(0)
    scaled = inputs / np.where(scale == 0, 1, scale)
    # The penalty keeps columns that depend on each other, such as sums and means, from diverging.
    normal = scaled.T @ scaled + 1e-6 * len(inputs) * np.eye(inputs.shape[1])
    return np.linalg.solve(normal, scaled.T @ outputs) / np.where(scale == 0, 1, scale)[:, None]
