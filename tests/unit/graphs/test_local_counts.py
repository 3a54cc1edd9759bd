"""What depends on a number of rows is that of the whole graph, or refused by name.

Each function is a number that is above 150 on the graph of 200 nodes and 2000 edges, and below on
that of the check and on the rows of a process: no comparison of the check tells them apart.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)


@pytest.fixture(autouse=True)
def never_compared(monkeypatch):
    monkeypatch.setattr("scitoolkit.graphs.proof_check.REAL_GRAPH", 10)


class Between(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.last, self.function = pyg.SAGEConv(6, 6), pyg.SAGEConv(6, 3), function

    def forward(self, x, edge_index):
        h = self.function(self.first(x, edge_index).tanh(), edge_index)
        return self.last(h, edge_index)


def difference(model, graph):
    """Return the largest difference of two ranks, with 130 and 70 nodes, from the plain model."""
    x = torch.from_numpy(graph.features)
    owner = (np.arange(200) % 20 >= 13).astype(int)
    plain = model(x, torch.from_numpy(np.stack([graph.source, graph.target])))

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        own = attach(copy.deepcopy(model), part)
        with torch.no_grad():
            return (own(x[part.nodes]) - plain[part.nodes]).abs().max()

    return float(max(run_ranks(2, work, Traffic)))


def n(h):
    return h.size(0)


def through(change):
    def count(h, e):
        out = torch.empty(0)
        change(out, h)
        return out.sum()

    return count


ones, arange = torch.ones, torch.arange
EQUAL = {
    "abs of a difference": lambda h, e: abs(0 - n(h)),
    "round to tens": lambda h, e: round(n(h), -1),
    "another number": lambda h, e: 0 if n(h) == 130 else 200,
    "not another number": lambda h, e: 200 if n(h) != 130 else 0,
    "in a list": lambda h, e: 0 if n(h) in [130, 70] else 200,
    "ones": lambda h, e: ones(n(h)).sum(),
    "flat": lambda h, e: h.flatten().size(0) / 6,
    "flat numel": lambda h, e: h.view(-1).shape.numel() / 6,
    "rows of two": lambda h, e: ones_of(h.view(-1, 2)).sum() / 6,
    "mask": lambda h, e: (h[:, 0] > -9).sum(),
    "self-loops": lambda h, e: (e[0] != e[1]).sum() / 9,
    "expand": lambda h, e: ones(1, 3).expand(n(h), -1).sum() / 3,
}
REFUSED = {
    "twice as many": lambda h, e: ones(2 * n(h)).sum() / 2,
    "one more": lambda h, e: ones(n(h) + 1).size(0),
    "elements": lambda h, e: ones(h.numel()).sum() / 6,
    "edges and nodes": lambda h, e: ones(e.size(1) + n(h)).sum() / 10,
    "pairs": lambda h, e: ones(n(h), n(h)).sum() / 200,
    "repeat": lambda h, e: ones(1).repeat(2 * n(h)).sum() / 2,
    "repeat_interleave": lambda h, e: ones(2).repeat_interleave(n(h)).sum() / 2,
    "pad": lambda h, e: nn.functional.pad(ones(1), (0, n(h) - 1)).numel(),
    "triangle": lambda h, e: torch.triu_indices(n(h), n(h)).size(1) / 100,
    "product": lambda h, e: ones(2 * n(h)) @ ones(2 * n(h)) / 2,
    "largest place": lambda h, e: arange(n(h)).max() + 1,
    "last place": lambda h, e: arange(n(h))[-1] + 1,
    "sum of places": lambda h, e: arange(n(h)).sum() / 100,
    "mean place": lambda h, e: arange(n(h)).float().mean() * 2,
    "real places": lambda h, e: arange(n(h), dtype=torch.float).max() + 1,
    "every second place": lambda h, e: arange(0, n(h), 2).numel() * 2,
    "median place": lambda h, e: arange(n(h)).median() * 2,
    "half the places": lambda h, e: (arange(n(h)) // 2).max() * 2 + 2,
    "different places": lambda h, e: arange(n(h)).unique().numel(),
    "places beyond": lambda h, e: 1000 * (arange(n(h)) > 180).any(),
    "a place": lambda h, e: 1000 * torch.isin(arange(n(h)), torch.tensor(190)).any(),
    "a class of places": lambda h, e: 1000 * torch.bucketize(arange(n(h)), ones(1) * 180).any(),
    "nonzero": lambda h, e: (h[:, 0] > -9).nonzero().max() + 1,
    "where": lambda h, e: torch.where(h[:, 0] > -9)[0].max() + 1,
    "nodes beyond": lambda h, e: 1000 * (e[0] > 190).any(),
    "nodes by class": lambda h, e: 1000 * (e[0] // 190).any(),
    "nodes as real numbers": lambda h, e: e.float().max() + 3,
    "largest of two": lambda h, e: e.max(1).values[0] + 3,
    "sorted nodes": lambda h, e: e[0].sort().values[-1] + 3,
    "different nodes": lambda h, e: e[1].unique().numel() + 3,
    "sym_int": lambda h, e: torch.sym_int(n(h)),
    "sym_max": lambda h, e: torch.sym_max(n(h), 3),
    "set_": through(lambda out, h: out.set_(ones(n(h)))),
    "tensor of sizes": lambda h, e: torch.tensor([0, n(h)])[1],
    "sizes as real numbers": lambda h, e: torch.tensor(list(h.shape), dtype=torch.float)[0],
    "new_tensor": lambda h, e: h.new_tensor([n(h)])[0],
    "asarray": lambda h, e: torch.asarray(n(h)),
    "as_tensor": lambda h, e: torch.as_tensor(n(h)),
    "parameter": lambda h, e: nn.Parameter(ones(n(h))).sum(),
    "norm of nodes": lambda h, e: nn.LayerNorm(n(h)).weight.sum(),
    "vmap": lambda h, e: torch.vmap(lambda row: row.sum())(ones(n(h), 6)).sum() / 6,
    "meta": lambda h, e: torch.empty(2 * n(h), device="meta").size(0) / 2,
    "bytes": lambda h, e: h.nbytes / 24,
    "einsum": lambda h, e: torch.einsum("i->", ones(2 * n(h))) / 2,
}


def ones_of(h):
    return torch.ones_like(h)[:, 0]


@pytest.mark.parametrize("name", EQUAL)
def test_numbers_of_rows_are_of_the_whole_graph(larger_graph, name):
    torch.manual_seed(0)
    model = Between(lambda h, e: h * (2.0 if EQUAL[name](h, e) > 150 else 1.0))
    assert difference(model, larger_graph) < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_of_local_rows_are_refused_with_their_line(larger_graph, name):
    torch.manual_seed(0)
    model = Between(lambda h, e: h * (2.0 if REFUSED[name](h, e) > 150 else 1.0))
    with pytest.raises(ConfigError, match=r"the model takes .* at test_local_counts.py:\d+, the"):
        difference(model, larger_graph)


ROWS = {
    "sequences": lambda h, e: (h.view(-1, 2) @ torch.eye(2)).tanh().view(-1, 6),
    "sequences of a shape": lambda h, e: (
        h.reshape(-1, 2).cos().view(n(h), 3, 2).sum(1).repeat(1, 3)
    ),
    "heads": lambda h, e: h.view(-1, 3, 2).softmax(1).flatten(1),
    "all features": lambda h, e: h - h.view(-1).mean(),
    "norm over time": lambda h, e: nn.functional.layer_norm(h.view(-1, 2), (2,)).view(-1, 6),
    "batch norm over time": lambda h, e: nn.functional.batch_norm(
        h.view(-1, 2), None, None, training=True
    ).view(-1, 6),
    "self-loops by hand": lambda h, e: summed(h, torch.cat([e, arange(n(h)).repeat(2, 1)], dim=1)),
    "sorted values": lambda h, e: h - (h.view(-1).sort().values ** 3).mean(),
}


def summed(h, e):
    return torch.zeros_like(h).index_add(0, e[1], h[e[0]])


@pytest.mark.parametrize("name", ROWS)
def test_rows_in_other_shapes_stay_those_of_the_nodes(larger_graph, name):
    torch.manual_seed(0)
    assert difference(Between(ROWS[name]), larger_graph) < 1e-5


class ByHand(nn.Module):
    """A layer without torch-geometric, whose edges are only read within the checkpoint."""

    def __init__(self, reentrant):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x, edge_index):
        x = x * torch.ones((), requires_grad=True)
        for layer in self.layers:
            x = checkpoint(
                lambda h, e, layer=layer: summed(h, e) + layer(h).tanh(),
                x,
                edge_index,
                use_reentrant=self.reentrant,
            )
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_by_hand_see_the_edges_again(larger_graph, reentrant):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert difference(ByHand(reentrant), larger_graph) < 1e-5
