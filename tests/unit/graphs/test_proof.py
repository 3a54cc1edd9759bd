"""Models are proven equal to plain torch-geometric before training, or refused with a reason."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.adapter import detach, distribute
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach, prove
from scitoolkit.graphs.proof_trace import LIMIT
from scitoolkit.graphs.task import NodeClassification
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic
from tests.helpers.graph_parts import OnSections, to_prove

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric.nn import norm as norms  # noqa: E402
from torch_geometric.utils import add_self_loops, degree  # noqa: E402


class Between(nn.Module):
    """Two layers with something between them."""

    def __init__(self, middle, **kwargs):
        super().__init__()
        self.first, self.last = pyg.SAGEConv(6, 6, **kwargs), pyg.SAGEConv(6, 3)
        self.middle = middle

    def forward(self, x, edge_index):
        return self.last(self.middle(self.first(x, edge_index)), edge_index)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class TutorialGCN(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(6, 3, bias=False)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        d = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        d[d == float("inf")] = 0
        return self.propagate(edge_index, x=self.lin(x), norm=d[row] * d[col])

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class SourceDegree(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3)

    def forward(self, x, edge_index):
        d = degree(edge_index[0], x.size(0), dtype=x.dtype)
        return self.conv(x / (1 + d.view(-1, 1)), edge_index)


class Sparse(nn.Module):
    """A convolution with a sum over the edges written by hand."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(12, 3)

    def forward(self, x, edge_index):
        a, b = edge_index
        messages = torch.tanh(self.lin(torch.cat([x[a], x[b]], -1)))
        return torch.zeros(len(x), 3, dtype=x.dtype).index_add_(0, b, messages)


REDUCTIONS = ("amax", "amin", "mean", "prod", "sum")


def onto_sources(reduce):
    def function(x, e):
        index = e[0].view(-1, 1).expand(-1, 6)
        return torch.ones(x.size(0), 6, dtype=x.dtype).scatter_reduce(0, index, x[e[1]], reduce)

    return function


MODELS = {
    "GCNConv(aggr='max')": lambda: pyg.GCNConv(6, 3, aggr="max"),
    "GCNConv(improved)": lambda: pyg.GCNConv(6, 3, improved=True),
    "GCNConv(add_self_loops=False)": lambda: pyg.GCNConv(6, 3, add_self_loops=False),
    "GCNConv(cached=True)": lambda: pyg.GCNConv(6, 3, aggr="mean", cached=True),
    "SAGEConv(flow)": lambda: pyg.SAGEConv(6, 3, flow="target_to_source"),
    "tutorial": TutorialGCN,
    "source degree": SourceDegree,
    "sum by hand": Sparse,
    "virtual node": lambda: Between(Function(lambda x: x + pyg.global_add_pool(x, None))),
    "mean over nodes": lambda: Between(Function(lambda x: x - x.mean(0))),
    "softmax over nodes": lambda: Between(Function(lambda x: x.softmax(0))),
    "number of nodes": lambda: Between(Function(lambda x: x * x.size(0) ** -0.5)),
    "sum by number of nodes": lambda: Between(Function(lambda x: x - x.sum(0) / x.size(0))),
    "control flow": lambda: Between(Function(lambda x: 2 * x if (x > 4.5).any() else x)),
    "linear attention": lambda: Between(Function(lambda x: x @ (x.t() @ x))),
    "dense attention": lambda: Between(Function(lambda x: (x @ x.t()).softmax(-1) @ x)),
    "LayerNorm graph": lambda: Between(norms.LayerNorm(6)),
    "GraphSizeNorm": lambda: Between(norms.GraphSizeNorm()),
    "BatchNorm": lambda: Between(norms.BatchNorm(6)),
    "GraphNorm": lambda: Between(norms.GraphNorm(6)),
    "PairNorm": lambda: Between(norms.PairNorm()),
    "InstanceNorm": lambda: Between(norms.InstanceNorm(6, track_running_stats=True)),
    "GPSConv": lambda: pyg.GPSConv(6, pyg.GCNConv(6, 6), heads=2),
    "APPNP": lambda: pyg.APPNP(3, 0.1),
    "ChebConv": lambda: pyg.ChebConv(6, 3, 3),
    "GATv2Conv": lambda: pyg.GATv2Conv(6, 3, heads=2, dropout=0.5),
    "median": lambda: Between(nn.ReLU(), aggr="median"),
    "layer_norm of all": lambda: Between(Function(lambda x: nn.functional.layer_norm(x, x.shape))),
    "addmm": lambda: Between(Function(lambda x: torch.addmm(x, x, torch.eye(6), alpha=0.5))),
    "addmm of nodes": lambda: Between(
        Function(lambda x: x @ torch.addmm(torch.eye(6), x.t(), x, beta=0.1))
    ),
    "tensordot": lambda: Between(Function(lambda x: x @ torch.tensordot(x, x, ([0], [0])))),
    "cov": lambda: Between(Function(lambda x: x @ torch.cov(x.t()))),
    "aminmax": lambda: Between(
        Function(lambda x: (x - torch.aminmax(x, dim=0).min) / torch.aminmax(x).max)
    ),
    "kthvalue": lambda: Between(Function(lambda x: x - x.kthvalue(5, 0).values)),
    "kthvalue of features": lambda: Between(Function(lambda x: x - x.kthvalue(2, 1, True).values)),
    "topk of features": lambda: Between(Function(lambda x: x * x.topk(2).values.sum(1, True))),
    "topk": lambda: Between(Function(lambda x: x - x.topk(4, 0).values.mean(0))),
    "GraphSAGE": lambda: pyg.GraphSAGE(6, 8, 2, 3, norm="layer", dropout=0.5),
    "first rows": lambda: Between(Function(lambda x: x - x[:1])),
    "order": lambda: Between(Function(lambda x: x[x[:, 0].argsort()])),
    **{f"{r} onto sources": lambda r=r: Function(onto_sources(r)) for r in REDUCTIONS},
}


@pytest.mark.parametrize("name", MODELS)
def test_models_equal_the_plain_one(graph, name):
    torch.manual_seed(0)
    model = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for size in (1, 3):
        assert prove(model, to_prove(graph, size)).error < LIMIT
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert "forward" not in vars(model)


def test_layers_are_sparse_products_where_they_are_equal(graph):
    part = to_prove(graph, 2)
    assert prove(nn.ModuleDict({"a": pyg.GCNConv(6, 3)})["a"], part).fast == ("",)
    assert prove(pyg.GCNConv(6, 3, aggr="max"), part).fast == ()
    assert prove(pyg.GraphSAGE(6, 8, 2, 3), part).fast == ("convs.0", "convs.1")
    for linear in (
        pyg.APPNP(3, 0.1),
        pyg.SGConv(6, 3, K=2),
        pyg.SGConv(6, 9, K=2),
        pyg.GATConv(6, 3, heads=2, residual=True),
        pyg.GATConv(6, 4, 3, concat=False),
        pyg.SSGConv(6, 3, alpha=0.1, K=2),
        pyg.LGConv(),
        pyg.LGConv(normalize=False),
        pyg.TAGConv(6, 3),
        pyg.TAGConv(6, 9, K=2),
        pyg.TAGConv(6, 3, normalize=False),
        pyg.ARMAConv(6, 3, num_stacks=2, num_layers=3, dropout=0.5),
        pyg.ARMAConv(6, 3, num_layers=2, shared_weights=True),
        pyg.GATv2Conv(6, 3, heads=2),
        pyg.GATv2Conv(6, 4, 3, concat=False),
        pyg.GATv2Conv(6, 3, residual=True),
        pyg.GATv2Conv(6, 3, share_weights=True, add_self_loops=False),
        pyg.GATConv(6, 3, add_self_loops=False, negative_slope=0.0),
    ):
        assert prove(linear, part).fast == ("",)
    for other in (
        pyg.APPNP(3, 0.1, dropout=0.5),
        pyg.SGConv(6, 3, K=2, cached=True),
        pyg.SGConv(6, 3, add_self_loops=False),
        pyg.GATConv(6, 3, dropout=0.5),
        pyg.GATConv(6, 3, aggr="max"),
    ):
        assert prove(other, part).fast == ()


class Embedding(nn.Module):
    def __init__(self, nodes):
        super().__init__()
        self.rows, self.conv = nn.Parameter(torch.zeros(nodes, 6)), pyg.SAGEConv(6, 3)

    def forward(self, x, edge_index):
        return self.conv(x + self.rows, edge_index)


REFUSED = {
    "first rows": (lambda: OnSections(lambda h, e: h - h[:1]), r"module \(the model itself\)"),
    "gumbel over nodes": (
        lambda: OnSections(lambda h, e: nn.functional.gumbel_softmax(h, dim=0)),
        "gumbel_softmax over nodes",
    ),
    "permutation": (
        lambda: OnSections(lambda h, e: h + h[torch.randperm(h.size(0))]),
        "random numbers of randperm",
    ),
    "order": (lambda: OnSections(lambda h, e: h[h[:, 0].argsort()]), r"\(the model itself\)"),
    "one row": (lambda: Function(lambda x, edges: x.mean(0, keepdim=True)), "one per node"),
    "embedding": (lambda: Embedding(50), "on a graph of 41 nodes.*a graph of any size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_is_refused_with_the_first_module(graph, name):
    make, message = REFUSED[name]
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=message):
        NodeClassification(make(), to_prove(graph, 3))


def test_layers_with_messages_need_whole_rows(graph):
    part = to_prove(graph, 4)
    part.grid = ProcessGrid(2, 2)
    assert prove(pyg.GCNConv(6, 3), part).fast == ("",)
    with pytest.raises(ConfigError, match=r"algorithm=1d"):
        prove(pyg.GATConv(6, 3), part)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = pyg.GCNConv(6, 6), pyg.GATConv(6, 3, edge_dim=2)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        return self.last(self.conv(x, edge_index, edge_weight), edge_index, edge_attr)


def test_edge_weights_and_features_are_used(graph):
    r = np.random.default_rng(0)
    graph.edge_weight = r.uniform(size=graph.num_edges).astype(np.float32)
    graph.edge_attr = r.normal(size=(graph.num_edges, 2)).astype(np.float32)
    part = to_prove(graph, 3)
    model = Weighted()
    assert prove(model, part).error < LIMIT
    x = torch.from_numpy(graph.features)
    edges = torch.from_numpy(np.stack([graph.source, graph.target]))
    weights = torch.from_numpy(graph.edge_weight), torch.from_numpy(graph.edge_attr)
    plain = model(x, edges, *weights)
    assert torch.allclose(attach(model, part)(x[part.nodes]), plain[part.nodes], atol=1e-5)
    with pytest.raises(ConfigError, match="edge_attr, which GCNConv"):
        prove(pyg.GCNConv(6, 3), part)


def test_a_float64_model_is_exact_in_float64(graph):
    torch.manual_seed(0)
    model = pyg.GraphSAGE(6, 8, 2, 3).double()
    part = to_prove(graph, 1)
    x = torch.from_numpy(graph.features).double()
    plain = model(x, torch.from_numpy(np.stack([graph.source, graph.target])))
    error = (attach(model, part)(x[part.nodes]) - plain[part.nodes]).abs().max()
    assert error < 1e-13


def test_edge_weights_of_float64_stay_exact(graph):
    graph.edge_weight = np.random.default_rng(0).uniform(size=graph.num_edges)
    graph.__post_init__()
    model, part = pyg.GCNConv(6, 3).double(), to_prove(graph, 1)
    x = torch.from_numpy(graph.features).double()
    edges = torch.from_numpy(np.stack([graph.source, graph.target]))
    plain = model(x, edges, torch.from_numpy(graph.edge_weight))
    error = (attach(model, part)(x[part.nodes]) - plain[part.nodes]).abs().max()
    assert error < 1e-13


class EmptyRank(SingleProcess):
    """Rank 0 of two, of which the other has no edges."""

    size = 2

    def start(self, send, sent, receive, received):
        receive[: len(receive) // 2] = send[: len(receive) // 2]
        receive[len(receive) // 2 :] = 0
        return lambda: None


def test_a_process_without_edges_is_refused_for_layers_with_messages(graph):
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(2), EmptyRank())
    assert prove(pyg.GCNConv(6, 3), part).fast == ("",)
    with pytest.raises(ConfigError, match="process 1 has no edges"):
        prove(pyg.TransformerConv(6, 3), part)


BRANCHES = {
    "size > 45": lambda h, e: 2 * h if h.size(0) > 45 else h,
    "shape >= 50": lambda h, e: 2 * h if h.shape[0] >= 50 else h,
    "40 < size": lambda h, e: 2 * h if 40 < h.size(0) else h,
    "size == 50": lambda h, e: 2 * h if h.size(0) == 50 else h,
    "size != 50": lambda h, e: 2 * h if h.size(0) != 50 else h,
    "edges": lambda h, e: 2 * h if e.size(1) > 200 else h,
    "edges by name": lambda h, e: 2 * h if e.size(dim=1) > 200 else h,
    "product": lambda h, e: 2 * h if h.size(0) * h.size(1) > 290 else h,
    "numel": lambda h, e: 2 * h if h.numel() > 290 else h,
    "numel of edges": lambda h, e: 2 * h if torch.numel(e) > 430 else h,
    "floor": lambda h, e: h * (h.size(0) // 49),
    "remainder": lambda h, e: h * (1 + h.size(0) % 7),
    "min": lambda h, e: h * (1.0 if min(h.size(0), 45) == 45 else 2.0),
    "if size": lambda h, e: 2 * h if h.size(0) - 50 else h,
    "mean degree": lambda h, e: h * (e.size(1) / h.size(0) > 4.3),
    "len": lambda h, e: 2 * h if len(h) > 45 else h,
}


class Branch(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.first, self.last, self.branch = pyg.SAGEConv(6, 6), pyg.SAGEConv(6, 3), branch

    def forward(self, x, edge_index):
        return self.last(self.branch(self.first(x, edge_index), edge_index), edge_index)


@pytest.mark.parametrize("name", BRANCHES)
def test_what_depends_on_the_size_sees_the_whole_graph(graph, name):
    """The real graph of 50 nodes, 220 edges takes another path than that of the check."""
    torch.manual_seed(0)
    model = Branch(BRANCHES[name])
    x, pair = torch.from_numpy(graph.features), np.stack([graph.source, graph.target])
    plain = model(x, torch.from_numpy(pair)).detach()
    owner = np.arange(graph.num_nodes) % 2

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        with torch.no_grad():
            return attach(copy.deepcopy(model), part)(x[part.nodes]) - plain[part.nodes]

    if name == "len":
        with pytest.raises(ConfigError, match=r"on the real graph.*x.size\(0\) instead of len"):
            run_ranks(2, work, Traffic)
    else:
        assert max(float(off.abs().max()) for off in run_ranks(2, work, Traffic)) < 1e-5


NOT_BY_ROW = {
    "sorted nodes": lambda h: h - h.sort(0).values,
    "distances to all nodes": lambda h: h * torch.cdist(h, h, 1).sum(1, keepdim=True),
    "roll of the nodes": lambda h: h + h.roll(1, 0),
    "roll of the features": lambda h: h + h.roll(1, 1),
    "loss in the model": lambda h: h * nn.functional.mse_loss(h, torch.zeros_like(h)),
    "likeness of two features": lambda h: h * nn.functional.cosine_similarity(h, h + 1, dim=0),
    "Fourier transform of the nodes": lambda h: torch.fft.rfft(h, dim=0).abs().mean(0) * h,
    "Fourier transform of the features": lambda h: torch.fft.fft(h).real,
    "inverse over features": lambda h: h @ torch.linalg.inv(h.t() @ h + torch.eye(6)),
    "singular values of the nodes": lambda h: h * torch.linalg.svdvals(h)[:1],
    "running maximum": lambda h: h + h.cummax(0).values,
    "padded nodes": lambda h: h + nn.functional.pad(h, (0, 0, 1, 0))[:-1].mean(0),
    "trace": lambda h: h * torch.trace(h),
    "norms of features": lambda h: torch.renorm(h, 2, 1, 0.5),
    "norms of rows": lambda h: torch.renorm(h, 2, 0, 0.5),
    "windows over the rows": lambda h: h * h.unfold(0, 2, 1).prod(2).mean(),
    "differences of neighbours": lambda h: h * h.diff(dim=0).square().mean(),
    "outer product": lambda h: h + torch.outer(h[:, 0], h[:, 1]).mean(1, keepdim=True),
    "groups by value": lambda h: h * torch.unique((h[:, 0] > 0).long()).numel(),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", NOT_BY_ROW)
def test_functions_without_a_rule_see_all_rows(graph, name, size):
    """Values and gradients on the real graph are those of the plain model."""
    torch.manual_seed(0)
    model = Branch(lambda h, e: NOT_BY_ROW[name](h)).double()
    x, pair = torch.from_numpy(graph.features).double(), np.stack([graph.source, graph.target])
    plain = copy.deepcopy(model)
    expected = plain(x, torch.from_numpy(pair))
    expected.square().sum().backward()
    owner = np.random.default_rng(1).integers(size, size=graph.num_nodes)

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(size), ranks)
        ours = attach(copy.deepcopy(model), part)
        own = ours(x[part.nodes])
        own.square().sum().backward()
        grads = [p.grad for p in ours.parameters()]
        return (own - expected[part.nodes]).abs().max().item(), grads

    records = run_ranks(size, work, Traffic)
    assert max(off for off, _ in records) < 1e-10 * float(expected.detach().abs().max())
    for number, parameter in enumerate(plain.parameters()):
        total = sum(grads[number] for _, grads in records)
        assert torch.allclose(total, parameter.grad, rtol=1e-8, atol=1e-8), number


ON_ONE_PROCESS = {
    "float": lambda x: x.float(),
    "first row": lambda x: x - x[:1],
    "50 rows": lambda x: x + torch.linspace(0, 1, 50)[:, None],
    "order": lambda x: x[x[:, 0].argsort()],
    "embedding": lambda x: nn.functional.embedding(x.long()[:, 0], torch.eye(6)),
    "counts": lambda x: torch.bincount(x.long()[:, 0])[x.long()[:, 0]][:, None].expand(-1, 6),
}


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("name", ON_ONE_PROCESS)
def test_one_process_runs_what_runs_on_the_whole_graph(graph, name, hub):
    graph.features = np.abs(np.round(graph.features))
    graph.target[: 100 * hub] = 30
    graph.edge_weight = np.linspace(0, 1, graph.num_edges, dtype=np.float32)
    torch.manual_seed(0)
    model = OneInput(ON_ONE_PROCESS[name])
    x, pair = torch.from_numpy(graph.features), np.stack([graph.source, graph.target])
    plain = model(x, torch.from_numpy(pair), torch.from_numpy(graph.edge_weight))
    part = GraphPart(graph, np.zeros(50, int), ProcessGrid(1), SingleProcess())
    off = attach(model, part)(x[part.nodes]) - plain[part.nodes]
    assert float(off.detach().abs().max()) < 1e-5


class OneInput(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.function = pyg.GraphConv(6, 3), function

    def forward(self, x, edge_index, edge_weight):
        return self.conv(self.function(x).to(self.conv.lin_rel.weight), edge_index, edge_weight)


def test_layers_that_get_their_shape_from_the_first_input(graph):
    model = nn.ModuleDict({"a": pyg.SAGEConv((-1, -1), 3)})["a"]
    assert prove(model, to_prove(graph, 3)).error < LIMIT
    assert tuple(model.lin_l.weight.shape) == (3, 6)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_normalised_weights_are_copied(graph):
    model = Between(nn.utils.weight_norm(nn.Linear(6, 6)))
    model.middle(torch.zeros(1, 6))
    assert prove(model, to_prove(graph, 3)).error < LIMIT


class Recomputed(nn.Module):
    """Layers whose activations are computed again in the backward pass."""

    def __init__(self, layer, *, reentrant):
        super().__init__()
        self.first, self.layer, self.last = pyg.SAGEConv(6, 6), layer, pyg.SAGEConv(6, 3)
        self.reentrant = reentrant

    def forward(self, x, edge_index):
        x = self.first(x, edge_index)
        x = checkpoint(self.layer, x, edge_index, use_reentrant=self.reentrant)
        return self.last(x, edge_index)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: pyg.GENConv(6, 6, norm="layer"),
        lambda: pyg.GATConv(6, 6, dropout=0.5),
        lambda: pyg.GCNConv(6, 6, aggr="max"),
        lambda: pyg.TransformerConv(6, 3, heads=2),
        lambda: Dropped(),
    ],
)
def test_recomputed_layers_exchange_halos_again(graph, make, reentrant):
    torch.manual_seed(0)
    model = Recomputed(make(), reentrant=reentrant)
    assert prove(model, to_prove(graph, 3)).error < LIMIT
    # Dropout masks are those of the first pass.
    part = to_prove(graph, 1)
    gradients = []
    for recompute in (True, False):
        same = copy.deepcopy(model)
        if not recompute:
            same.__class__ = type("Plain", (Recomputed,), {"forward": without_checkpoint})
        out = attach(same, part)(torch.from_numpy(graph.features)[part.nodes])
        out.square().sum().backward()
        gradients.append([p.grad for p in same.parameters()])
    for ours, plain in zip(*gradients, strict=True):
        assert torch.allclose(ours, plain, atol=1e-5)


def without_checkpoint(model, x, edge_index):
    x = model.first(x, edge_index)
    return model.last(model.layer(x, edge_index), edge_index)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GATv2Conv(6, 6, dropout=0.3)

    def forward(self, x, edge_index):
        return nn.functional.dropout(self.conv(x, edge_index), 0.5, self.training)


def reached(h, many):
    if (h.abs() > many).any():
        h = 2 * h
    return h


@pytest.mark.parametrize(("many", "refused"), [(1e-9, False), (1e9, False), (50.0, True)])
def test_code_that_the_check_did_not_reach_is_refused_on_large_graphs(
    graph, monkeypatch, many, refused
):
    """Values of the real graph take another path than those of the check, on every rank."""
    monkeypatch.setattr("scitoolkit.graphs.proof_check.REAL_GRAPH", 10)
    graph.features[3] = 1e4
    torch.manual_seed(0)
    model = Between(Function(lambda h: reached(h, many)))
    x, owner = torch.from_numpy(graph.features), np.arange(graph.num_nodes) % 2

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        own = attach(copy.deepcopy(model), part)
        with torch.no_grad():
            own(x[part.nodes])
            own.eval()(x[part.nodes])

    if refused:
        with pytest.raises(ConfigError, match=r"mul at test_proof.py:\d+ is reached on this graph"):
            run_ranks(2, work, Traffic)
    else:
        run_ranks(2, work, Traffic)


class Reversible(nn.Module):
    """An invertible layer, which frees its input, and its output in the backward pass."""

    def __init__(self, after):
        super().__init__()
        self.before = nn.Linear(6, 6)
        self.layer = pyg.GroupAddRev(pyg.SAGEConv(3, 3), num_groups=2)
        self.after = nn.Linear(6, 6) if after else nn.Identity()

    def forward(self, x, edge_index):
        return self.after(self.layer(self.before(x), edge_index))


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_invertible_layers_are_equal_and_stay_invertible(graph, ranks, after):
    model = Reversible(after)
    assert prove(model, to_prove(graph, ranks)).error < LIMIT

    def work(ranks):
        part = GraphPart(
            graph, np.arange(graph.num_nodes) % ranks.size, ProcessGrid(ranks.size), ranks
        )
        own = distribute(copy.deepcopy(model), part)
        return own.layer.disable, detach(own).layer.disable

    assert run_ranks(ranks, work, Traffic) == [(ranks > 1, False)] * ranks


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gumbel_softmax_draws_the_same_for_a_row_on_any_number_of_ranks(graph, ranks, hard):
    model = Between(Function(lambda x: nn.functional.gumbel_softmax(x, tau=0.7, hard=hard)))
    assert prove(model, to_prove(graph, ranks)).error < LIMIT
