"""Networks after examples of torch-geometric and published ones, of rows and edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
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
