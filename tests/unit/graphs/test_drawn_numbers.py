"""Random numbers of a model are those of its rows, on any number of ranks."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.seeds import seed_everything
from scitoolkit.graphs.adapter import distribute, dropout_by_node
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric import utils as pyg_utils  # noqa: E402


class Drawn(nn.Module):
    """Random numbers for nodes, edges, and the choice of a path."""

    def __init__(self, draw):
        super().__init__()
        self.first, self.last, self.draw = pyg.SAGEConv(6, 6), pyg.SAGEConv(6, 3), draw

    def forward(self, x, edge_index):
        x, edge_index = self.draw(self.first(x, edge_index), edge_index)
        return self.last(x, edge_index)


def pathed(h, e):
    return (h if random.random() < 0.5 else 2 * h), e


DRAWS = {
    "rand_like": lambda h, e: (h + torch.rand_like(h), e),
    "rand": lambda h, e: (h * torch.rand(h.size(0), 1), e),
    "rand of a shape": lambda h, e: (h + torch.rand(h.shape), e),
    "randn_like": lambda h, e: (h + 0.1 * torch.randn_like(h), e),
    "exponential": lambda h, e: (h + torch.empty_like(h).exponential_(2.0), e),
    "bernoulli": lambda h, e: (h * torch.bernoulli(torch.full_like(h, 0.5)), e),
    "uniform": lambda h, e: (h + torch.empty_like(h).uniform_(-1, 2), e),
    "edges": lambda h, e: (h, pyg_utils.dropout_edge(e, 0.3)[0]),
    "one number": lambda h, e: (h * torch.rand(1), e),
    "path by torch": lambda h, e: (2 * h if torch.rand(1) < 0.5 else h, e),
    "path by python": pathed,
    "path by numpy": lambda h, e: (2 * h if np.random.rand() < 0.5 else h, e),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_do_not_depend_on_the_ranks(graph, name):
    torch.manual_seed(0)
    model = Drawn(DRAWS[name])
    x, owner = torch.from_numpy(graph.features), np.arange(graph.num_nodes) % 3

    def work(ranks):
        part = GraphPart(graph, owner % ranks.size, ProcessGrid(ranks.size), ranks)
        own = attach(copy.deepcopy(model), part).train()
        seed_everything(5)
        with torch.no_grad(), dropout_by_node(7):
            out = own(x[part.nodes])
        return torch.zeros(50, 3).index_copy(0, part.nodes, out)

    one = work(SingleProcess())
    assert torch.allclose(sum(run_ranks(3, work, Traffic)), one, atol=1e-5)


def dropped(graph, function, size):
    """Return the rows that a function with dropout makes of ones, of all nodes, on `size` ranks."""

    class Dropped(nn.Module):
        def forward(self, x, edge_index):
            return function(torch.ones_like(x).unsqueeze(-1).expand(-1, -1, 50).clone(), 0.4, True)

    def work(ranks):
        owner = np.arange(graph.num_nodes) % ranks.size
        part = GraphPart(graph, owner, ProcessGrid(ranks.size), ranks)
        with dropout_by_node(3):
            out = distribute(Dropped(), part)(torch.from_numpy(graph.features)[part.nodes])
        return torch.zeros(graph.num_nodes, *out.shape[1:]).index_copy(0, part.nodes, out)

    return sum(run_ranks(size, work, Traffic))


@pytest.mark.parametrize("name", ["alpha_dropout", "dropout1d"])
def test_structured_dropout_is_that_of_torch_and_depends_on_the_row(graph, name):
    function = getattr(nn.functional, name)
    one = dropped(graph, function, 1)
    assert torch.equal(one, dropped(graph, function, 3))
    values = function(torch.ones(1000, 50, 1), 0.4, True).unique()
    assert torch.allclose(one.unique(), values)
    share = float((one == one.min()).double().mean())
    assert share == pytest.approx(0.4, abs=0.05)
    if name == "dropout1d":
        assert bool((one == one[..., :1]).all())
