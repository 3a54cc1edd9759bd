"""What users compute between layers: functions of the rows, and other edges made of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import utils


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
