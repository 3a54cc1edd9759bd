"""Link prediction: pairs without an edge, hidden edges, ranks, and several processes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
import yaml
from command_line import run_process

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.starter import DataToStart
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.graphs.link_job import LinkJob
from scitoolkit.graphs.link_stages import LinkStages, inputs_of
from scitoolkit.graphs.pairs import common_neighbours, pairs_of, ranking
from scitoolkit.graphs.starter import starter
from scitoolkit.testing import JobContract
from scitoolkit.testing.job import scitoolkit

pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric.data import Data, HeteroData


def blocks(nodes=40, groups=4, seed=0, directed=False):
    """Return a graph whose nodes mostly have edges within their group, which x does not tell."""
    r = np.random.default_rng(seed)
    group = np.arange(nodes) % groups
    chance = np.where(group[:, None] == group, 0.6, 0.03)
    matrix = r.random((nodes, nodes)) < chance
    matrix = matrix if directed else np.triu(matrix, 1) | np.triu(matrix, 1).T
    np.fill_diagonal(matrix, False)
    pair = np.stack(np.nonzero(matrix))
    return {"x": np.eye(nodes, dtype=np.float32), "edge_index": pair}


@pytest.mark.parametrize("directed", [False, True])
def test_pairs_without_an_edge(directed):
    arrays = blocks(directed=directed)
    graph = Graph(*arrays["edge_index"], 40, arrays["x"])
    pairs = pairs_of(graph)
    assert pairs.directed == directed
    assert len(pairs) == graph.num_edges // (1 if directed else 2)
    assert np.array_equal(
        np.unique(pairs.pairs[pairs.of_edge], axis=0), np.unique(pairs.pairs, axis=0)
    )
    edges = set(zip(*arrays["edge_index"].tolist(), strict=True))
    senders = pairs.pairs[:, 0]
    drawn = pairs.without_edge(senders, np.arange(len(pairs)), 7, (3, 1))
    assert drawn.shape == (len(pairs), 7)
    for sender, receivers in zip(senders.tolist(), drawn.tolist(), strict=True):
        assert all((sender, r) not in edges and r != sender for r in receivers)
    again = pairs.without_edge(senders, np.arange(len(pairs)), 7, (3, 1))
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, pairs.without_edge(senders, np.arange(len(pairs)), 7, (3, 2)))


def test_a_node_with_edges_to_all_nodes_is_told():
    whole = np.stack(np.nonzero(~np.eye(5, dtype=bool)))
    pairs = pairs_of(Graph(*whole, 5, np.zeros((5, 1))))
    with pytest.raises(DataError, match="edges to almost all nodes"):
        pairs.without_edge(np.array([2]), np.arange(len(pairs)), 1, (0,))


def test_no_hidden_edge_sends_messages_in_either_direction(tmp_path):
    np.savez(tmp_path / "a.npz", **blocks())
    config, stages = LinkConfig(data={"path": tmp_path / "a.npz"}), LinkStages()
    data = stages.open(config, config.data.path)
    parts = stages.split(config, data)
    told = inputs_of(data, data.telling(parts["train"]))["edge_index"]
    told = {frozenset(pair) for pair in told.T.tolist()}
    for part in ("validation", "test"):
        hidden = {frozenset(pair) for pair in data.pairs.pairs[parts[part]].tolist()}
        assert hidden
        assert not hidden & told
    assert len(told) == len(parts["train"])


def test_ranks_of_edges():
    negative = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    figures = ranking(np.array([1.0, 1.0]), negative)
    assert figures["mrr"] == pytest.approx((1 / 3 + 1 / 1.5) / 2)
    assert figures["auc"] == pytest.approx((1 / 3 + 2.5 / 3) / 2)
    assert figures["hits_1"] == 0
    constant = ranking(np.zeros(50), np.zeros((50, 9)))
    assert constant["auc"] == 0.5
    assert constant["mrr"] < 0.2


def test_common_neighbours_by_hand():
    graph = Graph([0, 2, 1, 3], [2, 1, 3, 0], 4, np.zeros((4, 1)))
    index = common_neighbours(graph, np.array([[0, 1], [0, 2]]))
    assert index[0] == pytest.approx(2 / np.log(2))
    assert index[1] == 0


class TestLinks(JobContract):
    domain = "graph_links"
    several_processes = True

    def case(self, folder):
        pair = np.array([[0, 1, 2], [4, 7, 6]])
        np.savez(folder / "a.npz", **blocks(), edge_label_index=pair)
        return {
            "data": {"path": str(folder / "a.npz")},
            "model": {"name": "gcn", "hidden": 8, "dropout": 0.1},
            "members": 2,
            "training": {"epochs": 2, "batch_size": 32},
        }

    def source(self, folder):
        return folder / "a.npz"


def started(folder, arrays, *settings):
    """Train what `init` writes for a Data without labels; return the run directory."""
    data = {name: torch.from_numpy(array) for name, array in arrays.items()}
    torch.save(Data(**data), folder / "a.pt")
    text = starter(DataToStart([str(folder / "a.pt")], [str(folder / "a.pt")]))
    (folder / "case.yaml").write_text(text + f"run: {{root: {folder}/runs}}\n")
    done = scitoolkit("train", folder / "case.yaml", *settings, "--json")
    assert done.code == 0, done.err
    return Path(json.loads(done.out)["run"])


@pytest.mark.parametrize("directed", [False, True])
def test_hidden_edges_are_told_from_others(directed, tmp_path):
    arrays = blocks(80, directed=directed)
    run = started(tmp_path, arrays, "training.epochs=40")
    metrics = LinkJob().evaluate(run).metrics
    assert metrics["auc"] > 0.8
    assert set(metrics) >= {"mrr", "hits_1", "hits_10", "mrr_common_neighbours", "mrr_degree"}
    with pytest.raises(DataError, match="no pairs to score"):
        LinkJob().predict(run, tmp_path / "a.pt", tmp_path / "out.nc")
    np.savez(tmp_path / "b.npz", **arrays, edge_label_index=np.array([[0, 0], [4, 1]]))
    LinkJob().predict(run, tmp_path / "b.npz", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert out.probability.shape == (2,)
        assert out.probability[0] > out.probability[1]  # of one group, and of two
    np.savez(tmp_path / "c.npz", **arrays, edge_label_index=np.array([[0], [80]]))
    with pytest.raises(DataError, match="edge_label_index from 0 to 80"):
        LinkJob().predict(run, tmp_path / "c.npz", tmp_path / "out.nc")


def test_inputs_that_the_model_does_not_take_are_refused(tmp_path):
    arrays = blocks()
    np.savez(tmp_path / "a.npz", **arrays, edge_attr=np.ones((arrays["edge_index"].shape[1], 2)))
    config = LinkConfig(data={"path": tmp_path / "a.npz"})
    with pytest.raises(ConfigError, match="edge_attr, which"):
        LinkJob().check(config)
    LinkJob().check(LinkConfig(data={"path": tmp_path / "a.npz", "edge_inputs": "ignore"}))


@pytest.mark.parametrize("name", ["rgcn", "hgt"])
def test_types_of_nodes_reach_models_that_take_them(name, tmp_path):
    data, draws = HeteroData(), np.random.default_rng(0)
    data["a"].x, data["b"].x = torch.randn(20, 3), torch.randn(30, 2)
    for kind in (("a", "to", "b"), ("b", "of", "a"), ("a", "near", "a")):
        ends = [draws.integers(len(data[k].x), size=60) for k in (kind[0], kind[2])]
        data[kind].edge_index = torch.from_numpy(np.stack(ends))
    torch.save(data, tmp_path / "a.pt")
    text = starter(DataToStart([str(tmp_path / "a.pt")], [str(tmp_path / "a.pt")]))
    assert "domain: graph_links" in text
    assert "name: rgcn" in text
    config = {"path": tmp_path / "a.pt"}
    told = LinkJob().check(LinkConfig(data=config, model={"name": name, "hidden": 8}))
    assert np.isfinite(told["first_loss"])


def test_a_resumed_run_draws_what_the_whole_run_draws(tmp_path):
    np.savez(tmp_path / "a.npz", **blocks())
    model = {"name": "gcn", "hidden": 8, "dropout": 0.3}
    document = {"domain": "graph_links", "data": {"path": str(tmp_path / "a.npz")}, "model": model}
    document |= {"training": {"batch_size": 30}, "run": {"root": str(tmp_path / "runs")}}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))

    def trained(*arguments):
        done = scitoolkit("train", tmp_path / "case.yaml", *arguments, "--json")
        assert done.code == 0, done.err
        return Path(json.loads(done.out)["run"])

    whole, run = trained("training.epochs=4"), trained("training.epochs=2")
    assert trained("training.epochs=4", "--resume", "--run-dir", run) == run
    weights = [ModelFolder(r).load_weights() for r in (whole, run)]
    for name, expected in weights[0].items():
        assert torch.equal(weights[1][name], expected), name


def test_ranks_reach_what_one_reaches(tmp_path):
    np.savez(tmp_path / "a.npz", **blocks())
    model = {"name": "gcn", "hidden": 8, "dropout": 0.3}
    document = {"domain": "graph_links", "data": {"path": str(tmp_path / "a.npz")}, "model": model}
    # The last batch of an epoch is smaller than the others.
    document |= {"negatives": 2, "training": {"epochs": 3, "batch_size": 30}}
    document["run"] = {"root": str(tmp_path / "runs")}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    one = scitoolkit("train", tmp_path / "case.yaml", "--json")
    assert one.code == 0, one.err
    several = run_process(tmp_path, "train", tmp_path / "case.yaml", "--nproc", "2", "--json")
    assert several.code == 0, several.err
    runs = [Path(json.loads(out)["run"]) for out in (one.out, several.out)]
    weights = [ModelFolder(run).load_weights() for run in runs]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=1e-4, atol=2e-6)


def test_labels_and_splits_of_nodes_are_not_read(tmp_path):
    arrays = blocks()
    masks = np.stack([np.arange(40) % 2 == 0, np.arange(40) % 2 == 1], 1)
    data = {n: torch.from_numpy(a) for n, a in arrays.items()}
    mask = torch.from_numpy(masks)
    torch.save(Data(**data, y=torch.zeros(40), train_mask=mask, val_mask=mask), tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", **arrays, y=np.zeros(40), train=masks, val=masks)
    losses = []
    for name in ("a.pt", "a.npz"):
        told = LinkJob().check(LinkConfig(data={"path": tmp_path / name}))
        losses.append(told["first_loss"])
    assert losses[0] == losses[1]
