"""Generated graphs of the benchmark: a power-law graph and a mesh."""

from __future__ import annotations

import numpy as np

from scitoolkit.graphs.graph import Graph

RMAT = (0.57, 0.19, 0.19)  # Graph500's a, b, c


def rmat(scale: int, edges: int, width: int, classes: int, seed: int = 0) -> Graph:
    """An undirected R-MAT graph of 2^scale nodes (Chakrabarti et al. 2004), nodes shuffled."""
    r = np.random.default_rng(seed)
    a, b, c = RMAT
    source, target = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(scale):
        u = r.random(edges)
        source = 2 * source + (u > a + b)
        target = 2 * target + (((u > a) & (u <= a + b)) | (u > a + b + c))
    shuffle = r.permutation(1 << scale)
    return _graph(shuffle[source], shuffle[target], 1 << scale, width, classes, r)


def grid_mesh(side: int, width: int, classes: int, seed: int = 0) -> Graph:
    """A square of cells with diagonals, eight neighbours a node."""
    nodes = np.arange(side * side).reshape(side, side)
    pairs = [
        (nodes[:-1], nodes[1:]),
        (nodes[:, :-1], nodes[:, 1:]),
        (nodes[:-1, :-1], nodes[1:, 1:]),
        (nodes[:-1, 1:], nodes[1:, :-1]),
    ]
    source, target = (np.concatenate([p[i].ravel() for p in pairs]) for i in (0, 1))
    r = np.random.default_rng(seed)
    return _graph(source, target, side * side, width, classes, r)


def _graph(source, target, nodes, width, classes, r) -> Graph:
    """Both directions, once each, without loops; random features and classes."""
    kept = source != target
    pairs = np.concatenate(
        [source[kept] * nodes + target[kept], target[kept] * nodes + source[kept]]
    )
    pairs = np.unique(pairs)
    x = r.standard_normal((nodes, width), dtype=np.float32)
    labels = r.integers(classes, size=nodes)
    parts = {"train": np.arange(nodes)}
    return Graph(pairs // nodes, pairs % nodes, nodes, x, labels, parts)
