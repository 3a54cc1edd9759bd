"""Copies of a part on other devices."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from scitoolkit.graphs.part import GraphPart, Part
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.training.ranks.communicator import RowExchange


class MovedPart(Part):
    """Copy of a part on another device; tensors are copied on first use.

    Args:
        part: the part, on the CPU.
        device: device of the model and its input.
    """

    def __init__(self, part: Part, device: torch.device) -> None:
        self._part, self._device = part, device
        self.nodes: Tensor = part.nodes.to(device)
        self.num_nodes, self.inputs = part.num_nodes, part.inputs
        self.grid, self.ranks = part.grid, part.ranks
        self._matrices: dict[bool, SparseMatrix] = {}

    @functools.cached_property
    def edges(self) -> Tensor:
        """Edges into local nodes."""
        return self._part.edges.to(self._device)

    @functools.cached_property
    def edge_numbers(self) -> Tensor:
        """Global number of each edge plus the number of nodes."""
        return self._part.edge_numbers.to(self._device)

    @functools.cached_property
    def edge_index(self) -> Tensor:
        """Edges into local nodes in the order of the halo's rows; see `GraphPart.edge_index`."""
        return self._part.edge_index.to(self._device)  # type: ignore[attr-defined]

    @property
    def num_edges(self) -> int:
        """Edges into local nodes."""
        return self._part.num_edges

    @functools.cached_property
    def halo(self) -> RowExchange:
        """Halo exchange with other ranks."""
        return self._part.halo.to(self._device)

    def pattern(self, *, loops: bool) -> SparseMatrix:
        """Return the edges as a matrix of ones; see `Part.pattern`."""
        if loops not in self._matrices:
            self._matrices[loops] = self._part.pattern(loops=loops).to(self._device)
        return self._matrices[loops]

    def edge_input(self, name: str) -> np.ndarray:
        """Return `edge_weight` or `edge_attr` of local edges."""
        return self._part.edge_input(name)

    def node_input(self, name: str) -> np.ndarray:
        """Return `node_type` or `pos` of local nodes."""
        return self._part.node_input(name)

    def aggregate(self, x: Tensor, weighting: str) -> Tensor:
        """Return the weighted sums over in-neighbours of local nodes."""
        return self._part.aggregate(x, weighting)


MeshPart = GraphPart | MovedPart
"""Parts of a graph in memory, whose edges can be read with their halo."""


def part_on(part: Part, device: torch.device) -> Part:
    """Return a part on a device: itself on the CPU, otherwise a cached copy."""
    if device.type == "cpu":
        return part
    copies = part.__dict__.setdefault("_copies", {})
    if device not in copies:
        copies[device] = MovedPart(part, device)
    return copies[device]
