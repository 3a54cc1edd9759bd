"""Layouts follow the model's device; the device without memory stands for one that is no CPU."""

import numpy as np
import pytest
import torch

from scitoolkit.graphs.adapter import distribute
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.proof import prove
from scitoolkit.graphs.stored_part import StoredPart
from scitoolkit.training.ranks.communicator import SingleProcess

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)

LAYERS = {
    "GCN": lambda: pyg.GCNConv(6, 3),
    "SAGE": lambda: pyg.SAGEConv(6, 3),
    "GAT": lambda: pyg.GATConv(6, 3, heads=2),
    "TAG": lambda: pyg.TAGConv(6, 3),
    "GATv2": lambda: pyg.GATv2Conv(6, 3, heads=2),
    "messages": lambda: pyg.TransformerConv(6, 3, dropout=0.5),
    "dropout": lambda: torch.nn.Sequential(torch.nn.Dropout(0.5)),
}


class Called(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return (
            self.layer(x)
            if isinstance(self.layer, torch.nn.Sequential)
            else self.layer(x, edge_index)
        )


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layouts_follow_the_models_device(graph, tmp_path, name, stored):
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    if stored:
        pairs = np.stack([graph.source, graph.target], 1)
        np.save(tmp_path / "e.npy", pairs)
        np.savez(tmp_path / "n.npz", x=graph.features)
        parts = partition_edges(tmp_path / "e.npy", tmp_path / "p", 1, nodes=tmp_path / "n.npz")
        part = StoredPart(parts, SingleProcess())
    model = Called(LAYERS[name]())
    distribute(model, part, prove(model, part).fast)
    model.to("meta")
    x = torch.empty(graph.num_nodes, 6, device="meta", requires_grad=True)
    out = model(x)
    assert out.device.type == "meta"
    out.sum().backward()
    assert all(p.grad.device.type == "meta" for p in [x, *model.parameters()])
    assert part.nodes.device.type == "cpu"
