"""Edge weightings of sums over neighbours, with degrees of the whole graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.graphs.graph import Graph

WEIGHTINGS = ("sum", "mean", "gcn", "symmetric")


def check_weighting(weighting: str) -> None:
    """Check that a weighting is known.

    Raises:
        ConfigError: not one of `WEIGHTINGS`.
    """
    if weighting not in WEIGHTINGS:
        raise ConfigError(f"weighting {weighting!r}", allowed=", ".join(WEIGHTINGS))


def require_positive_degrees(graph: Graph) -> None:
    """Check that sums of edge weights, with a self-loop of 1, have the roots that `gcn` divides by.

    Raises:
        DataError: negative weights make the sum of a node negative.
    """
    if graph.edge_weight is None:
        return
    degree = np.bincount(graph.target, graph.edge_weight, graph.num_nodes)
    loops = graph.target[graph.source == graph.target]
    degree[np.setdiff1d(np.arange(graph.num_nodes), loops)] += 1
    if (degree < 0).any():
        node = int(degree.argmin())
        raise DataError(
            f"weights of the edges into node {node} and its self-loop sum to {degree[node]:.4g}",
            where=graph.where,
            allowed="sums of 0 and above for model.name=gcn, which divides by their roots",
            fix="weights of at least 0, or model.name=sage data.edge_inputs=ignore",
        )


def weighted_adjacency(
    graph: Graph, weighting: str, dtype: type[np.floating] = np.float32
) -> sp.csr_matrix:
    """Return A with A[target, source] = weight, shape (N, N), columns sorted.

    Duplicate edges are summed, as in torch-geometric.

    Args:
        graph: the whole graph.
        weighting: `sum` (1 per edge), `mean` (1 / in-degree of the target), `symmetric`, which is
            D^-1/2 A D^-1/2 with the in-degrees D, or `gcn`, which is D^-1/2 (A + I) D^-1/2 with one
            self-loop at every node (Kipf and Welling 2017, eq. 2).
        dtype: dtype of the weights.

    Raises:
        ConfigError: an unknown weighting.

    Example:
        >>> graph = Graph([0, 1], [1, 0], 2, np.zeros((2, 1)))
        >>> weighted_adjacency(graph, "gcn").toarray().round(2).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    check_weighting(weighting)
    source, target, size = graph.source, graph.target, graph.num_nodes
    weight = np.ones(len(source), np.float64)
    if weighting == "mean":
        weight /= graph.in_degrees()[target]
    if weighting == "gcn":
        # The self-loops of a node are replaced by exactly one of weight 1.
        others = source != target
        nodes = np.arange(size)
        source = np.concatenate([source[others], nodes])
        target = np.concatenate([target[others], nodes])
    if weighting in ("gcn", "symmetric"):
        degree = np.bincount(target, minlength=size).astype(np.float64)
        scale = np.divide(1.0, np.sqrt(degree), out=np.zeros(size), where=degree > 0)
        weight = scale[source] * scale[target]
    matrix = sp.coo_matrix((weight, (target, source)), shape=(size, size)).tocsr()
    matrix.sum_duplicates()
    return matrix.astype(dtype)
