"""Modules that run on the rows, and the edges, of all nodes on every process."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.graphs.adapter import distribute, dropout_by_node
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import prove
from scitoolkit.graphs.proof_trace import LIMIT
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic
from tests.helpers.graph_parts import to_prove

pyg = pytest.importorskip("torch_geometric.nn")


class Ranked(nn.Module):
    """Sorts the nodes, and puts them back by the places they had."""

    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, h):
        order = h[:, 0].argsort()
        sums = nn.functional.dropout(self.norm(self.lin(h[order])), 0.5, self.training).cumsum(0)
        out = torch.empty_like(sums)
        out[order] = sums
        return out / h.size(0)


class WithPlaces(nn.Module):
    """A module whose functions refer to places among all nodes, once or in a list."""

    def __init__(self, many=1):
        super().__init__()
        self.first, self.last = pyg.SAGEConv(6, 6), pyg.SAGEConv(6, 3)
        self.middle = nn.ModuleList(Ranked() for _ in range(many))

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).tanh()
        for module in self.middle:
            h = module(h)
        return self.last(h, edge_index)


class RankedMessages(pyg.MessagePassing):
    """Sends what the sorted nodes and edges hold: needs the places of all of both."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(6, 6)

    def forward(self, x, edge_index, *, edge_weight):
        sums = torch.empty_like(x)
        order = x[:, 0].argsort()
        sums[order] = self.lin(x[order]).cumsum(0) / x.size(0)
        place = (edge_index[0] * x.size(0) + edge_index[1]).argsort().argsort()
        weight = edge_weight * (1 + place / edge_index.size(1))
        return self.propagate(edge_index, x=sums, weight=weight)

    def message(self, x_j, weight):
        return weight[:, None] * x_j


class WithEdges(nn.Module):
    """A module that needs the places of all nodes and edges; also one that is given far edges."""

    def __init__(self, *, far=False):
        super().__init__()
        self.first, self.middle = pyg.SAGEConv(6, 6), RankedMessages()
        self.last, self.far = nn.Linear(6, 3), far

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).tanh()
        weight = (h[edge_index[0]] * h[edge_index[1]]).sum(1)
        edges = edge_index.flip(0) if self.far else edge_index
        return self.last(h + self.middle(h, edges, edge_weight=weight))


class SGFormer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = pyg.SGFormer(6, 8, 3)

    def forward(self, x, edge_index):
        return self.model(x, edge_index, torch.zeros(x.size(0), dtype=torch.long))


@pytest.mark.parametrize(
    ("make", "whole"),
    [
        (WithPlaces, ("middle.0",)),
        (lambda: WithPlaces(2), ("middle.0", "middle.1")),
        (SGFormer, ("model.trans_conv",)),
        (WithEdges, ("middle",)),
        (lambda: WithEdges(far=True), ("middle",)),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_modules_that_need_the_places_of_all_nodes_run_on_all_rows(graph, make, whole, ranks):
    torch.manual_seed(0)
    model = make()
    proof = prove(model, to_prove(graph, ranks))
    assert proof.error < LIMIT
    assert proof.whole == whole
    assert prove(model, to_prove(graph, 1)).whole == ()


def test_dropout_on_all_rows_is_the_same_on_every_process(graph):
    torch.manual_seed(0)
    model, owner = WithPlaces(), np.arange(graph.num_nodes) % 2
    x = torch.from_numpy(graph.features)

    def outputs(ranks, owner, whole):
        part = GraphPart(graph, owner, ProcessGrid(ranks.size), ranks)
        own = distribute(copy.deepcopy(model).double(), part, whole=whole)
        with dropout_by_node(3), torch.no_grad():
            out = torch.zeros(graph.num_nodes, 3, dtype=torch.float64)
            out[part.nodes] = own(x[part.nodes].double())
        return out

    first, second = run_ranks(2, lambda ranks: outputs(ranks, owner, ("middle.0",)), Traffic)
    alone = outputs(SingleProcess(), 0 * owner, ("middle.0",))
    torch.testing.assert_close(first + second, alone, rtol=1e-9, atol=1e-12)
