"""A process's part of a graph: local nodes, edges, halo, and weighted sparse products."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.layout import LayoutBuilder
from scitoolkit.graphs.order import cache_order
from scitoolkit.graphs.product import Product
from scitoolkit.graphs.weighting import weighted_adjacency
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.training.ranks.collectives import FetchHalo
from scitoolkit.training.ranks.communicator import Communicator, RowExchange

Array = np.ndarray


class Part(ABC):
    """Base class of a process's part of a graph.

    Attributes:
        nodes: numbers of the local nodes, in local order, shape (n_own,), int64 tensor.
        num_nodes: number of nodes of the whole graph.
        inputs: shapes of node and edge inputs.
        grid: distribution of the products over ranks.
        ranks: the communicator.
    """

    nodes: Tensor
    num_nodes: int
    inputs: GraphInputs
    grid: ProcessGrid
    ranks: Communicator

    @property
    @abstractmethod
    def edges(self) -> Tensor:
        """Edges into local nodes, (2, E_own), sorted by target: indices of local nodes, then halo.

        On a grid other than P x 1 x 1 the sources are -1, because their rows cannot be fetched.
        """

    @property
    @abstractmethod
    def edge_numbers(self) -> Tensor:
        """Global number of each edge plus the number of nodes, distinct from node numbers."""

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Number of edges into local nodes."""

    @functools.cached_property
    def unread_edges(self) -> Tensor:
        """Placeholder for `edges`, (2, E_own), that stores only one number."""
        return torch.full((1, 1), -1).expand(2, self.num_edges)

    @property
    @abstractmethod
    def halo(self) -> RowExchange:
        """Halo exchange: local rows sent to other ranks, and numbers of rows received."""

    def with_halo(self, x: Tensor) -> Tensor:
        """Return rows of local nodes, (n_own, F), followed by those of the halo, differentiable."""
        return x if self.ranks.size == 1 else FetchHalo.apply(x, self.ranks, self.halo, True)

    def find_nodes_with_halo(self) -> Tensor:
        """Return which nodes of the graph the local rows and those of the halo are; collective."""
        return self.with_halo(self.nodes.double()[:, None])[:, 0].long()  # exact up to 2^53

    def pattern(self, *, loops: bool) -> SparseMatrix:
        """Return the edges as a matrix of ones, shape (n_own, n_own + n_halo).

        Args:
            loops: replace the self-loops of each local node by exactly one.

        Raises:
            ConfigError: the grid is not P x 1 x 1, so the edges of a node are on several ranks.
        """
        patterns = self.__dict__.setdefault("_patterns", {})
        if loops not in patterns:
            patterns[loops] = self._find_pattern(loops=loops)
        return patterns[loops]

    def _find_pattern(self, *, loops: bool) -> SparseMatrix:
        own, columns = len(self.nodes), len(self.nodes) + self.halo.rows_received
        source, target = self.edges
        if loops:
            others = source != target
            nodes = torch.arange(own, device=source.device)
            source = torch.cat([source[others], nodes])
            target = torch.cat([target[others], nodes])
        return SparseMatrix.from_coo(target, source, None, (own, columns))

    @property
    def has_whole_rows(self) -> bool:
        """Whether each rank holds all edges into its nodes (a grid P x 1 x 1)."""
        return self.grid.columns == 1 and self.grid.slices == 1

    @abstractmethod
    def edge_input(self, name: str) -> Array:
        """Return `edge_weight`, `edge_attr` or `edge_type` of local edges."""

    def node_input(self, name: str) -> Array:
        """Return `node_type` or `pos` of local nodes.

        Raises:
            KeyError: the part has no such input.
        """
        raise KeyError(name)

    @abstractmethod
    def aggregate(self, x: Tensor, weighting: str) -> Tensor:
        """Return the weighted sums over in-neighbours of local nodes, differentiable.

        Args:
            x: features of local nodes, shape (n_own, F).
            weighting: as in `weighted_adjacency`.
        """


class GraphPart(Part):
    """Part of a graph that every process holds in memory.

    Args:
        graph: the whole graph.
        owner: rank of each node, shape (N,).
        grid: distribution of the products over ranks.
        ranks: the communicator.
        order: all nodes in their local order; None for that of `cache_order`.

    Attributes:
        graph: the whole graph.
        owner: rank of each node, shape (N,).
        nodes: numbers of the local nodes in `cache_order`, shape (n_own,), int64 tensor.

    Example:
        >>> from scitoolkit.training.ranks.communicator import SingleProcess
        >>> graph = Graph([0, 1, 2], [1, 2, 0], 3, np.zeros((3, 1)))
        >>> part = GraphPart(graph, np.zeros(3, int), ProcessGrid(1), SingleProcess())
        >>> part.aggregate(torch.tensor([[1.0], [2.0], [3.0]]), "sum").tolist()
        [[3.0], [1.0], [2.0]]
    """

    def __init__(
        self,
        graph: Graph,
        owner: Array,
        grid: ProcessGrid,
        ranks: Communicator,
        order: Array | None = None,
    ) -> None:
        self.graph: Graph = graph
        self.num_nodes: int = graph.num_nodes
        self.owner: Array = np.asarray(owner)
        self.grid: ProcessGrid = grid
        self.ranks: Communicator = ranks
        self._order = cache_order(graph) if order is None else order
        self._edges: Tensor | None = None
        every = np.arange(len(self.owner)) if self._order is None else self._order
        self.nodes: Tensor = torch.from_numpy(every[self.owner[every] == ranks.rank])

    @property
    def inputs(self) -> GraphInputs:  # type: ignore[override]
        """Shapes of node and edge inputs."""
        return self.graph.inputs

    @functools.cached_property
    def edge_index(self) -> Tensor:
        """Edges into local nodes, (2, E_own), as indices of local nodes, then halo.

        Raises:
            ConfigError: the grid is not P x 1 x 1, so the edges of a node are on several ranks.
        """
        self._need_whole_rows()
        # From the product's pattern, so that halo indices match the rows of `with_halo`.
        parts = (self._pattern.layout.near, self._pattern.layout.far)
        shift = (0, len(self.nodes))
        copies = [part.value.long() for part in parts if part.value is not None]
        source = torch.cat([p.column.long() + s for p, s in zip(parts, shift, strict=True)])
        target = torch.cat([part.rows for part in parts])
        count = torch.cat(copies)
        return torch.stack([source, target]).repeat_interleave(count, dim=1)

    @functools.cached_property
    def edge_ids(self) -> Tensor:
        """Global numbers of the edges into local nodes, sorted by target, shape (E_own,)."""
        target = self.graph.target
        own = np.flatnonzero(self.owner[target] == self.ranks.rank)
        place = np.empty(self.num_nodes, np.int64)
        place[self.nodes.numpy()] = np.arange(len(self.nodes))
        return torch.from_numpy(own[np.argsort(place[target[own]], kind="stable")])

    @functools.cached_property
    def edge_numbers(self) -> Tensor:
        """`edge_ids` plus the number of nodes, distinct from node numbers."""
        return self.num_nodes + self.edge_ids

    @property
    def num_edges(self) -> int:
        """Number of edges into local nodes."""
        return len(self.edge_ids)

    def edge_input(self, name: str) -> Array:
        """Return `edge_weight`, `edge_attr` or `edge_type` of local edges."""
        return getattr(self.graph, name)[self.edge_ids.numpy()]

    def node_input(self, name: str) -> Array:
        """Return `node_type` or `pos` of local nodes."""
        return getattr(self.graph, name)[self.nodes.numpy()]

    @property
    def edges(self) -> Tensor:
        """The edges `edge_ids` as indices of local nodes, then halo, shape (2, E_own).

        On a grid other than P x 1 x 1 the sources are -1, because their rows cannot be fetched.
        """
        # Not a cached_property: its lock in Python 3.11 would deadlock simulated ranks.
        if self._edges is None:
            self._edges = self._find_edges()
        return self._edges

    def _find_edges(self) -> Tensor:
        numbers = self.find_nodes_with_halo() if self.has_whole_rows else self.nodes
        place = torch.full((self.num_nodes,), -1)
        place[numbers] = torch.arange(len(numbers))
        ids = self.edge_ids.numpy()
        pair = place[torch.from_numpy(np.stack([self.graph.source[ids], self.graph.target[ids]]))]
        if not self.has_whole_rows:
            pair[0] = -1
        return pair

    @property
    def halo(self) -> RowExchange:
        """Halo exchange: local rows sent to other ranks, and numbers of rows received."""
        self._need_whole_rows()
        return self._pattern.layout.gather

    def _need_whole_rows(self) -> None:
        if not self.has_whole_rows:
            raise ConfigError(
                f"a layer that computes messages per edge cannot run on the grid {self.grid}",
                where="graph.algorithm",
                allowed="1d for attention and other message layers",
                fix="graph.algorithm=1d",
            )

    @functools.cache  # noqa: B019 - a part lives as long as its job
    def _product(self, weighting: str, dtype: torch.dtype) -> Product:
        numpy_dtype = np.float64 if dtype == torch.float64 else np.float32
        matrix = weighted_adjacency(self.graph, weighting, numpy_dtype)
        builder = LayoutBuilder(matrix, self.owner, self.grid, self._order)
        return Product(builder.build(self.ranks.rank), self.ranks)

    @property
    def _pattern(self) -> Product:
        return self._product("sum", torch.float32)

    def aggregate(self, x: Tensor, weighting: str) -> Tensor:
        """Return the weighted sums over in-neighbours of local nodes, differentiable.

        Args:
            x: features of local nodes, shape (n_own, F).
            weighting: as in `weighted_adjacency`.
        """
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        return self._product(weighting, exact)(x)
