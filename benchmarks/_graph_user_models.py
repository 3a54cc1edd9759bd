"""Models as users of torch-geometric write them, after its examples and its `nn.models`.

Each is a constructor of a module called with (x, edge_index) and, if its forward names them,
edge_weight and edge_attr. Nothing in them knows that the graph may be distributed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric import utils
from torch_geometric.nn import MessagePassing

WIDTH = 8


class Stack(nn.Module):
    """Layers with something between them, as most examples are written."""

    def __init__(
        self,
        layer: Callable[[int, int], nn.Module],
        *,
        depth: int = 2,
        between: Callable[[Tensor], Tensor] = torch.relu,
        norm: Callable[[int], nn.Module] | None = None,
        residual: bool = False,
        before: bool = False,
        after: bool = False,
    ) -> None:
        super().__init__()
        self.before = nn.Linear(WIDTH, WIDTH) if before else nn.Identity()
        self.layers = nn.ModuleList(layer(WIDTH, WIDTH) for _ in range(depth))
        self.norms = nn.ModuleList(norm(WIDTH) if norm else nn.Identity() for _ in range(depth))
        self.after = nn.Linear(WIDTH, WIDTH) if after else nn.Identity()
        self.between, self.residual = between, residual

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.before(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = self.between(norm(layer(x, edge_index)))
            x = x + h if self.residual else h
        return self.after(x)


class Around(nn.Module):
    """A function of the rows and edges between two layers."""

    def __init__(self, function: Callable[..., Tensor], layer: Any = pyg.SAGEConv) -> None:
        super().__init__()
        self.first, self.last = layer(WIDTH, WIDTH), layer(WIDTH, WIDTH)
        self.function = function

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.function(self.first(x, edge_index), edge_index), edge_index)


class Rewired(nn.Module):
    """A function of the edges before the layers."""

    def __init__(self, function: Callable[..., Tensor], layer: Any = pyg.SAGEConv) -> None:
        super().__init__()
        self.first, self.last = layer(WIDTH, WIDTH), layer(WIDTH, WIDTH)
        self.function = function

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = self.function(edge_index, x)
        return self.last(self.first(x, edge_index).relu(), edge_index)


def gat(heads: int, kind: Any = pyg.GATConv) -> Callable[[int, int], nn.Module]:
    return lambda a, b: kind(a, b // heads, heads=heads)


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


class Gcn(nn.Module):  # examples/gcn.py
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(WIDTH, 16, **options)
        self.conv2 = pyg.GCNConv(16, WIDTH, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.conv2(x, edge_index, edge_weight), dim=-1)


class Gat(nn.Module):  # examples/gat.py
    def __init__(self, kind: Any = pyg.GATConv) -> None:
        super().__init__()
        self.conv1 = kind(WIDTH, 4, 4, dropout=0.6)
        self.conv2 = kind(16, WIDTH, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class GatPpi(nn.Module):  # examples/ppi.py
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lin1 = pyg.GATConv(WIDTH, 4, heads=4), nn.Linear(WIDTH, 16)
        self.conv2, self.lin2 = pyg.GATConv(16, 4, heads=4), nn.Linear(16, 16)
        self.conv3 = pyg.GATConv(16, WIDTH, heads=6, concat=False)
        self.lin3 = nn.Linear(16, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        x = F.elu(self.conv2(x, edge_index) + self.lin2(x))
        return self.conv3(x, edge_index) + self.lin3(x)


class Gcn2(nn.Module):  # examples/gcn2_cora.py
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)])
        self.convs = nn.ModuleList(
            pyg.GCN2Conv(16, 0.1, 0.5, k + 1, shared_weights=True) for k in range(layers)
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, 0.6, training=self.training)
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = F.dropout(x, 0.6, training=self.training)
            x = conv(x, x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)


class Arma(nn.Module):  # examples/arma.py
    def __init__(self) -> None:
        super().__init__()
        more = {"num_stacks": 3, "num_layers": 2, "shared_weights": True, "dropout": 0.25}
        self.conv1 = pyg.ARMAConv(WIDTH, 16, **more)
        self.conv2 = pyg.ARMAConv(16, WIDTH, act=lambda x: x, **more)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.log_softmax(self.conv2(F.relu(self.conv1(x, edge_index)), edge_index), dim=1)


class Appnp(nn.Module):  # benchmark/citation/appnp.py
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.prop = pyg.APPNP(5, 0.1, dropout=0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.prop(self.lin2(F.dropout(F.relu(self.lin1(x)), 0.5)), edge_index)


class Dna(nn.Module):  # examples/dna.py
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.convs = nn.ModuleList(pyg.DNAConv(16, heads=4, groups=4) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x_all = F.relu(self.lin1(x)).view(-1, 1, 16)
        for conv in self.convs:
            x = F.relu(conv(x_all, edge_index)).view(-1, 1, 16)
            x_all = torch.cat([x_all, x], dim=1)
        return self.lin2(x_all[:, -1])


class Dagnn(nn.Module):
    """Propagation of several depths with learned retention scores."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.score = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.prop = pyg.LGConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hops = [self.lin(x)]
        for _ in range(4):
            hops.append(self.prop(hops[-1], edge_index))
        pps = torch.stack(hops, dim=1)
        return torch.matmul(torch.sigmoid(self.score(pps)).transpose(1, 2), pps).squeeze(1)


class Jumping(nn.Module):  # benchmark/kernel/graph_sage.py with jumping knowledge
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.SAGEConv(WIDTH, WIDTH) for _ in range(3))
        self.jump = pyg.JumpingKnowledge(mode, WIDTH, 3)
        self.out = nn.Linear(3 * WIDTH if mode == "cat" else WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        xs = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            xs.append(x)
        return self.out(self.jump(xs))


class DeepGcn(nn.Module):  # examples/ogbn_proteins_deepgcn.py
    def __init__(self, block: str, *, ckpt: bool) -> None:
        super().__init__()
        self.node, self.edge = nn.Linear(WIDTH, 16), nn.Linear(3, 16)
        self.layers = nn.ModuleList()
        for k in range(1, 4):
            conv = pyg.GENConv(16, 16, aggr="softmax", t=1.0, learn_t=True, num_layers=2)
            norm = nn.LayerNorm(16, elementwise_affine=True)
            grad = k % 3 if ckpt else False
            layer = pyg.DeepGCNLayer(
                conv, norm, nn.ReLU(), block=block, dropout=0.1, ckpt_grad=grad
            )
            self.layers.append(layer)
        self.lin = nn.Linear(32 if block == "dense" else 16, WIDTH)
        self.block = block
        if block == "dense":
            self.layers = self.layers[:1]

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x, edge_attr = self.node(x), self.edge(edge_attr)
        for layer in self.layers:
            x = layer(x, edge_index, edge_attr)
        return self.lin(F.dropout(x, p=0.1, training=self.training))


class RevGnn(nn.Module):  # examples/rev_gnn.py
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.conv = nn.LayerNorm(width), pyg.SAGEConv(width, width)

        def forward(self, x: Tensor, edge_index: Tensor, dropout_mask: Any = None) -> Tensor:
            x = self.norm(x).relu()
            if self.training and dropout_mask is not None:
                x = x * dropout_mask
            return self.conv(x, edge_index)

    def __init__(self, *, mask: bool) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(pyg.GroupAddRev(self.Block(4), num_groups=2) for _ in range(2))
        self.mask = mask

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x, mask = self.lin(x), None
        if self.mask and self.training:
            mask = torch.zeros_like(x).bernoulli_(0.8).requires_grad_(False) / 0.8
        for layer in self.layers:
            x = layer(x, edge_index, mask) if self.mask else layer(x, edge_index)
        return x


class UniMp(nn.Module):  # examples/unimp_arxiv.py
    def __init__(self) -> None:
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for k in range(3):
            last = k == 2
            self.convs.append(
                pyg.TransformerConv(
                    WIDTH if k == 0 else 16, WIDTH if last else 8, 2, concat=not last, beta=True
                )
            )
            if not last:
                self.norms.append(nn.LayerNorm(16))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            x = F.dropout(norm(conv(x, edge_index)).relu(), p=0.3, training=self.training)
        return self.convs[-1](x, edge_index)


class Sign(nn.Module):
    """Features of several hops, then a network without edges."""

    def __init__(self) -> None:
        super().__init__()
        self.prop = pyg.SimpleConv(aggr="mean")
        self.lins = nn.ModuleList(nn.Linear(WIDTH, 16) for _ in range(4))
        self.lin = nn.Linear(64, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hs = []
        for lin in self.lins:
            hs.append(F.dropout(lin(x).relu(), p=0.5, training=self.training))
            x = self.prop(x, edge_index)
        return self.lin(torch.cat(hs, dim=-1))


class Ogb(nn.Module):
    """Convolutions with batch norms and residuals, as in the leaderboards of OGB."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList(layer(WIDTH, WIDTH) for _ in range(3))
        self.bns = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, bn in zip(self.convs[:-1], self.bns, strict=True):
            h = F.dropout(F.relu(bn(conv(x, edge_index))), p=0.5, training=self.training)
            x = h + x
        return self.convs[-1](x, edge_index).log_softmax(dim=-1)


class MeshNet(nn.Module):
    """MeshGraphNet: edges and nodes updated by networks with layer norms."""

    class Layer(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.edge = nn.Sequential(mlp(3 * 16, 16), nn.LayerNorm(16))
            self.node = nn.Sequential(mlp(2 * 16, 16), nn.LayerNorm(16))

        def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            row, col = edge_index
            e = e + self.edge(torch.cat([x[row], x[col], e], dim=-1))
            out = self.propagate(edge_index, e=e, size=(x.size(0), x.size(0)))
            return x + self.node(torch.cat([x, out], dim=-1)), e

        def message(self, e: Tensor) -> Tensor:
            return e

    def __init__(self) -> None:
        super().__init__()
        self.node, self.edge = mlp(WIDTH, 16), mlp(3, 16)
        self.layers = nn.ModuleList(self.Layer() for _ in range(2))
        self.out = nn.Linear(16, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x, e = self.node(x), self.edge(edge_attr)
        for layer in self.layers:
            x, e = layer(x, edge_index, e)
        return self.out(x)


class Meta(nn.Module):
    """`MetaLayer` with models of edges, nodes and the whole graph."""

    class Edges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(2 * WIDTH + 3 + 4, 3)

        def forward(self, src, dst, edge_attr, u, batch):
            return self.net(torch.cat([src, dst, edge_attr, u[batch]], 1))

    class Nodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net1, self.net2 = mlp(WIDTH + 3, WIDTH), mlp(2 * WIDTH + 4, WIDTH)

        def forward(self, x, edge_index, edge_attr, u, batch):
            row, col = edge_index
            out = self.net1(torch.cat([x[row], edge_attr], dim=1))
            out = utils.scatter(out, col, dim=0, dim_size=x.size(0), reduce="mean")
            return self.net2(torch.cat([x, out, u[batch]], dim=1))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(4 + WIDTH, 4)

        def forward(self, x, edge_index, edge_attr, u, batch):
            mean = utils.scatter(x, batch, dim=0, reduce="mean")
            return self.net(torch.cat([u, mean], dim=1))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            pyg.MetaLayer(self.Edges(), self.Nodes(), self.Whole()) for _ in range(2)
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        u = x.new_zeros(1, 4)
        for layer in self.layers:
            x, edge_attr, u = layer(x, edge_index, edge_attr, u, batch)
        return x


class OwnGcn(MessagePassing):  # docs: creating message passing networks
    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="add")
        self.lin, self.bias = nn.Linear(a, b, bias=False), nn.Parameter(torch.zeros(b))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = utils.add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = utils.degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        return self.propagate(edge_index, x=x, norm=norm) + self.bias

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class OwnEdgeConv(MessagePassing):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="max")
        self.mlp = mlp(2 * a, b)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=1))


class OwnAttention(MessagePassing):
    """Attention by `utils.softmax` over the incoming edges."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin, self.att = nn.Linear(a, b), nn.Parameter(torch.randn(1, b))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = F.leaky_relu(((x_i + x_j) * self.att).sum(-1), 0.2)
        return x_j * utils.softmax(alpha, index, ptr, size_i).unsqueeze(-1)


class OwnBackwards(MessagePassing):
    """Messages from targets to sources."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="mean", flow="target_to_source")
        self.lin = nn.Linear(a, b)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))


class OwnEdgeUpdate(MessagePassing):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="add")
        self.lin, self.gate = nn.Linear(a, b), nn.Linear(2 * a, b)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        gate = self.edge_updater(edge_index, x=x)
        return self.propagate(edge_index, x=self.lin(x), gate=gate)

    def edge_update(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j], -1)))

    def message(self, x_j: Tensor, gate: Tensor) -> Tensor:
        return gate * x_j


class OwnUpdate(MessagePassing):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(aggr="mean")
        self.gru, self.lin = nn.GRUCell(b, b), nn.Linear(a, b)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def update(self, aggr_out: Tensor, x: Tensor) -> Tensor:
        return self.gru(aggr_out, x)


class ByHand(nn.Module):
    """No `MessagePassing`: gathers, an operation on edges, and a scatter."""

    def __init__(self, scatter: Callable[[Tensor, Tensor, int], Tensor]) -> None:
        super().__init__()
        self.lin, self.scatter = nn.Linear(2 * WIDTH, WIDTH), scatter

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        e = self.lin(torch.cat([x[source], x[target]], dim=1)).relu()
        return x + self.scatter(e, target, x.size(0))


class Egnn(nn.Module):
    """E(n)-equivariant layer on three of the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node, self.coord = mlp(11, 8), mlp(13, 5), mlp(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, pos = x[:, :5], x[:, 5:]
        row, col = edge_index[0], edge_index[1]
        diff = pos[row] - pos[col]
        radial = diff.pow(2).sum(dim=1, keepdim=True)
        e = self.edge(torch.cat([h[row], h[col], radial], dim=1))
        shift = diff / (radial.sqrt().detach() + 1) * self.coord(e)
        pos = pos + torch.zeros_like(pos).index_add(0, col, shift) / 8
        agg = torch.zeros(x.size(0), 8, dtype=x.dtype).index_add(0, col, e)
        return torch.cat([h + self.node(torch.cat([h, agg], dim=1)), pos], dim=1)


class SchNetLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

        self.smear = GaussianSmearing(0.0, 5.0, 10)
        self.block = InteractionBlock(WIDTH, 10, 8, 10.0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        distance = (x[row, :3] - x[col, :3]).norm(dim=-1)
        return x + self.block(x, edge_index, distance, self.smear(distance))


class Gps(nn.Module):  # examples/graph_gps.py
    def __init__(self, attention: str) -> None:
        super().__init__()
        self.node, self.edge = nn.Linear(WIDTH, 16), nn.Linear(3, 16)
        conv = pyg.GINEConv(mlp(16, 16))
        more = {"attn_type": attention, "attn_kwargs": {"dropout": 0.0}, "dropout": 0.0}
        self.conv = pyg.GPSConv(16, conv, heads=4, **more)
        self.out = mlp(16, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.conv(self.node(x), edge_index, edge_attr=self.edge(edge_attr))
        return self.out(x)


class Global(nn.Module):
    """SGFormer and Polynormer, called as their examples do."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        more = {"local_layers": 2, "global_layers": 1, "heads": 2} if kind == "Polynormer" else {}
        self.model = getattr(pyg, kind)(WIDTH, 8, WIDTH, **more)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, edge_index, torch.zeros(x.size(0), dtype=torch.long))


class Linkx(nn.Module):
    """LINKX without the embedding of the adjacency, which needs a fixed number of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.cat1, self.cat2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.conv, self.final = pyg.SimpleConv(aggr="sum"), mlp(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = self.conv(x, edge_index)
        out = out + self.cat1(out)
        x = nn.functional.relu(x)
        return self.final((out + x + self.cat2(x)).relu_())


class Encoder(nn.Module):
    """GAE and VGAE used as encoders."""

    def __init__(self, *, variational: bool) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(WIDTH, 16)
        self.mu, self.logstd = pyg.GCNConv(16, WIDTH), pyg.GCNConv(16, WIDTH)
        self.variational = variational

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        mu = self.mu(x, edge_index)
        if not self.variational or not self.training:
            return mu
        return mu + torch.randn_like(mu) * torch.exp(self.logstd(x, edge_index))


class Infomax(nn.Module):
    """Deep graph infomax: scores of nodes against the summary of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = pyg.GCNConv(WIDTH, WIDTH), nn.PReLU(WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = self.act(self.conv(x, edge_index))
        summary = torch.sigmoid(z.mean(dim=0))
        return torch.cat([z, torch.matmul(z, self.weight @ summary).unsqueeze(-1)], dim=-1)


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.SAGEConv(WIDTH, WIDTH) for _ in range(3))
        self.before, self.reentrant = nn.Linear(WIDTH, WIDTH), reentrant

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.before(x)
        for conv in self.convs:
            x = checkpoint(conv, x, edge_index, use_reentrant=self.reentrant).tanh()
        return x


class VirtualNode(nn.Module):
    """A node joined to all others, as in OGB's molecules."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.GINConv(mlp(WIDTH, WIDTH)) for _ in range(2))
        self.mlp, self.start = mlp(WIDTH, WIDTH), nn.Embedding(1, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        batch = torch.zeros(x.size(0), dtype=torch.long)
        virtual = self.start(torch.zeros(1, dtype=torch.long))
        for conv in self.convs:
            x = x + virtual[batch]
            x = conv(x, edge_index).relu()
            virtual = virtual + self.mlp(pyg.global_mean_pool(x, batch) + virtual)
        return x


class Gated(nn.Module):
    """Squeeze and excitation by the mean of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = pyg.GraphConv(WIDTH, WIDTH), mlp(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        summary = torch.cat([h.mean(dim=0), h.max(dim=0)[0]])
        return h * torch.sigmoid(self.gate(summary))


class Recurrent(nn.Module):
    """The same layer again until a number of steps, with a GRU."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.conv, self.cell = pyg.GCNConv(WIDTH, WIDTH), getattr(nn, cell)(WIDTH, WIDTH)
        self.has_memory = cell == "LSTMCell"

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        memory = torch.zeros_like(x)
        for _ in range(3):
            m = self.conv(x + state, edge_index)
            if self.has_memory:
                state, memory = self.cell(m, (state, memory))
            else:
                state = self.cell(m, state)
        return state


class LaplacianSmoothing(nn.Module):
    """Post-processing by label propagation or Correct and Smooth, inside a model."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.prop = pyg.LabelPropagation(num_layers=3, alpha=0.9)
        self.kind = kind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        soft = self.lin(x).softmax(dim=-1)
        post = (lambda y: y.clamp(0, 1)) if self.kind == "clamp" else (lambda y: y)
        # The propagation itself has no gradient.
        return self.prop(soft, edge_index, post_step=post) + soft


class Spline(nn.Module):
    """Edges weighted by Gaussians of their features (MoNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GMMConv(WIDTH, 16, dim=3, kernel_size=4)
        self.conv2 = pyg.GMMConv(16, WIDTH, dim=3, kernel_size=4, aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.conv2(F.elu(self.conv1(x, edge_index, edge_attr)), edge_index, edge_attr)


class WithEdges(nn.Module):
    """Layers that take edge features."""

    def __init__(self, make: Callable[[int, int], nn.Module], norm: Any = None) -> None:
        super().__init__()
        self.first, self.last = make(WIDTH, WIDTH), make(WIDTH, WIDTH)
        self.norm = norm(WIDTH) if norm else nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.norm(self.first(x, edge_index, edge_attr=edge_attr)).relu()
        return self.last(h, edge_index, edge_attr=edge_attr)


class Relations(nn.Module):
    """RGCN with the type of an edge from its features (examples/rgcn.py)."""

    def __init__(self, kind: Any, **more: Any) -> None:
        super().__init__()
        self.conv1 = kind(WIDTH, 16, 4, **more)
        self.conv2 = kind(16, WIDTH, 4, **more)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        kind = (edge_attr[:, 0] > 0).long() * 2 + (edge_attr[:, 1] > 0).long()
        return self.conv2(self.conv1(x, edge_index, kind).relu(), edge_index, kind)


class Masked(nn.Module):
    """Half of the edges in one layer, the rest in the other, chosen by their features."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = pyg.SAGEConv(WIDTH, WIDTH), pyg.GCNConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        near = edge_attr[:, 0] > 0
        return self.near(x, edge_index[:, near]) + self.far(x, edge_index[:, ~near])


class Signed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.SignedConv(WIDTH, 8, first_aggr=True)
        self.conv2 = pyg.SignedConv(8, 4, first_aggr=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        positive = edge_attr[:, 0] > 0
        pos, neg = edge_index[:, positive], edge_index[:, ~positive]
        return self.conv2(self.conv1(x, pos, neg).relu(), pos, neg)


def degree_feature(x: Tensor, edge_index: Tensor) -> Tensor:
    d = utils.degree(edge_index[1], x.size(0), dtype=x.dtype)
    return x + d.add(1).log().unsqueeze(-1)


def out_degree(x: Tensor, edge_index: Tensor) -> Tensor:
    d = utils.degree(edge_index[0], x.size(0), dtype=x.dtype)
    return x / d.clamp(min=1).view(-1, 1)


def by_degree(x: Tensor, edge_index: Tensor) -> Tensor:
    d = utils.degree(edge_index[1], num_nodes=x.size(0)).long()
    weight = torch.linspace(0.5, 1.5, 64, dtype=x.dtype)
    return x * weight[d.clamp(max=63)].unsqueeze(-1)


def out_attention(x: Tensor, edge_index: Tensor) -> Tensor:
    source, target = edge_index
    alpha = utils.softmax((x[source] * x[target]).sum(-1), source, num_nodes=x.size(0))
    return torch.zeros_like(x).index_add(0, target, alpha.unsqueeze(-1) * x[source])


def laplacian(x: Tensor, edge_index: Tensor) -> Tensor:
    index, weight = utils.get_laplacian(
        edge_index, normalization="sym", num_nodes=x.size(0), dtype=x.dtype
    )
    out = torch.zeros_like(x)
    return out.index_add(0, index[1], weight.view(-1, 1) * x[index[0]])


def sparse_product(x: Tensor, edge_index: Tensor) -> Tensor:
    value = torch.ones(edge_index.size(1), dtype=x.dtype)
    a = torch.sparse_coo_tensor(edge_index.flip(0), value, (x.size(0), x.size(0)))
    return torch.sparse.mm(a, x)


def dirichlet(x: Tensor, edge_index: Tensor) -> Tensor:
    source, target = edge_index
    return x / (1 + (x[source] - x[target]).square().sum() / x.size(0))


def cosine(x: Tensor, edge_index: Tensor) -> Tensor:
    source, target = edge_index
    weight = F.cosine_similarity(x[source], x[target], dim=-1)
    return utils.scatter(weight.unsqueeze(-1) * x[source], target, dim_size=x.size(0))


def attention_all(x: Tensor, edge_index: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0]


def attention_by_hand(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.softmax(x @ x.T / math.sqrt(x.size(-1)), dim=-1) @ x


def kernel_attention(x: Tensor, edge_index: Tensor) -> Tensor:
    q, k = F.elu(x) + 1, F.elu(x) + 1
    kv = torch.einsum("nd,ne->de", k, x)
    return torch.einsum("nd,de->ne", q, kv) / (q @ k.sum(0)).unsqueeze(-1)


def standardised(x: Tensor, edge_index: Tensor) -> Tensor:
    return (x - x.mean(0, keepdim=True)) / (x.std(0, keepdim=True) + 1e-5)


def minmax(x: Tensor, edge_index: Tensor) -> Tensor:
    low, high = x.min(dim=0).values, x.max(dim=0).values
    return (x - low) / (high - low + 1e-6)


def gates_by_rank(x: Tensor, edge_index: Tensor) -> Tensor:
    order = x[:, 0].argsort()
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(x.size(0)))
    return x * (rank.to(x.dtype) / x.size(0)).unsqueeze(-1)


def top_gate(x: Tensor, edge_index: Tensor) -> Tensor:
    limit = x[:, 0].topk(10).values[-1]
    return torch.where((x[:, 0] >= limit).unsqueeze(-1), 2 * x, x)


def whitened(x: Tensor, edge_index: Tensor) -> Tensor:
    c = x - x.mean(0)
    cov = c.t() @ c / (x.size(0) - 1) + torch.eye(x.size(1), dtype=x.dtype)
    return torch.linalg.solve_triangular(torch.linalg.cholesky(cov), c.t(), upper=False).t()


def subgraph(edge_index: Tensor, x: Tensor) -> Tensor:
    return utils.subgraph(x[:, 0] > 0, edge_index, num_nodes=x.size(0))[0]


def similar(edge_index: Tensor, x: Tensor) -> Tensor:
    source, target = edge_index
    return edge_index[:, F.cosine_similarity(x[source], x[target]) > 0]


REWIRED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "remove self-loops": lambda e, x: utils.remove_self_loops(e)[0],
    "add self-loops": lambda e, x: utils.add_self_loops(e, num_nodes=x.size(0))[0],
    "add remaining self-loops": lambda e, x: utils.add_remaining_self_loops(e, num_nodes=x.size(0))[
        0
    ],
    "to_undirected": lambda e, x: utils.to_undirected(e, num_nodes=x.size(0)),
    "coalesce": lambda e, x: utils.coalesce(e, num_nodes=x.size(0)),
    "reversed edges": lambda e, x: e.flip(0),
    "reversed edges by index": lambda e, x: e[[1, 0]],
    "both directions": lambda e, x: torch.cat([e, e.flip([0])], dim=1),
    "sorted edges": lambda e, x: utils.sort_edge_index(e, num_nodes=x.size(0)),
    "dropout_edge": lambda e, x: utils.dropout_edge(e, p=0.3)[0],
    "dropout_node": lambda e, x: utils.dropout_node(e, p=0.3, num_nodes=x.size(0))[0],
    "subgraph": subgraph,
    "edges between similar nodes": similar,
    "edges of two features": lambda e, x: e[:, x[e[0], 0] < x[e[1], 0]],
}
BETWEEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "degree as a feature": degree_feature,
    "division by out-degree": out_degree,
    "weight by degree": by_degree,
    "softmax over out-edges": out_attention,
    "Laplacian": laplacian,
    "sparse product": sparse_product,
    "Dirichlet energy": dirichlet,
    "cosine weights": cosine,
    "attention over all nodes": attention_all,
    "attention by hand": attention_by_hand,
    "kernel attention": kernel_attention,
    "standardised": standardised,
    "min-max": minmax,
    "gates by rank": gates_by_rank,
    "top-k gate": top_gate,
    "whitened": whitened,
    "normalised rows": lambda x, e: F.normalize(x, p=2.0, dim=-1),
    "normalised columns": lambda x, e: F.normalize(x, p=2.0, dim=0),
    "logits of all nodes": lambda x, e: x - torch.logsumexp(x, dim=0),
    "chunked": lambda x, e: torch.cat([c.tanh() for c in x.chunk(4, dim=0)]),
    "noise": lambda x, e: x + 0.1 * torch.randn_like(x),
    "feature dropout": lambda x, e: F.dropout1d(x.unsqueeze(-1), 0.2).squeeze(-1),
    "alpha dropout": lambda x, e: F.alpha_dropout(x, 0.2, training=True),
    "gumbel": lambda x, e: F.gumbel_softmax(x, tau=1.0, dim=-1),
    "mixture of experts": lambda x, e: sum(
        x.softmax(-1)[:, k : k + 1] * torch.roll(x, k, dims=1) for k in range(3)
    ),
    "rows by mask": lambda x, e: torch.where(x[:, :1] > 0, x, -x),
    "assignment by mask": lambda x, e: x.masked_fill(x < 0, 0.0),
    "median": lambda x, e: x - x.median(dim=0).values,
    "quantile": lambda x, e: x.clamp(max=torch.quantile(x.detach(), 0.9)),
    "cumulative mean": lambda x, e: x + x.cumsum(0) / x.size(0),
    "Gram matrix": lambda x, e: x @ torch.tanh(x.t() @ x / x.size(0)),
    "global mean pool": lambda x, e: x + pyg.global_mean_pool(x, None),
    "global max pool": lambda x, e: x - pyg.global_max_pool(x, None),
    "global pool by cluster": lambda x, e: pyg.global_add_pool(x, x.argmax(-1), 8)[x.argmax(-1)],
    "node moments": lambda x, e: x * torch.var_mean(x, dim=0)[0].rsqrt(),
}


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
