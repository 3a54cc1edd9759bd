import numpy as np
import pytest
import scipy.sparse as sp

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs import sharing
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph, write_graph
from scitoolkit.graphs.grid import make_grid
from scitoolkit.graphs.node_graph import NodeGraph
from scitoolkit.graphs.partition import check_owner, partition
from scitoolkit.graphs.refine import received_rows, refine


def power_law(nodes=3000, edges=20_000, seed=0):
    r = np.random.default_rng(seed)
    source = (nodes * r.random(edges) ** 3).astype(int)
    target = (nodes * r.random(edges) ** 3).astype(int)
    a = sp.coo_matrix((np.ones(2 * edges), (np.r_[source, target], np.r_[target, source])))
    return (a.tocsr() + sp.eye(a.shape[0])).tocsr()


@pytest.mark.parametrize("method", ["metis", "random", "block"])
def test_parts_are_balanced_by_edges(method):
    if method == "metis":
        pytest.importorskip("pymetis")
    a = power_law()
    owner = partition(a, 4, method)
    nonzeros = np.bincount(owner, weights=np.diff(a.indptr), minlength=4)
    assert set(owner) == {0, 1, 2, 3}
    assert nonzeros.max() / nonzeros.mean() <= (1.1 if method != "random" else 1.5)
    assert np.array_equal(owner, partition(a, 4, method))


def test_refining_lessens_the_busiest_part_and_counts_right():
    a = power_law()
    start = partition(a, 4, "random")
    found = refine(a, start, 4)
    assert received_rows(a, found, 4).max() < 0.9 * received_rows(a, start, 4).max()
    nonzeros = np.bincount(found, weights=np.diff(a.indptr), minlength=4)
    assert nonzeros.max() / nonzeros.mean() < 1.2
    # Against the definition, row by row.
    dense = a.toarray() != 0
    for part in range(4):
        asked = dense[found == part].any(0) & (found != part)
        assert asked.sum() == received_rows(a, found, 4)[part]


def test_refining_never_makes_it_worse():
    side = 12
    nodes = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate(
        [
            np.stack([nodes[:-1], nodes[1:]]).reshape(2, -1),
            np.stack([nodes[:, :-1], nodes[:, 1:]]).reshape(2, -1),
        ],
        1,
    )
    a = sp.coo_matrix((np.ones(pairs.shape[1]), pairs), shape=(side**2, side**2)).tocsr()
    a = a + a.T
    start = (nodes // (side * side // 2)).ravel()
    found = refine(a, start, 2)
    assert received_rows(a, found, 2).max() <= received_rows(a, start, 2).max()


def test_bad_requests():
    a = sp.eye(3).tocsr()
    with pytest.raises(ConfigError, match="1 to 3 processes"):
        partition(a, 4)
    with pytest.raises(ConfigError, match="metis, random, block"):
        partition(a, 2, "best")
    with pytest.raises(ConfigError, match=r"shape \(2,\)"):
        check_owner([0, 1], 3, 2)
    with pytest.raises(ConfigError, match="0 to 1"):
        check_owner([0, 1, 2], 3, 2)
    with pytest.raises(ConfigError, match=r"2d on 6.*1\.5d"):
        make_grid("2d", 6)
    with pytest.raises(ConfigError, match="cubic"):
        make_grid("3d", 4)
    with pytest.raises(ConfigError, match="divisors of 6: 1, 2, 3, 6"):
        make_grid("1.5d", 6, 4)
    with pytest.raises(ConfigError, match=r"1d, 1\.5d, 2d, 3d"):
        make_grid("4d", 4)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_random_partition_depends_on_the_seed_of_the_job(tmp_path, monkeypatch, seed):
    graph = Graph(
        np.arange(40),
        np.roll(np.arange(40), 1),
        40,
        np.zeros((40, 2), np.float32),
        np.arange(40) % 2,
        {"train": np.arange(40)},
    )
    write_graph(graph, tmp_path / "graph.npz")
    config = GraphConfig.model_validate(
        {
            "workflow": "random",
            "seed": seed,
            "data": {"path": tmp_path / "graph.npz"},
            "model": {"name": "gcn"},
            "graph": {"partition": "random"},
        }
    )
    used = []
    monkeypatch.setattr(
        sharing, "partition", lambda *given, seed, **_: used.append(seed) or np.zeros(40, int)
    )
    assert NodeGraph(config, config.data.path).own.num_edges == 40
    assert used == [seed]
    assert not np.array_equal(
        *(partition(sp.eye(40, format="csr"), 2, "random", seed=s) for s in (3, 4))
    )
