"""Inference by parts equals inference in memory, and reads no more than it says."""

import numpy as np
import pytest
import torch

from scitoolkit.graphs import out_of_core, sharing
from scitoolkit.graphs.graph import GraphInputs, write_graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.models import GAT, GCN, GIN, SAGE
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.proof import attach
from scitoolkit.training.ranks.communicator import SingleProcess

pytest.importorskip("torch_geometric", exc_type=ImportError)


@pytest.fixture
def stored(graph, tmp_path):
    write_graph(graph, tmp_path / "graph.npz")
    return partition_edges(tmp_path / "graph.npz", tmp_path / "parts", 3, method="greedy")


@pytest.mark.parametrize("how", ["none", "rows", "standard"])
@pytest.mark.parametrize("kind", [GCN, SAGE, GIN, GAT])
def test_outputs_are_those_of_the_graph_in_memory(graph, tmp_path, kind, how):
    if how == "rows":  # refuses negative features
        graph.features = np.abs(graph.features)
    write_graph(graph, tmp_path / "graph.npz")
    stored = partition_edges(tmp_path / "graph.npz", tmp_path / "parts", 3, method="greedy")
    torch.manual_seed(0)
    model = kind(layers=3).build(6, 3).eval()
    inputs = GraphInputs(6)
    assert out_of_core.why_not(model, inputs) == ""
    prepare = sharing.preparation(stored, how)
    found = out_of_core.infer(model, stored, inputs, tmp_path, prepare)
    assert not list(tmp_path.glob("layer-[01]-*")), "rows of layers that are done"
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    x = sharing.normalised_features(graph, how, part.nodes.numpy())
    wanted = attach(model, part)(x).detach().numpy()
    np.testing.assert_allclose(found[part.nodes], wanted, atol=1e-6 * np.abs(wanted).max())


def test_one_part_at_a_time_is_in_memory(stored, tmp_path, monkeypatch):
    largest = max(part["nodes"] + part["halo"] for part in stored.header["parts"])
    assert largest < stored.num_nodes
    rows = []

    class Watched(out_of_core._Extended):
        def aggregate(self, x, weighting):
            rows.append(len(x))
            return super().aggregate(x, weighting)

    monkeypatch.setattr(out_of_core, "_Extended", Watched)
    model = GCN(layers=2).build(6, 3).eval()
    prepare = sharing.preparation(stored, "none")
    out_of_core.infer(model, stored, GraphInputs(6), tmp_path, prepare)
    assert len(rows) == 2 * stored.num_parts
    assert max(rows) == largest


def test_models_that_need_the_whole_graph_are_told_apart():
    assert "edge_weight" in out_of_core.why_not(GCN().build(6, 3), GraphInputs(6, True))
    assert "Linear" in out_of_core.why_not(torch.nn.Linear(6, 3), GraphInputs(6))
    model = GAT().build(6, 3)
    model.layers[1].dropout = 0.5
    assert "GATConv is not a single sparse product" in out_of_core.why_not(model, GraphInputs(6))
