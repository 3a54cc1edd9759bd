"""Layers that users of torch-geometric write themselves, and networks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from _graph_user_networks import WIDTH, mlp
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric import utils
from torch_geometric.nn import MessagePassing


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
