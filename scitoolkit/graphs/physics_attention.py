"""Attention among slices of the nodes of a mesh or point cloud (Transolver).

Source: Wu et al., "Transolver: A Fast Transformer Solver for PDEs on General Geometries" (2024),
equations 1 to 3. Of one head, with the features x_i of node i of a graph:

    w_i  = softmax(P x_i / T)              shares of node i in the M slices
    z_j  = sum_i w_ij V x_i / sum_i w_ij   token of slice j
    z'   = softmax(Q z (K z)^T / sqrt(d)) L z
    x'_i = sum_j w_ij z'_j

Every node reaches every other in one layer, at a cost that is linear in the number of nodes. Edges
are not read: geometry enters by the features of the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Added to the sum of the shares of a slice, so that a slice without nodes has token 0, not NaN.
_EMPTY = 1e-5
_TEMPERATURE = 0.5  # at the start, as in the paper's code


class SliceAttention(nn.Module):
    """One layer of attention among slices.

    Args:
        width: number of features of a node.
        heads: number of heads; divides the width.
        slices: number M of slices.

    Shape:
        x (N, width), sizes of the graphs -> (N, width).
    """

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self._heads, size = heads, width // heads
        self.place: nn.Linear = nn.Linear(width, width)
        self.value: nn.Linear = nn.Linear(width, width)
        self.share: nn.Linear = nn.Linear(size, slices)
        # Orthogonal rows, as in the paper's code: with similar rows all slices stay alike.
        nn.init.orthogonal_(self.share.weight)
        self.temperature: nn.Parameter = nn.Parameter(torch.full((heads, 1), _TEMPERATURE))
        self.query: nn.Linear = nn.Linear(size, size, bias=False)
        self.key: nn.Linear = nn.Linear(size, size, bias=False)
        self.token: nn.Linear = nn.Linear(size, size, bias=False)
        self.out: nn.Linear = nn.Linear(width, width)

    def forward(self, x: Tensor, sizes: Sequence[int] = ()) -> Tensor:
        """Return the features that the nodes receive.

        Args:
            x: features, shape (N, width).
            sizes: nodes of each graph, in order; empty for one graph.
        """
        place = self.place(x).unflatten(1, (self._heads, -1))
        value = self.value(x).unflatten(1, (self._heads, -1))
        shares = torch.softmax(self.share(place) / self.temperature, dim=-1)  # (N, heads, M)
        if not sizes:
            return self.out(self._received(shares, value).flatten(1))
        # Graph by graph: sums over the nodes of all graphs at once would store a token for each
        # node and slice.
        pairs = zip(shares.split(list(sizes)), value.split(list(sizes)), strict=True)
        return self.out(torch.cat([self._received(*pair) for pair in pairs]).flatten(1))

    def _received(self, shares: Tensor, value: Tensor) -> Tensor:
        """Return what the nodes of one graph receive, shape (N, heads, size)."""
        totals = torch.einsum("nhm,nhd->hmd", shares, value)
        slices = totals / (shares.sum(0)[..., None] + _EMPTY)
        tokens = nn.functional.scaled_dot_product_attention(
            self.query(slices), self.key(slices), self.token(slices)
        )
        return torch.einsum("nhm,hmd->nhd", shares, tokens)


class SliceTransformer(nn.Module):
    """Network over nodes: an encoder, layers of attention and perceptrons, a decoder.

    Args:
        inputs: number of features of a node.
        width: of the hidden layers.
        outputs: number of outputs of a node.
        layers: number of layers of attention.
        heads: of each layer; divides the width.
        slices: of each head.
        dropout: probability before each layer.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        outputs: int,
        layers: int,
        heads: int,
        slices: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encode: nn.Sequential = nn.Sequential(
            nn.Linear(inputs, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.before: nn.ModuleList = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.attention: nn.ModuleList = nn.ModuleList(
            SliceAttention(width, heads, slices) for _ in range(layers)
        )
        self.perceptron: nn.ModuleList = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.GELU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(layers)
        )
        self.decode: nn.Sequential = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))
        self.dropout: float = dropout

    def forward(self, x: Tensor, edge_index: Tensor, *, batch: Tensor | None = None) -> Tensor:
        """Return a row for each node, shape (N, outputs).

        Args:
            x: features of the nodes, shape (N, inputs).
            edge_index: not read.
            batch: number of the graph of each node, in order; None for one graph.
        """
        sizes = [] if batch is None else torch.bincount(batch).tolist()
        x = self.encode(x)
        for before, attention, perceptron in zip(
            self.before, self.attention, self.perceptron, strict=True
        ):
            x = nn.functional.dropout(x, self.dropout, self.training)
            x = x + attention(before(x), sizes)
            x = x + perceptron(x)
        return self.decode(x)
