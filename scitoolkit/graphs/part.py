"""One process's part of a graph: its nodes, and products with any weighting of the edges."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.communicator import Communicator
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.layout import LayoutBuilder
from scitoolkit.graphs.order import cache_order
from scitoolkit.graphs.product import Product, with_halo
from scitoolkit.graphs.weighting import weighted_adjacency

Array = np.ndarray


class GraphPart:
    """What one process owns of a graph and how it multiplies with the whole of it.

    Args:
        graph: the whole graph.
        owner: rank of each node, shape (N,).
        grid: how ranks share the products.
        ranks: the ranks, as this one sees them.

    Attributes:
        nodes: numbers of the own nodes, as `cache_order` has them, shape (n_own,), int64 tensor.

    Example:
        >>> from scitoolkit.graphs.communicator import SingleProcess
        >>> graph = Graph([0, 1, 2], [1, 2, 0], 3, np.zeros((3, 1)))
        >>> part = GraphPart(graph, np.zeros(3, int), Grid(1), SingleProcess())
        >>> part.aggregate(torch.tensor([[1.0], [2.0], [3.0]]), "sum").tolist()
        [[3.0], [1.0], [2.0]]
    """

    def __init__(self, graph: Graph, owner: Array, grid: Grid, ranks: Communicator) -> None:
        self._graph, self._owner = graph, np.asarray(owner)
        self.grid: Grid = grid
        self.ranks: Communicator = ranks
        self._order = cache_order(graph)
        every = np.arange(len(self._owner)) if self._order is None else self._order
        self.nodes: Tensor = torch.from_numpy(every[self._owner[every] == ranks.rank])

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole graph."""
        return self._graph.num_nodes

    @functools.cached_property
    def edge_index(self) -> Tensor:
        """Edges that end at own nodes, (2, E_own): targets by own place, sources own then halo.

        Raises:
            ConfigError: the grid is not P x 1 x 1, so that edges of a node lie on several ranks.
        """
        self._need_whole_rows()
        # From the product's own pattern, so that halo rows stand where `with_halo` puts them.
        parts = (self._product("sum").layout.near, self._product("sum").layout.far)
        shift = (0, len(self.nodes))
        copies = [part.value.long() for part in parts if part.value is not None]
        source = torch.cat([p.column.long() + s for p, s in zip(parts, shift, strict=True)])
        target = torch.cat([part.rows for part in parts])
        count = torch.cat(copies)
        return torch.stack([source, target]).repeat_interleave(count, dim=1)

    def _need_whole_rows(self) -> None:
        if self.grid.columns > 1 or self.grid.slices > 1:
            raise ConfigError(
                f"a layer with messages of its own cannot run on the grid {self.grid}",
                where="graph.algorithm", allowed="1d for attention and other message layers",
                fix="graph.algorithm=1d",
            )  # fmt: skip

    @functools.cache  # noqa: B019 - a part lives as long as its job
    def _product(self, weighting: str) -> Product:
        matrix = weighted_adjacency(self._graph, weighting)
        builder = LayoutBuilder(matrix, self._owner, self.grid, self._order)
        return Product(builder.build(self.ranks.rank), self.ranks)

    def aggregate(self, x: Tensor, weighting: str) -> Tensor:
        """Return the weighted sums over in-neighbours of own nodes, differentiable.

        Args:
            x: features of own nodes, shape (n_own, F).
            weighting: as in `weighted_adjacency`.
        """
        return self._product(weighting)(x)

    def with_halo(self, x: Tensor) -> Tensor:
        """Return own rows, then those of other ranks' nodes that `edge_index` names."""
        self._need_whole_rows()
        return with_halo(self._product("sum"), x)
