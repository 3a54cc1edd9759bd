"""Models as users of torch-geometric write them, after its examples and its `nn.models`.

Each is a constructor of a module called with (x, edge_index) and, if its forward names them,
edge_weight and edge_attr. Nothing in them knows that the graph may be distributed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from _graph_user_functions import BETWEEN, REWIRED
from _graph_user_layers import (
    ByHand,
    Checkpointed,
    Egnn,
    Encoder,
    Gated,
    Global,
    Gps,
    Infomax,
    LaplacianSmoothing,
    Linkx,
    Masked,
    OwnAttention,
    OwnBackwards,
    OwnEdgeConv,
    OwnEdgeUpdate,
    OwnGcn,
    OwnUpdate,
    Recurrent,
    Relations,
    SchNetLayer,
    Signed,
    Spline,
    VirtualNode,
    WithEdges,
)
from _graph_user_networks import (
    WIDTH,
    Appnp,
    Arma,
    Around,
    Dagnn,
    DeepGcn,
    Dna,
    Gat,
    GatPpi,
    Gcn,
    Gcn2,
    Jumping,
    MeshNet,
    Meta,
    Ogb,
    RevGnn,
    Rewired,
    Sign,
    Stack,
    UniMp,
    gat,
    mlp,
)
from torch import Tensor, nn
from torch_geometric import utils


class Aggregated(nn.Module):
    """Another aggregation in a convolution, as `aggr=`."""

    def __init__(self, aggr: Any, **more: Any) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, WIDTH, aggr=aggr, aggr_kwargs=more or None)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).tanh()


class GraphUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = pyg.GraphUNet(WIDTH, 8, WIDTH, depth=2, pool_ratios=0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.net(x, edge_index)


class Embedded(nn.Module):
    """Sign patterns of the features as classes of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.conv = nn.Embedding(8, WIDTH), pyg.SAGEConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        kind = ((x[:, :3] > 0).long() * torch.tensor([1, 2, 4])).sum(-1)
        return self.conv(self.embedding(kind) + x, edge_index)


class ParametrisedWeights(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv, lin = pyg.SAGEConv(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.lin = {
            "weight": nn.utils.weight_norm,
            "spectral": nn.utils.parametrizations.spectral_norm,
            "orthogonal": nn.utils.parametrizations.orthogonal,
        }[how](lin)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.conv(x, edge_index))


class FloatCast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x.to(self.conv.bias.dtype), edge_index)


class Hops(nn.Module):
    """Heterophily: ego, first and second hop apart (H2GCN)."""

    def __init__(self) -> None:
        super().__init__()
        self.prop, self.lin = pyg.SimpleConv(aggr="mean"), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        one = self.prop(x, edge_index)
        return self.lin(torch.cat([x, one, self.prop(one, edge_index)], dim=-1))


class Gprgnn(nn.Module):
    """Generalised PageRank with learned weights of the hops."""

    def __init__(self, hops: int = 5) -> None:
        super().__init__()
        self.lin, self.conv = mlp(WIDTH, WIDTH), pyg.LGConv()
        self.temp = nn.Parameter(0.1 * 0.9 ** torch.arange(hops + 1.0))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lin(F.dropout(x, 0.5, self.training))
        out = x * self.temp[0]
        for k in range(1, len(self.temp)):
            x = self.conv(x, edge_index)
            out = out + self.temp[k] * x
        return out


class Chebyshev(nn.Module):
    def __init__(self, normalization: str | None) -> None:
        super().__init__()
        self.conv = pyg.ChebConv(WIDTH, WIDTH, K=3, normalization=normalization)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        top = torch.tensor(2.5, dtype=x.dtype)
        return self.conv(x, edge_index, edge_weight, lambda_max=top).tanh()


class Alone(nn.Module):
    """A layer or model of the library, called with features and edges only."""

    def __init__(self, layer: nn.Module, before: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.before = layer, before or nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(self.before(x), edge_index)


class Tabular(nn.Module):
    """A decoder over time: each node has a sequence of values."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(2, WIDTH, batch_first=True)
        self.conv = pyg.GCNConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out, _ = self.rnn(x.view(x.size(0), 4, 2))
        return self.conv(out[:, -1], edge_index)


class Temporal(nn.Module):
    """Convolution in time, then over the graph (STGCN)."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.conv = nn.Conv1d(2, 8, 3, padding=1), pyg.GCNConv(32, 8)
        self.out = nn.Conv1d(8, WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.time(x.view(-1, 2, 4)).relu()  # (nodes, channels, times)
        h = self.conv(h.flatten(1), edge_index).relu()
        return self.out(h.unsqueeze(-1)).squeeze(-1)


def user_models() -> dict[str, Callable[[], nn.Module]]:
    """Return the constructors of the models by name."""
    sage, gcn = pyg.SAGEConv, pyg.GCNConv
    edge = {"edge_dim": 3}
    out: dict[str, Callable[[], nn.Module]] = {
        "GCN of the tutorial": Gcn,
        "GCN without self-loops": lambda: Gcn(add_self_loops=False),
        "GCN, improved": lambda: Gcn(improved=True),
        "GCN not normalised": lambda: Gcn(normalize=False),
        "GAT of the paper": Gat,
        "GATv2": lambda: Gat(pyg.GATv2Conv),
        "GAT with skips": GatPpi,
        "GCN2": Gcn2,
        "GCN2 of 8 layers": lambda: Gcn2(8),
        "ARMA": Arma,
        "APPNP with a network": Appnp,
        "DNA": Dna,
        "DAGNN": Dagnn,
        "jumping knowledge, cat": lambda: Jumping("cat"),
        "jumping knowledge, max": lambda: Jumping("max"),
        "jumping knowledge, lstm": lambda: Jumping("lstm"),
        "DeepGCN res+": lambda: DeepGcn("res+", ckpt=False),
        "DeepGCN res+, checkpointed": lambda: DeepGcn("res+", ckpt=True),
        "DeepGCN plain": lambda: DeepGcn("plain", ckpt=False),
        "DeepGCN dense": lambda: DeepGcn("dense", ckpt=False),
        "RevGNN": lambda: RevGnn(mask=False),
        "RevGNN with dropout mask": lambda: RevGnn(mask=True),
        "UniMP": UniMp,
        "SIGN": Sign,
        "OGB GCN": lambda: Ogb(gcn),
        "OGB SAGE": lambda: Ogb(sage),
        "OGB GAT": lambda: Ogb(gat(2)),
        "OGB GIN": lambda: Ogb(lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True)),
        "MeshGraphNet": MeshNet,
        "MetaLayer": Meta,
        "own GCN of the docs": lambda: Stack(OwnGcn),
        "own EdgeConv of the docs": lambda: Stack(OwnEdgeConv),
        "own attention": lambda: Stack(OwnAttention),
        "target to source": lambda: Stack(OwnBackwards),
        "own edge updates": lambda: Stack(OwnEdgeUpdate),
        "own update by a GRU": lambda: Stack(OwnUpdate),
        "by hand, index_add": lambda: ByHand(
            lambda e, t, n: torch.zeros(n, WIDTH, dtype=e.dtype).index_add_(0, t, e)
        ),
        "by hand, scatter_add": lambda: ByHand(
            lambda e, t, n: e.new_zeros(n, WIDTH).scatter_add(0, t[:, None].expand_as(e), e)
        ),
        "by hand, scatter_reduce": lambda: ByHand(
            lambda e, t, n: e.new_zeros(n, WIDTH).scatter_reduce(
                0, t.unsqueeze(1).expand(-1, WIDTH), e, "amax", include_self=False
            )
        ),
        "by hand, scatter of PyG": lambda: ByHand(
            lambda e, t, n: utils.scatter(e, t, 0, n, reduce="mean")
        ),
        "by hand, segment": lambda: ByHand(
            lambda e, t, n: pyg.aggr.MeanAggregation()(e, t, dim_size=n)
        ),
        "by hand, put": lambda: ByHand(
            lambda e, t, n: e.new_zeros(n, WIDTH).index_put((t,), e, accumulate=True)
        ),
        "EGNN": Egnn,
        "SchNet block": SchNetLayer,
        "GraphGPS multihead": lambda: Gps("multihead"),
        "GraphGPS performer": lambda: Gps("performer"),
        "SGFormer": lambda: Global("SGFormer"),
        "Polynormer": lambda: Global("Polynormer"),
        "LINKX without adjacency": Linkx,
        "GAE encoder": lambda: Encoder(variational=False),
        "VGAE encoder": lambda: Encoder(variational=True),
        "deep graph infomax": Infomax,
        "checkpoint": lambda: Checkpointed(reentrant=False),
        "checkpoint, reentrant": lambda: Checkpointed(reentrant=True),
        "virtual node of OGB": VirtualNode,
        "squeeze and excitation": Gated,
        "recurrent GRU": lambda: Recurrent("GRUCell"),
        "recurrent LSTM": lambda: Recurrent("LSTMCell"),
        "label propagation": lambda: LaplacianSmoothing("clamp"),
        "smoothing": lambda: LaplacianSmoothing("none"),
        "MoNet": Spline,
        "GAT with edges": lambda: WithEdges(lambda a, b: pyg.GATConv(a, b, **edge)),
        "GATv2 with edges": lambda: WithEdges(lambda a, b: pyg.GATv2Conv(a, 4, 2, **edge)),
        "transformer with edges": lambda: WithEdges(
            lambda a, b: pyg.TransformerConv(a, 4, 2, dropout=0.2, **edge), nn.LayerNorm
        ),
        "GINE": lambda: WithEdges(lambda a, b: pyg.GINEConv(mlp(a, b), **edge), nn.BatchNorm1d),
        "NNConv": lambda: WithEdges(lambda a, b: pyg.NNConv(a, b, mlp(3, a * b), aggr="mean")),
        "CGCNN": lambda: WithEdges(lambda a, b: pyg.CGConv(a, dim=3, batch_norm=True)),
        "ResGated with edges": lambda: WithEdges(lambda a, b: pyg.ResGatedGraphConv(a, b, **edge)),
        "GENConv with edges": lambda: WithEdges(lambda a, b: pyg.GENConv(a, b, **edge)),
        "PNA with edges": lambda: WithEdges(
            lambda a, b: pyg.PNAConv(
                a,
                b,
                aggregators=["mean", "min", "max", "std"],
                scalers=["identity", "amplification", "attenuation"],
                deg=torch.tensor([0, 2, 9, 20, 15, 9, 5, 3, 1]),
                towers=2,
                **edge,
            ),
            pyg.BatchNorm,
        ),
        "GeneralConv with edges": lambda: WithEdges(
            lambda a, b: pyg.GeneralConv(a, b, in_edge_channels=3, attention=True, heads=2)
        ),
        "PDN": lambda: WithEdges(lambda a, b: pyg.PDNConv(a, b, edge_dim=3, hidden_channels=8)),
        "RGCN": lambda: Relations(pyg.RGCNConv),
        "RGCN of bases": lambda: Relations(pyg.RGCNConv, num_bases=2),
        "RGCN of blocks": lambda: Relations(pyg.RGCNConv, num_blocks=4),
        "FastRGCN": lambda: Relations(pyg.FastRGCNConv),
        "FiLM of relations": lambda: Relations(pyg.FiLMConv),
        "RGAT": lambda: Relations(pyg.RGATConv),
        "edges by mask": Masked,
        "signed GCN": Signed,
        "Graph U-Net": GraphUNet,
        "embedding": Embedded,
        "weight norm": lambda: ParametrisedWeights("weight"),
        "spectral norm": lambda: ParametrisedWeights("spectral"),
        "orthogonal": lambda: ParametrisedWeights("orthogonal"),
        "cast of the features": FloatCast,
        "H2GCN hops": Hops,
        "GPR-GNN": Gprgnn,
        "ChebNet, sym": lambda: Chebyshev("sym"),
        "ChebNet, rw": lambda: Chebyshev("rw"),
        "ChebNet, unnormalised": lambda: Chebyshev(None),
        "cached GCN": lambda: Alone(gcn(WIDTH, WIDTH, cached=True)),
        "cached SGC": lambda: Alone(pyg.SGConv(WIDTH, WIDTH, K=2, cached=True)),
        "cached APPNP": lambda: Alone(pyg.APPNP(4, 0.2, cached=True), nn.Linear(WIDTH, WIDTH)),
        "LSTM per node": lambda: Tabular("LSTM"),
        "GRU per node": lambda: Tabular("GRU"),
        "STGCN": Temporal,
        "SAGE with projection": lambda: Stack(lambda a, b: sage(a, b, project=True)),
        "SAGE normalised": lambda: Stack(lambda a, b: sage(a, b, normalize=True)),
        "SAGE, max": lambda: Stack(lambda a, b: sage(a, b, aggr="max"), norm=pyg.LayerNorm),
        "lazy SAGE": lambda: Stack(lambda a, b: sage((-1, -1), b)),
        "lazy GAT": lambda: Stack(lambda a, b: pyg.GATConv(-1, b, add_self_loops=False)),
        "bipartite SAGE of one set": lambda: Rewired(lambda e, x: e, lambda a, b: sage((a, a), b)),
        "deep GCN with PairNorm": lambda: Stack(
            gcn, depth=6, norm=lambda n: pyg.PairNorm(), residual=True
        ),
        "GCN with GraphNorm": lambda: Stack(gcn, norm=pyg.GraphNorm),
        "GCN with InstanceNorm": lambda: Stack(gcn, norm=pyg.InstanceNorm),
        "GCN with BatchNorm": lambda: Stack(gcn, norm=pyg.BatchNorm, before=True, after=True),
        "GCN with LayerNorm of nodes": lambda: Stack(
            gcn, norm=lambda n: pyg.LayerNorm(n, mode="node")
        ),
        "GCN with DiffGroupNorm": lambda: Stack(gcn, norm=lambda n: pyg.DiffGroupNorm(n, 4)),
        "GatedGraphConv": lambda: Stack(lambda a, b: pyg.GatedGraphConv(b, 3), depth=1),
        "GAT of 4 heads": lambda: Stack(gat(4), between=F.elu),
        "directed SAGE": lambda: Stack(lambda a, b: pyg.DirGNNConv(sage(a, b))),
        "directed GCN": lambda: Stack(lambda a, b: pyg.DirGNNConv(gcn(a, b), alpha=0.3)),
        "MixHop": lambda: Stack(lambda a, b: pyg.MixHopConv(a, 4, powers=[0, 2]), depth=1),
        "anti-symmetric": lambda: Stack(
            lambda a, b: pyg.AntiSymmetricConv(b, num_iters=3), depth=2
        ),
        "hypergraph": lambda: Stack(lambda a, b: pyg.HypergraphConv(a, b)),
        "TAG": lambda: Stack(lambda a, b: pyg.TAGConv(a, b, K=2)),
        "ClusterGCN": lambda: Stack(
            lambda a, b: pyg.ClusterGCNConv(a, b, diag_lambda=0.1), norm=nn.BatchNorm1d
        ),
        "EGC": lambda: Stack(
            lambda a, b: pyg.EGConv(a, b, aggregators=["symnorm", "max", "std"], num_heads=2)
        ),
        "PMLP": lambda: Alone(pyg.PMLP(WIDTH, 16, WIDTH, 3)),
        "GraphSAGE, project": lambda: Alone(
            pyg.GraphSAGE(WIDTH, 16, 3, WIDTH, dropout=0.3, jk="last")
        ),
        "GAT model v2": lambda: Alone(
            pyg.GAT(WIDTH, 16, 2, WIDTH, v2=True, heads=2, norm="BatchNorm")
        ),
        "GIN model": lambda: Alone(pyg.GIN(WIDTH, 16, 3, WIDTH, norm="GraphNorm", jk="cat")),
        "GCN model with residuals by lstm": lambda: Alone(pyg.GCN(WIDTH, 16, 3, WIDTH, jk="lstm")),
        "sequential": lambda: Alone(
            pyg.Sequential(
                "x, edge_index",
                [
                    (gcn(WIDTH, 16), "x, edge_index -> x"),
                    nn.ReLU(inplace=True),
                    (nn.Dropout(0.5), "x -> x"),
                    (gcn(16, 16), "x, edge_index -> x1"),
                    nn.ReLU(inplace=True),
                    (lambda a, b: [a, b], "x, x1 -> xs"),
                    (pyg.JumpingKnowledge("cat"), "xs -> x"),
                    nn.Linear(32, WIDTH),
                ],
            )
        ),
        "softmax aggregation": lambda: Aggregated("softmax", learn=True),
        "powermean aggregation": lambda: Aggregated("powermean", learn=True),
        "quantile aggregation": lambda: Aggregated(pyg.aggr.QuantileAggregation(0.3)),
        "degree-scaled aggregation": lambda: Aggregated(
            pyg.aggr.DegreeScalerAggregation(
                ["mean"], ["linear"], torch.tensor([0, 2, 9, 20, 15, 9, 5])
            )
        ),
        "attentional aggregation": lambda: Aggregated(
            pyg.aggr.AttentionalAggregation(nn.Linear(WIDTH, 1))
        ),
        "deep sets aggregation": lambda: Aggregated(
            pyg.aggr.DeepSetsAggregation(mlp(WIDTH, WIDTH), mlp(WIDTH, WIDTH))
        ),
    }
    out |= {f"{name}, rewired": lambda f=f: Rewired(f) for name, f in REWIRED.items()}
    out |= {f"{name}, between": lambda f=f: Around(f) for name, f in BETWEEN.items()}
    return out
