"""Catalogue of torch-geometric models, generated from the lists of the installed version."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import norm as norms
from torch_geometric.nn.conv import __all__ as convolutions

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import prove
from scitoolkit.training.ranks.communicator import SingleProcess

WIDTH = 8
DEGREES = torch.tensor([0, 2, 9, 20, 15, 9, 5, 3, 1])
VALUES: dict[str, Any] = {
    "in_channels": WIDTH,
    "out_channels": WIDTH,
    "channels": WIDTH,
    "K": 3,
    "alpha": 0.1,
    "dim": 3,
    "kernel_size": 3,
    "num_relations": 3,
    "edge_dim": 3,
    "hidden_channels": WIDTH,
    "filter_size": 2,
    "num_layers": 2,
    "k": 3,
    "first_aggr": True,
    "separate_gaussians": False,
    "space_dimensions": 3,
    "propagate_dimensions": 3,
    "num_node_types": 2,
    "num_edge_types": 3,
    "edge_type_emb_dim": 4,
    "edge_attr_emb_dim": 4,
}


def _net(inputs: int, outputs: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh())


def _special(name: str) -> dict[str, Any]:
    """Arguments that a signature does not tell."""
    scalers = ["identity", "amplification"]
    pna = {"aggregators": ["mean", "max", "std"], "scalers": scalers, "deg": DEGREES, "edge_dim": 3}
    known: dict[str, dict[str, Any]] = {
        "GINConv": {"nn": _net(WIDTH)},
        "GINEConv": {"nn": _net(WIDTH), "edge_dim": 3},
        "NNConv": {"nn": _net(3, WIDTH * WIDTH)},
        "EdgeConv": {"nn": _net(2 * WIDTH)},
        "PointNetConv": {"local_nn": _net(WIDTH + 3)},
        "PPFConv": {"local_nn": _net(WIDTH + 4)},
        "PointGNNConv": {"mlp_h": _net(WIDTH, 3), "mlp_f": _net(WIDTH + 3), "mlp_g": _net(WIDTH)},
        "PNAConv": pna,
        "GATConv": {"heads": 2, "edge_dim": 3},
        "GATv2Conv": {"heads": 2, "edge_dim": 3},
        "TransformerConv": {"heads": 2, "edge_dim": 3},
        "GENConv": {"edge_dim": 3},
        "ResGatedGraphConv": {"edge_dim": 3},
        "CGConv": {"dim": 3, "batch_norm": True},
        "GeneralConv": {"in_edge_channels": 3},
        "RGATConv": {"edge_dim": 3},
        "SuperGATConv": {"heads": 2},
        "DynamicEdgeConv": {"nn": _net(2 * WIDTH), "k": 3},
    }
    return known.get(name, {})


def _convolution(name: str) -> nn.Module:
    kind = getattr(pyg, name)
    if name == "GPSConv":
        return kind(WIDTH, pyg.GCNConv(WIDTH, WIDTH), heads=2)
    if name == "DirGNNConv":
        return kind(pyg.SAGEConv(WIDTH, WIDTH))
    given = _special(name)
    for key, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.default is parameter.empty and key in VALUES:
            given.setdefault(key, VALUES[key])
    return kind(**given)


class Called(nn.Module):
    """Calls a layer with arguments selected by the parameter names of its forward."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor
    ) -> Tensor:
        place = x[:, :3]
        known = {
            "x": x,
            "x_0": 0.5 * x,
            "pos": place,
            "normal": place + 1,
            "node_type": (x[:, 0] > 0).long(),
            "edge_index": edge_index,
            "hyperedge_index": edge_index,
            "pos_edge_index": edge_index,
            "neg_edge_index": edge_index,
            "edge_weight": edge_weight,
            "edge_attr": edge_attr,
            "edge_type": (edge_attr[:, 0] > 0).long() + (edge_attr[:, 1] > 0).long(),
        }
        name, given = type(self.layer).__name__, {}
        optional = ("edge_weight", "edge_attr", "edge_type")
        skipped = {"SuperGATConv": "neg_edge_index", "FAConv": "edge_weight"}.get(name)
        for key, parameter in inspect.signature(self.layer.forward).parameters.items():
            needed = parameter.default is parameter.empty or key in optional
            if key in known and needed and key != skipped:
                given[key] = known[key]
        if ".models." in type(self.layer).__module__:
            given = {"x": x, "edge_index": edge_index}
        if name == "DNAConv":
            given["x"] = x.view(-1, 1, WIDTH).expand(-1, 3, WIDTH) * x.new_tensor([[1], [0.5], [2]])
        out = self.layer(**given)
        while isinstance(out, (tuple, list)):
            out = out[0]
        return out


class Between(nn.Module):
    """Two layers with something between them."""

    def __init__(self, middle: Any) -> None:
        super().__init__()
        self.first, self.last = pyg.SAGEConv(WIDTH, WIDTH), pyg.SAGEConv(WIDTH, WIDTH)
        self.middle = middle

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x, edge_index)), edge_index)


def catalogue() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Yield the name and the constructor of every model."""
    for name in convolutions:
        if name != "MessagePassing":
            yield name, lambda name=name: _convolution(name)
    for name in norms.__all__:
        if name not in ("HeteroBatchNorm", "HeteroLayerNorm", "MessageNorm"):
            yield name, lambda name=name: Between(_norm(name))
    for aggregation in (
        "sum",
        "mean",
        "max",
        "min",
        "mul",
        "var",
        "std",
        "softmax",
        "powermean",
        "median",
        "lstm",
        "VariancePreservingAggregation",
        ["mean", "max", "std"],
    ):
        yield (
            f"SAGEConv(aggr={aggregation})",
            lambda a=aggregation: pyg.SAGEConv(WIDTH, WIDTH, aggr=a),
        )
    yield "GCNConv(aggr=max)", lambda: pyg.GCNConv(WIDTH, WIDTH, aggr="max")
    pna = {"aggregators": ["mean", "max"], "scalers": ["identity", "attenuation"], "deg": DEGREES}
    for name, more in (
        ("GCN", {}),
        ("GraphSAGE", {"norm": "layer"}),
        ("GIN", {"norm": "batch"}),
        ("GAT", {"heads": 2, "jk": "cat"}),
        ("EdgeCNN", {"jk": "max"}),
        ("PNA", pna),
    ):
        yield name, lambda n=name, m=more: getattr(pyg, n)(WIDTH, WIDTH, 3, WIDTH, **m)
    by_hand: dict[str, Callable[[Tensor], Tensor]] = {
        "x - x.mean(0)": lambda x: x - x.mean(0),
        "virtual node": lambda x: x + pyg.global_add_pool(x, None),
        "pooling": lambda x: x + pyg.global_max_pool(x, torch.zeros(len(x), dtype=torch.long)),
        "x / x.norm()": lambda x: x / x.norm(),
        "linear attention": lambda x: x @ (x.t() @ x) / 64,
        "x.size(0) ** -.5": lambda x: x * x.size(0) ** -0.5,
        "softmax over nodes": lambda x: x.softmax(0),
        "dropout": lambda x: nn.functional.dropout(x, 0.5),
        "first rows": lambda x: x - x[:1],
        "random numbers": lambda x: x + torch.rand_like(x),
    }
    for name, function in by_hand.items():
        yield name, lambda f=function: Between(f)


def _norm(name: str) -> nn.Module:
    sizes = {
        "PairNorm": (),
        "GraphSizeNorm": (),
        "MeanSubtractionNorm": (),
        "DiffGroupNorm": (8, 2),
    }
    return getattr(norms, name)(*sizes.get(name, (WIDTH,)))


def part_of(size: int, *, edge_inputs: bool) -> GraphPart:
    """A graph with edge weights and features, to be proved on a number of ranks."""
    graph = Graph([0, 1], [1, 0], 4, np.zeros((4, WIDTH), np.float32))
    if edge_inputs:
        graph.edge_weight, graph.edge_attr = np.ones(2, np.float32), np.ones((2, 3), np.float32)
    part = GraphPart(graph, np.zeros(4, np.int64), ProcessGrid(1), SingleProcess())
    part.grid = ProcessGrid(size)
    return part


def constructible() -> list[str]:
    """Return the models of which all that they need is installed."""
    return [name for name, make in catalogue() if _made(make) is not None]


def runs_plainly(verdict: str) -> bool:
    """Return whether torch-geometric alone runs a model with real rows, by the proof's verdict."""
    return "not distributed" not in verdict and "returns torch.int64" not in verdict


def _made(make: Callable[[], nn.Module]) -> nn.Module | None:
    torch.manual_seed(0)
    try:
        return make()
    except (ImportError, TypeError, ValueError, AssertionError):
        return None  # needs a package that is not installed, or a graph of many types


def verdicts(sizes: tuple[int, ...]) -> dict[str, str]:
    """Prove every model that plain torch-geometric runs: equal, or why it is refused."""
    found: dict[str, str] = {}
    for name, make in catalogue():
        model = _made(make)
        if model is None:
            continue
        with_edges = not isinstance(model, Between)
        model = Called(model) if with_edges else model
        try:
            for size in sizes:
                prove(model, part_of(size, edge_inputs=with_edges))
            found[name] = "equal"
        except ConfigError as error:
            if runs_plainly(str(error)):
                found[name] = str(error)
        except Exception as error:
            found[name] = f"crash: {type(error).__name__}: {error}"
    return found


def random_graph(model: nn.Module) -> Graph:
    """Another graph than the proof's, and larger, with the edge inputs that a model reads."""
    r = np.random.default_rng(4)
    source, target = r.integers(150, size=(2, 900))
    order = np.lexsort((source, target))
    graph = Graph(source[order], target[order], 150, r.normal(size=(150, WIDTH)))
    weight, features = r.uniform(0.5, 1.5, 900), r.normal(size=(900, 3))
    accepted = inspect.signature(type(model).forward).parameters
    graph.edge_weight = weight if "edge_weight" in accepted else None
    graph.edge_attr = features if "edge_attr" in accepted else None
    return graph
