"""Layers of heterogeneous graphs, whose nodes and edges have types, on one graph.

torch-geometric's HGTConv and HANConv take a dictionary of tensors, one for each type. Here all
nodes are rows of one tensor and their types are inputs, so that a graph may be divided over
processes. With the same weights the outputs are those of torch-geometric.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    # torch 2.14 warns of torch.jit.script, which PyG calls while it is imported.
    warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax


class TypedLinear(nn.Module):
    """A linear layer for each type of rows.

    Args:
        types: number of types.
        inputs, outputs: widths.
    """

    def __init__(self, types: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers: nn.ModuleList = nn.ModuleList(nn.Linear(inputs, outputs) for _ in range(types))

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        """Return rows (n, outputs) of x (n, inputs), by the type of each row (n,)."""
        total: Tensor | None = None
        for number, layer in enumerate(self.layers):
            # Rows of other types become 0, so that every row has one product that counts.
            part = layer(x) * (kind == number).to(x.dtype).unsqueeze(-1)
            total = part if total is None else total + part
        assert total is not None
        return total


class HGTLayer(MessagePassing):
    """Heterogeneous graph transformer (Hu et al. 2020, eqs. 3 to 6).

    Args:
        width: width of inputs and outputs, a multiple of `heads`.
        node_types, edge_types: numbers of types.
        heads: number of attention heads.
    """

    def __init__(self, width: int, node_types: int, edge_types: int, heads: int) -> None:
        super().__init__(aggr="add", node_dim=0)
        dim = width // heads
        self.heads: int = heads
        self.keys: TypedLinear = TypedLinear(node_types, width, width)
        self.queries: TypedLinear = TypedLinear(node_types, width, width)
        self.values: TypedLinear = TypedLinear(node_types, width, width)
        self.out: TypedLinear = TypedLinear(node_types, width, width)
        # One matrix for each type of edges and head, as torch's Linear initialises it.
        shape, bound = (edge_types, heads, dim, dim), dim**-0.5
        self.of_keys: nn.Parameter = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.of_values: nn.Parameter = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.prior: nn.Parameter = nn.Parameter(torch.ones(edge_types, heads))
        self.skip: nn.Parameter = nn.Parameter(torch.ones(node_types, 1))

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, node_type: Tensor
    ) -> Tensor:
        """Return rows (N, width) of x (N, width)."""
        k, q, v = (f(x, node_type) for f in (self.keys, self.queries, self.values))
        out = self.propagate(edge_index, k=k, q=q, v=v, edge_type=edge_type)
        out = self.out(nn.functional.gelu(out), node_type)
        share = nn.functional.embedding(node_type, self.skip).sigmoid()
        return share * out + (1 - share) * x

    def message(
        self,
        k_j: Tensor,
        q_i: Tensor,
        v_j: Tensor,
        edge_type: Tensor,
        index: Tensor,
        ptr: Tensor | None,
        size_i: int | None,
    ) -> Tensor:
        """Return the values of the senders, weighted by attention over all edges of a receiver."""
        heads, dim = self.heads, k_j.size(-1) // self.heads
        keys, values = (a.reshape(-1, heads, dim) for a in (k_j, v_j))
        keys = self._by_type(keys, self.of_keys, edge_type)
        values = self._by_type(values, self.of_values, edge_type)
        score = (q_i.reshape(-1, heads, dim) * keys).sum(-1)
        score = score * nn.functional.embedding(edge_type, self.prior) / math.sqrt(dim)
        share = softmax(score, index, ptr, size_i)
        return (values * share.unsqueeze(-1)).reshape(-1, heads * dim)

    def _by_type(self, rows: Tensor, matrices: Tensor, edge_type: Tensor) -> Tensor:
        """Return rows (E, heads, dim) times the matrix of their type and head."""
        total: Tensor | None = None
        for number, matrix in enumerate(matrices):
            part = torch.einsum("ehd,hdf->ehf", rows, matrix)
            part = part * (edge_type == number).to(rows.dtype).view(-1, 1, 1)
            total = part if total is None else total + part
        assert total is not None
        return total


class HANLayer(MessagePassing):
    """Heterogeneous graph attention (Wang et al. 2019, eqs. 1 to 9), a type of edges as metapath.

    Args:
        width: width of inputs and outputs, a multiple of `heads`.
        node_types: number of types of nodes.
        receivers: type of the nodes that edges of each type end at.
        heads: number of attention heads.
    """

    def __init__(self, width: int, node_types: int, receivers: Sequence[int], heads: int) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.heads: int = heads
        self._receivers, self._node_types = tuple(receivers), node_types
        self.project: TypedLinear = TypedLinear(node_types, width, width)
        shape = (len(self._receivers), 1, heads, width // heads)
        self.of_senders: nn.Parameter = nn.Parameter(torch.empty(shape))
        self.of_receivers: nn.Parameter = nn.Parameter(torch.empty(shape))
        self.semantic: nn.Linear = nn.Linear(width, width)
        self.query: nn.Parameter = nn.Parameter(torch.empty(1, width))
        for parameter in (self.of_senders, self.of_receivers, self.query):
            nn.init.xavier_uniform_(parameter)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, node_type: Tensor
    ) -> Tensor:
        """Return rows (N, width) of x (N, width); 0 for types of nodes that receive nothing."""
        h = self.project(x, node_type).reshape(-1, self.heads, x.size(-1) // self.heads)
        total = torch.zeros_like(x)
        for kind in range(self._node_types):
            relations = [r for r, to in enumerate(self._receivers) if to == kind]
            if not relations:
                continue
            mask = (node_type == kind).to(x.dtype).unsqueeze(-1)
            count = mask.sum().clamp(min=1)
            rows, scores = [], []
            for relation in relations:
                alpha = tuple(
                    (h * weights[relation]).sum(-1)
                    for weights in (self.of_senders, self.of_receivers)
                )
                pairs = edge_index[:, edge_type == relation]
                rows.append(self.propagate(pairs, x=h, alpha=alpha).relu())
                mean = (torch.tanh(self.semantic(rows[-1])) * mask).sum(0) / count
                scores.append((self.query[0] * mean).sum())
            shares = torch.stack(scores).softmax(0)
            for share, row in zip(shares, rows, strict=True):
                total = total + share * row * mask
        return total

    def message(
        self,
        x_j: Tensor,
        alpha_i: Tensor,
        alpha_j: Tensor,
        index: Tensor,
        ptr: Tensor | None,
        size_i: int | None,
    ) -> Tensor:
        """Return the features of the senders, weighted by attention."""
        share = softmax(nn.functional.leaky_relu(alpha_j + alpha_i, 0.2), index, ptr, size_i)
        return (x_j * share.unsqueeze(-1)).reshape(-1, self.heads * x_j.size(-1))


class HeteroNodeModel(nn.Module):
    """Embedding of the features, layers with types of nodes and edges, and a linear layer.

    Args:
        inputs: number of features of a node.
        width: width of the layers.
        outputs: number of outputs of a node.
        layers: called with (x, edge_index, edge_type, node_type).
        dropout: dropout probability before each layer.
    """

    def __init__(
        self, inputs: int, width: int, outputs: int, layers: Sequence[nn.Module], dropout: float
    ) -> None:
        super().__init__()
        self.embed: nn.Linear = nn.Linear(inputs, width)
        self.layers: nn.ModuleList = nn.ModuleList(layers)
        self.head: nn.Linear = nn.Linear(width, outputs)
        self.dropout: float = dropout

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        *,
        edge_type: Tensor | None = None,
        node_type: Tensor | None = None,
    ) -> Tensor:
        """Return logits, shape (N, outputs); without types all nodes and edges are of one type."""
        if edge_type is None:
            edge_type = edge_index.new_zeros(edge_index.size(1))
        if node_type is None:
            node_type = torch.zeros_like(x[:, 0], dtype=torch.long)
        x = self.embed(x).relu()
        for layer in self.layers:
            x = nn.functional.dropout(x, self.dropout, self.training)
            x = layer(x, edge_index, edge_type, node_type)
        return self.head(x)
