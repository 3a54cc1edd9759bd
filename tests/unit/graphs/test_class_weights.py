"""Weights of classes of unequal size: the loss of torch's weighted cross-entropy on any ranks."""

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph, write_graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.node_graph import NodeGraph
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.task import NodeClassification, PartLoader
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
COUNTS = (24, 6, 1)  # training nodes of each class; the fourth has none


@pytest.fixture(scope="module")
def unequal():
    r = np.random.default_rng(3)
    labels = np.r_[np.repeat(np.arange(3), COUNTS), np.full(9, 3)]
    parts = {"train": np.arange(31), "validation": np.arange(31, 40)}
    source, target = r.integers(40, size=(2, 200))
    return Graph(source, target, 40, r.normal(size=(40, 5)).astype(np.float32), labels, parts)


def config(path, weights):
    data = {"path": str(path), "class_weights": weights}
    return GraphConfig.model_validate({"data": data})


@pytest.mark.parametrize("weights", ["balanced", [0.5, 2.0, 7.0, 3.0], [1e-3, 1.0, 1e3, 1.0]])
def test_weights_are_those_of_the_training_nodes_and_have_mean_1(unequal, tmp_path, weights):
    file, folder = tmp_path / "graph.npz", tmp_path / "parts"
    write_graph(unequal, file)
    assert run_cli(["graphs", "partition", str(file), str(folder), "--parts", "1"]) == 0
    ours, stored = (NodeGraph(config(p, weights), p).own.weights for p in (file, folder))
    assert torch.equal(ours, stored)
    counts = torch.tensor([*COUNTS, 0])
    assert float((ours * counts).sum() / counts.sum()) == pytest.approx(1.0)
    if weights == "balanced":
        assert ours.tolist() == pytest.approx([31 / 3 / 24, 31 / 3 / 6, 31 / 3, 1.0])
    else:
        assert torch.allclose(ours / ours[0], torch.tensor(weights).double() / weights[0])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_loss_is_that_of_torch_on_any_number_of_ranks(unequal, size):
    torch.manual_seed(0)
    weights = torch.tensor([0.4, 1.7, 10.0, 1.0])
    model = pyg.GCNConv(5, 4)
    pair = torch.from_numpy(np.stack([unequal.source, unequal.target]))
    train, labels = unequal.parts["train"], torch.from_numpy(unequal.labels)
    out = model(torch.from_numpy(unequal.features), pair)[train]
    plain = nn.functional.cross_entropy(out, labels[train], weights, reduction="sum") / len(train)

    def work(ranks):
        owner = np.arange(40) % ranks.size
        part = GraphPart(unequal, owner, ProcessGrid(ranks.size), ranks)
        own = pyg.GCNConv(5, 4)
        own.load_state_dict(model.state_dict())
        task = NodeClassification(own, part, weights=weights)
        x = torch.from_numpy(unequal.features)[part.nodes]
        batch = next(iter(PartLoader(x, part.nodes, unequal.labels[train], train)))
        return float(task.loss(batch)[0].detach()) * task.batch_size(batch) / len(train)

    ours = run_ranks(size, work, Traffic) if size > 1 else [work(SingleProcess())]
    assert sum(ours) == pytest.approx(float(plain.detach()), rel=1e-5)


def test_a_list_needs_a_number_for_each_class(unequal, tmp_path):
    path = tmp_path / "graph.npz"
    write_graph(unequal, path)
    with pytest.raises(ConfigError, match="3 numbers for 4 classes"):
        assert NodeGraph(config(path, [1.0, 2.0, 3.0]), path).own


@pytest.mark.parametrize(
    "value", [[1.0, -2.0], [0.0, 1.0], [float("nan"), 1.0], [np.inf, 1.0], "equal"]
)
def test_other_weights_are_refused(value):
    with pytest.raises(ValueError, match="class_weights"):
        config("graph.npz", value)


def test_only_classes_have_weights():
    data = {"path": "graph.npz", "target": "values", "class_weights": "balanced"}
    with pytest.raises(ValueError, match="class_weights"):
        GraphConfig.model_validate({"data": data})
