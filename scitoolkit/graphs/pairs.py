"""NodePairs of nodes with and without an edge, and the ranks of edges among pairs without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.graph import Graph

Array = np.ndarray
_ROUNDS = 100


@dataclass(frozen=True)
class NodePairs:
    """Distinct pairs of nodes of a graph that have an edge, without self-loops.

    Attributes:
        pairs: sender and receiver, shape (P, 2), int64; of an undirected graph each pair once.
        of_edge: pair of each edge of the graph, shape (E,); -1 for self-loops.
        directed: whether some pair has an edge in one direction only.
        num_nodes: number of nodes.
        where: source of the graph, for messages.
    """

    pairs: Array
    of_edge: Array
    directed: bool
    num_nodes: int
    where: str

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs)

    def codes(self, rows: Array) -> Array:
        """Return sorted numbers of some pairs, in both directions if the graph is undirected."""
        a, b = self.pairs[rows].T
        forward = a * self.num_nodes + b
        both = forward if self.directed else np.concatenate([forward, b * self.num_nodes + a])
        return np.unique(both)

    def without_edge(self, senders: Array, edges: Array, count: int, key: tuple[int, ...]) -> Array:
        """Return receivers to which the senders have no edge, shape (len(senders), count).

        Args:
            senders: shape (n,).
            edges: numbers of the pairs that count as edges.
            count: receivers for each sender, which may repeat.
            key: seed of the draw.

        Raises:
            DataError: a sender has an edge to almost every node.
        """
        codes = self.codes(edges)
        draws = np.random.default_rng(key)
        sender = np.repeat(senders, count)
        # Rejection: graphs are sparse, so that few draws are edges and only these are drawn again.
        receiver = draws.integers(self.num_nodes, size=len(sender))
        for _ in range(_ROUNDS):
            number = sender * self.num_nodes + receiver
            place = np.searchsorted(codes, number).clip(max=max(len(codes) - 1, 0))
            taken = sender == receiver
            if len(codes):
                taken |= codes[place] == number
            if not taken.any():
                return receiver.reshape(len(senders), count)
            receiver[taken] = draws.integers(self.num_nodes, size=int(taken.sum()))
        raise DataError(
            f"node {sender[taken][0]} has edges to almost all nodes, so that no pair without an "
            "edge was drawn",
            where=self.where,
        )


def pairs_of(graph: Graph) -> NodePairs:
    """Return the pairs of a graph in the order of their nodes.

    Example:
        >>> graph = Graph([0, 1, 2, 2], [1, 0, 0, 2], 3, np.zeros((3, 1)))
        >>> pairs_of(graph).pairs.tolist(), pairs_of(graph).directed
        ([[0, 1], [1, 0], [2, 0]], True)
    """
    n, a, b = graph.num_nodes, graph.source, graph.target
    apart = a != b
    code, reverse = a * n + b, b * n + a
    # Undirected if each edge has its reverse. The pair a < b then stands for both, or a hidden edge
    # would be read from its other direction.
    directed = not np.isin(code[apart], reverse[apart]).all()
    number = code if directed else np.minimum(code, reverse)
    distinct, place = np.unique(number[apart], return_inverse=True)
    of_edge = np.full(len(a), -1)
    of_edge[apart] = place.reshape(-1)
    pairs = np.stack([distinct // n, distinct % n], axis=1)
    return NodePairs(pairs, of_edge, directed, n, graph.where or "graph")


def common_neighbours(graph: Graph, pairs: Array) -> Array:
    """Return the index of Adamic and Adar (2003) of each pair, shape (n,).

    It is the sum of 1 / log(degree) over the nodes to which both have an edge.
    """
    one = np.ones(graph.num_edges)
    adjacency = sp.csr_matrix((one, (graph.source, graph.target)), (graph.num_nodes,) * 2)
    adjacency = ((adjacency + adjacency.T) > 0).astype(np.float64)
    degree = np.asarray(adjacency.sum(0)).ravel()
    # A common neighbour has a degree of 2 at least; nodes of degree 1, whose logarithm is 0, are
    # never one.
    weighted = adjacency.multiply(1 / np.log(np.maximum(degree, 2))).tocsr()
    products = weighted[pairs[:, 0]].multiply(adjacency[pairs[:, 1]])
    return np.asarray(products.sum(1)).ravel()


def ranking(positive: Array, negative: Array) -> dict[str, float]:
    """Return AUC, mean reciprocal rank and shares of edges among the first.

    Equal scores count as half a place, so that a constant score has an AUC of 1/2.

    Args:
        positive: scores of edges, shape (n,).
        negative: scores of pairs without an edge that share the sender, shape (n, K).

    Example:
        >>> ranking(np.array([1.0, 0.0]), np.array([[0.0, 0.0], [0.0, 1.0]]))["auc"]
        0.625
    """
    above = (negative > positive[:, None]).sum(1)
    equal = (negative == positive[:, None]).sum(1)
    rank = 1 + above + equal / 2
    auc = 1 - (above + equal / 2) / negative.shape[1]
    figures = {"auc": float(auc.mean()), "mrr": float((1 / rank).mean())}
    return figures | {f"hits_{k}": float((rank <= k).mean()) for k in (1, 10)}
