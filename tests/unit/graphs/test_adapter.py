"""A torch-geometric model on P ranks computes what it computes on the whole graph."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.graphs.adapter import detach, distribute, dropout_by_node
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach, prove
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)


class Model(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index):
        x = nn.functional.dropout(x, 0.4, self.training)
        return self.second(self.first(x, edge_index).relu(), edge_index)


def models():
    torch.manual_seed(0)
    perceptron = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 8))
    return {
        "gcn": Model(pyg.GCNConv(6, 8), pyg.GCNConv(8, 3)),
        "wide gcn": Model(pyg.GCNConv(6, 20), pyg.GCNConv(20, 30, bias=False)),
        "sage": Model(pyg.SAGEConv(6, 8), pyg.SAGEConv(8, 3, normalize=True)),
        "sage sum": Model(pyg.SAGEConv(6, 8, aggr="sum", project=True), pyg.SAGEConv(8, 9)),
        "sage max": Model(pyg.SAGEConv(6, 8, aggr="max"), pyg.SAGEConv(8, 3)),
        "gin": Model(pyg.GINConv(perceptron, train_eps=True), pyg.GCNConv(8, 3)),
        "gat": Model(pyg.GATConv(6, 4, heads=2), pyg.GATConv(8, 3, heads=3, concat=False)),
        "gat2": Model(pyg.GATv2Conv(6, 8), pyg.GraphConv(8, 3)),
    }


def whole(model, graph, target):
    edges = torch.from_numpy(np.stack([graph.source, graph.target]))
    out = model(torch.from_numpy(graph.features), edges)
    (out * target).sum().backward()
    return out.detach(), [p.grad for p in model.parameters()]


def single(graph, grid=None):
    """The whole graph on one rank, to be proved on a grid."""
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    part.grid = part.grid if grid is None else grid
    return part


def in_parts(model, graph, owner, grid, target, seed=None):
    """Return the output and the summed gradients of the ranks of a grid."""
    fast = prove(model, single(graph, grid)).fast

    def work(ranks):
        part = GraphPart(graph, owner, grid, ranks)
        own = distribute(copy.deepcopy(model), part, fast)
        x = torch.from_numpy(graph.features)[part.nodes]
        if seed is None:
            out = own(x, None)
        else:
            with dropout_by_node(seed):
                out = own(x, None)
        (out * target[part.nodes]).sum().backward()
        return part.nodes, out.detach(), [p.grad for p in own.parameters()]

    out, gradients = torch.full_like(target, torch.nan), None
    for nodes, rows, own in run_ranks(grid.size, work, Traffic):
        out[nodes] = rows
        gradients = own if gradients is None else [a + b for a, b in zip(gradients, own)]  # noqa: B905
    return out, gradients


@pytest.mark.parametrize("name", list(models()))
def test_layers_equal_the_whole_graph(graph, name):
    model = models()[name].eval()
    width = model.second.out_channels
    target = torch.randn(graph.num_nodes, width)
    out, gradients = whole(copy.deepcopy(model), graph, target)
    grids = [ProcessGrid(1), ProcessGrid(3), ProcessGrid(4, sparse=False)]
    if "gat" not in name and "max" not in name:
        grids += [ProcessGrid(2, 2), ProcessGrid(2, 2, 2), ProcessGrid(1, 3)]
    for grid in grids:
        owner = np.random.default_rng(1).integers(grid.size, size=graph.num_nodes)
        ours, by_parts = in_parts(model, graph, owner, grid, target)
        assert torch.allclose(ours, out, atol=1e-5), grid
        for mine, theirs in zip(by_parts, gradients, strict=True):
            assert torch.allclose(mine, theirs, atol=2e-5, rtol=1e-4), grid


def test_dropout_is_the_same_on_any_number_of_ranks(graph):
    model = models()["gcn"].train()
    target = torch.randn(graph.num_nodes, 3)
    owner = np.random.default_rng(1).integers(4, size=graph.num_nodes)
    one, gradients = in_parts(model, graph, owner * 0, ProcessGrid(1), target, seed=5)
    four, by_parts = in_parts(model, graph, owner, ProcessGrid(4), target, seed=5)
    assert torch.allclose(one, four, atol=1e-5)
    assert not torch.allclose(one, in_parts(model, graph, owner, ProcessGrid(4), target, seed=6)[0])
    for mine, theirs in zip(by_parts, gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_a_graph_with_hubs_is_kept_by_degree_and_gives_the_same():
    r = np.random.default_rng(2)
    target, source = np.minimum(r.geometric(0.1, (2, 600)) - 1, 49)
    graph = Graph(source, target, 50, r.normal(size=(50, 6)).astype(np.float32))
    part = GraphPart(graph, np.zeros(50, int), ProcessGrid(1), SingleProcess())
    ends = np.bincount(source, minlength=50) + np.bincount(target, minlength=50)
    assert (np.diff(ends[part.nodes.numpy()]) <= 0).all()
    assert part.nodes.tolist() != list(range(50))
    model = models()["gat"].eval()
    wanted = torch.randn(50, model.second.out_channels)
    out, gradients = whole(copy.deepcopy(model), graph, wanted)
    for size in (1, 3):
        owner = np.arange(50) % size
        own, own_gradients = in_parts(model, graph, owner, ProcessGrid(size), wanted)
        assert torch.allclose(own, out, atol=1e-5)
        for mine, theirs in zip(own_gradients, gradients, strict=True):
            assert torch.allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_names_and_weights_stay_and_detach_gives_the_model_back(graph):
    model = models()["sage"].eval()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    target = torch.randn(graph.num_nodes, 3)
    out, _ = whole(copy.deepcopy(model), graph, target)
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    attach(model, part)
    assert model.state_dict().keys() == before.keys()
    detach(model)
    assert torch.equal(whole(model, graph, target)[0], out)


@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv])
def test_attention_runs_in_bfloat16_under_autocast(graph, layer):
    model = Model(layer(6, 4, heads=2), layer(8, 3, residual=True)).eval()
    out, _ = whole(copy.deepcopy(model), graph, torch.zeros(graph.num_nodes, 3))
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    attach(model, part)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(torch.from_numpy(graph.features)[part.nodes], None)
    assert (found - out[part.nodes]).abs().max() < 0.05 * out.abs().max()
