import numpy as np
import pytest

from scitoolkit.graphs.graph import Graph


def make_graph(nodes=50, edges=220, features=6, classes=3, seed=0):
    """A directed graph with self edges, duplicates and two isolated nodes."""
    r = np.random.default_rng(seed)
    source, target = r.integers(nodes - 2, size=(2, edges))
    source[:3], target[:3] = 4, 4
    source[3:6], target[3:6] = 7, 9
    x = r.normal(size=(nodes, features)).astype(np.float32)
    labels = r.integers(classes, size=nodes)
    labels[:classes] = np.arange(classes)
    parts = {"train": np.arange(0, 20), "validation": np.arange(20, 30), "test": np.arange(30, 50)}
    return Graph(source, target, nodes, x, labels, parts)


@pytest.fixture
def graph():
    return make_graph()


@pytest.fixture
def larger_graph():
    """A graph with many more nodes than that of the check."""
    return make_graph(200, 2000)
