"""What users of torch-geometric write around their layers equals the plain model on a graph that
is never compared, with unequal parts."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric import utils  # noqa: E402
from torch_geometric.nn import aggr, norm  # noqa: E402

W = 6


class Around(nn.Module):
    """A function between two layers, with modules `m` and `k`."""

    def __init__(self, function, m=None, k=None):
        super().__init__()
        self.first, self.last = pyg.SAGEConv(W, W), pyg.SAGEConv(W, 3)
        self.function, self.m, self.k = function, m, k

    def forward(self, x, edge_index):
        h = self.function(self, self.first(x, edge_index).tanh(), edge_index)
        return self.last(h, edge_index)


class RunningMean(Around):
    """A buffer that follows the mean of the nodes."""

    def __init__(self):
        super().__init__(None)
        self.register_buffer("mean", torch.zeros(W))

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(h.mean(0).to(self.mean), alpha=0.1)
        return self.last(h - self.mean, edge_index)


def one_graph(h):
    return torch.zeros(h.size(0), dtype=torch.long)


def aggregated(**options):
    return lambda: Around(lambda s, h, e: s.m(h, e), pyg.SAGEConv(W, W, **options))


def on_nodes(make):
    return lambda: Around(lambda s, h, e: s.m(h), make())


def pooled(make):
    return lambda: Around(lambda s, h, e: h + s.m(h, one_graph(h)), make())


def on_edges(change):
    return lambda: Around(lambda s, h, e: s.m(h, change(e, h, s.training)), pyg.GCNConv(W, W))


def hooked(register):
    def make():
        model = Around(lambda s, h, e: h)
        register(model.first)
        return model

    return make


def of_experts(s, h, e):
    choice, out = s.m(h).argmax(1), torch.zeros_like(h)
    for number, expert in enumerate(s.k):
        rows = choice == number
        if rows.any():
            out[rows] = expert(h[rows])
    return out


def with_weights(over_layers):
    def function(s, h, e):
        x = torch.stack([h, h.cos(), h.sin()], 1) if over_layers else h[None]
        out, weights = s.m(x, x, x)
        largest = weights.max(-1).values
        if over_layers:
            return out.mean(1) + largest.mean(1, keepdim=True)
        return out[0] + largest.squeeze(0)[:, None]

    return lambda: Around(function, nn.MultiheadAttention(W, 2, batch_first=True))


def scattered(values, index, **options):
    return lambda: Around(
        lambda s, h, e: utils.scatter(h[e[values]], e[index], 0, dim_size=h.size(0), **options)
    )


def by_degree(s, h, e):
    return h + s.m(utils.degree(e[1], h.size(0), torch.long).clamp(max=7))


MODELS = {
    "several aggregations": aggregated(aggr=["mean", "max", "std"]),
    "aggregations by attention": aggregated(
        aggr=aggr.MultiAggregation(
            ["add", "softmax"],
            mode="attn",
            mode_kwargs={"in_channels": W, "out_channels": W, "num_heads": 2},
        )
    ),
    "variance": aggregated(aggr="var"),
    "quantile": aggregated(aggr=aggr.QuantileAggregation(0.3)),
    "pooled by attention": pooled(lambda: aggr.AttentionalAggregation(nn.Linear(W, 1))),
    "pooled by softmax": pooled(lambda: aggr.SoftmaxAggregation(learn=True)),
    "pooled median": pooled(aggr.MedianAggregation),
    "pooled by Set2Set": lambda: Around(
        lambda s, h, e: h + s.k(s.m(h, one_graph(h))), aggr.Set2Set(W, 2), nn.Linear(2 * W, W)
    ),
    "pooled by order": lambda: Around(
        lambda s, h, e: h + s.k(s.m(h, one_graph(h))),
        aggr.SortAggregation(4),
        nn.Linear(4 * W, W),
    ),
    "pooled by set transformer": pooled(lambda: aggr.SetTransformerAggregation(W, 1, heads=2)),
    "MeanSubtractionNorm": on_nodes(norm.MeanSubtractionNorm),
    "DiffGroupNorm": on_nodes(lambda: norm.DiffGroupNorm(W, 3)),
    "GraphNorm of a batch": lambda: Around(lambda s, h, e: s.m(h, one_graph(h)), norm.GraphNorm(W)),
    "PairNorm of each node": on_nodes(lambda: norm.PairNorm(scale_individually=True)),
    "MessageNorm": lambda: Around(
        lambda s, h, e: s.m(h, s.k(h, e)), norm.MessageNorm(True), pyg.GCNConv(W, W)
    ),
    "jumping by lstm": lambda: Around(
        lambda s, h, e: s.m([h, s.k(h, e), h.cos()]),
        pyg.JumpingKnowledge("lstm", W, 2),
        pyg.GCNConv(W, W),
    ),
    "mean onto sources": scattered(1, 0, reduce="mean"),
    "least onto sources": scattered(1, 0, reduce="min"),
    "edges dropped": on_edges(lambda e, h, t: utils.dropout_edge(e, 0.3, training=t)[0]),
    "nodes dropped": on_edges(lambda e, h, t: utils.dropout_node(e, 0.3, h.size(0), training=t)[0]),
    "edges between some nodes": on_edges(
        lambda e, h, t: utils.subgraph(h[:, 0] > 0, e, num_nodes=h.size(0))[0]
    ),
    "both directions": on_edges(lambda e, h, t: torch.cat([e, e.flip(0)], 1)),
    "sorted edges": on_edges(lambda e, h, t: utils.sort_edge_index(e)),
    "homophily": lambda: Around(lambda s, h, e: h * utils.homophily(e, (h[:, 0] > 0).long())),
    "degrees as classes": lambda: Around(by_degree, nn.Embedding(8, W)),
    "features masked": lambda: Around(
        lambda s, h, e: utils.mask_feature(h, 0.3, training=s.training)[0]
    ),
    "hook of the layer": hooked(lambda c: c.register_forward_hook(lambda m, i, o: o - o.mean(0))),
    "hook of the messages": hooked(
        lambda c: c.register_message_forward_hook(lambda m, i, o: o * 0.5)
    ),
    "hook of the sums": hooked(
        lambda c: c.register_aggregate_forward_hook(lambda m, i, o: o.cos())
    ),
    "running mean": RunningMean,
    "experts": lambda: Around(
        of_experts, nn.Linear(W, 3), nn.ModuleList(nn.Linear(W, W) for _ in range(3))
    ),
    "weights of attention": with_weights(False),
    "weights of attention over layers": with_weights(True),
    "encoder of a transformer": lambda: Around(
        lambda s, h, e: s.m(h[None])[0],
        nn.TransformerEncoderLayer(W, 2, 8, dropout=0.0, batch_first=True),
    ),
    "contrast": lambda: Around(
        lambda s, h, e: h * (F.normalize(h) @ F.normalize(h).t()).softmax(-1).diagonal()[:, None]
    ),
    "pooled nodes": lambda: Around(
        lambda s, h, e: h + s.m(h, e)[0].mean(0), pyg.TopKPooling(W, 0.5)
    ),
}
REFUSED = {
    "edges without a number of nodes": lambda: Around(
        lambda s, h, e: utils.scatter(h[e[0]], e[1], 0, reduce="sum")
    ),
    "pooled by an energy": pooled(lambda: aggr.EquilibriumAggregation(W, W, [4], 2)),
    "list of nodes": lambda: Around(lambda s, h, e: torch.stack([2 * row for row in h])),
    "edges one by one": lambda: Around(lambda s, h, e: h + h[int(e[0, 3])]),
    "edges in Python": lambda: Around(lambda s, h, e: h * len(set(e[0].tolist()))),
    "negative edges": on_edges(lambda e, h, t: utils.negative_sampling(e, h.size(0))),
    "shuffled nodes": lambda: Around(lambda s, h, e: utils.shuffle_node(h)[0]),
    "hook of a gradient": lambda: Around(lambda s, h, e: centred(h)),
}


def centred(h):
    if h.requires_grad:
        h.register_hook(lambda gradient: gradient - gradient.mean(0))
    return h


def difference(model, graph):
    """Return the largest difference of two ranks, with 130 and 70 nodes, from the plain model."""
    x = torch.from_numpy(graph.features)
    owner = (np.arange(200) % 20 >= 13).astype(int)
    plain = model.eval()(x, torch.from_numpy(np.stack([graph.source, graph.target])))

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        own = attach(copy.deepcopy(model), part).eval()
        with torch.no_grad():
            return (own(x[part.nodes]) - plain[part.nodes]).abs().max()

    return float(max(run_ranks(2, work, Traffic))) / float(plain.detach().abs().max())


@pytest.fixture(autouse=True)
def never_compared(monkeypatch):
    monkeypatch.setattr("scitoolkit.graphs.proof_check.REAL_GRAPH", 10)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", MODELS)
def test_idioms_equal_the_plain_model(larger_graph, name):
    assert difference(MODELS[name](), larger_graph) < 1e-4


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_by_name(larger_graph, name):
    with pytest.raises(ConfigError, match=r"^model: "):
        difference(REFUSED[name](), larger_graph)
