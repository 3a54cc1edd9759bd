"""Sampled neighbourhoods of torch-geometric as a way to train node models."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from scitoolkit.core.errors import BackendError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.job import GraphJob
from scitoolkit.graphs.sampling import SampledNeighbours
from scitoolkit.testing.job import scitoolkit

pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
SAMPLES = any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse"))
needs_sampler = pytest.mark.skipif(not SAMPLES, reason="needs pyg-lib or torch-sparse")


def graph_of(seed=0, nodes=60, edges=400):
    r = np.random.default_rng(seed)
    source, target = np.unique(r.integers(nodes, size=(2, edges)), axis=1)
    graph = Graph(source, target, nodes, r.normal(size=(nodes, 4)), r.integers(3, size=nodes))
    graph.edge_weight = r.uniform(1, 2, len(source)).astype(np.float32)
    return graph


def case(folder, **changes):
    graph, order = graph_of(), np.random.default_rng(1).permutation(60)
    np.savez(
        folder / "a.npz",
        x=graph.features,
        edge_index=np.stack([graph.source, graph.target]),
        edge_weight=graph.edge_weight,
        y=graph.labels,
        **dict(zip(("train", "val", "test"), np.split(order, [40, 50]), strict=True)),
    )
    document = {
        "domain": "graphs",
        "data": {"path": str(folder / "a.npz")},
        "model": {"name": "gcn", "hidden": 8},
        "sampling": {"neighbours": [3, 2]},
        "training": {"epochs": 4, "batch_size": 16},
        "run": {"root": str(folder / "runs")},
        **changes,
    }
    (folder / "case.yaml").write_text(yaml.safe_dump(document))
    return document


def test_a_package_that_samples_is_named_where_there_is_none(tmp_path, monkeypatch):
    from torch_geometric.loader import NeighborLoader

    def missing(self, index):
        raise ImportError("requires either 'pyg-lib' or 'torch-sparse'")

    monkeypatch.setattr(NeighborLoader, "__call__", missing)
    config = GraphConfig.model_validate(case(tmp_path))
    with pytest.raises(BackendError, match="needs the package pyg-lib or torch-sparse"):
        GraphJob().check(config)


@pytest.mark.parametrize("neighbours", [[], [0], [3, -2]])
def test_numbers_of_neighbours_that_mean_nothing_are_refused(neighbours, tmp_path):
    with pytest.raises(ValueError, match="neighbours"):
        GraphConfig.model_validate(case(tmp_path, sampling={"neighbours": neighbours}))


def test_a_division_that_sampling_does_not_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="graph"):
        GraphConfig.model_validate(case(tmp_path, graph={"algorithm": "2d"}))


@needs_sampler
def test_what_is_sampled_are_edges_of_the_graph():
    graph = graph_of()
    x = torch.from_numpy(graph.features).float()
    source = SampledNeighbours(graph, x, np.arange(0, 60, 2), (3, 2), seed=5)
    rows = np.array([4, 0, 9])
    batch = source.read(rows)
    assert np.array_equal(batch["x"][:3], x[rows * 2].numpy())
    assert np.array_equal(batch["label"], graph.labels[rows * 2])
    triples = zip(graph.source, graph.target, graph.edge_weight, strict=True)
    weights = {(a, b): weight for a, b, weight in triples}
    number = {tuple(row): n for n, row in enumerate(x.numpy().tolist())}
    nodes = [number[tuple(row)] for row in batch["x"].tolist()]
    ends = batch["edge_index"].T.tolist()
    assert ends
    for (a, b), weight in zip(ends, batch["edge_weight"], strict=True):
        assert weights[nodes[a], nodes[b]] == weight
    counts = np.bincount(batch["edge_index"][1], minlength=len(nodes))
    assert counts[:3].max() <= 3
    again = source.read(rows)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    other = SampledNeighbours(graph, x, np.arange(0, 60, 2), (3, 2), seed=6).read(rows)
    assert not np.array_equal(batch["x"], other["x"])


@needs_sampler
def test_all_neighbours_give_the_outputs_of_the_whole_graph():
    graph = graph_of()
    graph.edge_weight = None
    x = torch.from_numpy(graph.features).float()
    from torch_geometric.nn import SAGEConv

    torch.manual_seed(0)
    first, second = SAGEConv(4, 8), SAGEConv(8, 2)
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    whole = second(first(x, pair).relu(), pair)
    nodes = np.arange(60)
    batch = SampledNeighbours(graph, x, nodes, (-1, -1), seed=0).read(np.array([7, 30]))
    part, sampled = torch.from_numpy(batch["x"]), torch.from_numpy(batch["edge_index"])
    out = second(first(part, sampled).relu(), sampled)[:2]
    torch.testing.assert_close(out, whole[[7, 30]])


@needs_sampler
def test_a_resumed_run_samples_what_the_whole_run_samples(tmp_path):
    case(tmp_path)

    def trained(*arguments):
        done = scitoolkit("train", tmp_path / "case.yaml", *arguments, "--json")
        assert done.code == 0, done.err
        return Path(json.loads(done.out)["run"])

    whole, run = trained(), trained("training.epochs=2")
    assert trained("--resume", "--run-dir", run) == run
    weights = [ModelFolder(r).load_weights() for r in (whole, run)]
    assert all(torch.equal(weights[1][name], one) for name, one in weights[0].items())
    assert 0 <= GraphJob().evaluate(run).metrics["test_accuracy"] <= 1
