"""Partition of a graph's nodes over processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.graphs.refine import refine

Array = np.ndarray
METHODS = ("metis", "random", "block")


def partition(
    pattern: sp.csr_matrix,
    parts: int,
    method: str = "metis",
    *,
    seed: int = 0,
    refined: bool = True,
) -> Array:
    """Return the owner of each node, shape (N,), int64 in 0..parts-1.

    Args:
        pattern: adjacency matrix, shape (N, N); values are ignored.
        parts: number of processes.
        method: `metis` minimises the cut and balances nonzeros (with balanced node counts, one
            process gets almost twice the mean nonzeros of a power-law graph); `random`; or
            `block`, consecutive nodes with equal nonzeros.
        seed: seed of `random`.
        refined: after METIS, reduce the rows received by the busiest part (see `refine`).

    Raises:
        ConfigError: more parts than nodes, an unknown method, or pymetis is missing.

    Example:
        >>> chain = sp.diags([1.0, 1.0], [-1, 1], shape=(8, 8)).tocsr()
        >>> partition(chain, 2, "block").tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
    """
    nodes = pattern.shape[0]
    if not 1 <= parts <= nodes:
        raise ConfigError(
            f"{parts} processes for a graph of {nodes} nodes", allowed=f"1 to {nodes} processes"
        )
    if method not in METHODS:
        raise ConfigError(f"partition {method!r}", allowed=", ".join(METHODS))
    if parts == 1:
        return np.zeros(nodes, np.int64)
    if method == "random":
        owner = np.arange(nodes) % parts
        return np.random.default_rng(seed).permutation(owner)
    # Work of a product: a row costs its nonzeros, and one more for reading and writing it.
    weights = np.diff(pattern.indptr) + 1
    if method == "block":
        middle = np.cumsum(weights) - weights / 2
        return np.minimum((middle * parts / weights.sum()).astype(np.int64), parts - 1)
    owner = metis(pattern, parts, weights)
    return refine(pattern, owner, parts) if refined else owner


def check_owner(owner: Any, nodes: int, parts: int) -> Array:
    """Validate a user's partition vector; return it as int64.

    Raises:
        ConfigError: wrong shape or dtype, or an owner out of range.
    """
    owner = np.asarray(owner)
    if owner.shape != (nodes,):
        raise ConfigError(f"a partition vector of shape {owner.shape}", allowed=f"({nodes},)")
    if not np.issubdtype(owner.dtype, np.integer) or owner.min() < 0 or owner.max() >= parts:
        raise ConfigError(
            f"partition vector with owners {owner.min()} to {owner.max()}",
            allowed=f"whole numbers, 0 to {parts - 1}",
        )
    return owner.astype(np.int64)


def metis(
    pattern: sp.csr_matrix, parts: int, weights: Array, edge_weights: Array | None = None
) -> Array:
    """Return the owner of each node by METIS, balanced by the nodes' weights, shape (N,), int64.

    Args:
        pattern: adjacency matrix; symmetrised unless `edge_weights` are given.
        parts: number of parts.
        weights: node weights, shape (N,).
        edge_weights: weights of the nonzeros of a symmetric pattern without diagonal.

    Raises:
        ConfigError: pymetis is missing.
    """
    try:
        import pymetis
    except ImportError:
        raise missing_extra("pymetis", "graphs", "graph.partition=metis") from None
    both = pattern
    if edge_weights is None:
        # METIS takes undirected graphs without loops only. A loop is never cut, and a cut edge
        # costs the same in either direction.
        both = (pattern + pattern.T).tocsr()
        both.setdiag(0)
        both.eliminate_zeros()
    _, owner = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(both.indptr.astype(np.int64), both.indices.astype(np.int64)),
        vweights=weights.astype(np.int64),
        eweights=None if edge_weights is None else edge_weights.astype(np.int64),
        options=pymetis.Options(seed=0, ufactor=50),
    )
    return np.asarray(owner, dtype=np.int64)
