"""Edges and atoms in the orders that kernels read, for as long as a neighbour list is used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.tensor_product import Edges
from scitoolkit.potentials.equivariant.layers import Grouped


class Topology:
    """Edges and species of a graph, sorted for the kernels.

    On a GPU the latest result is kept: a simulation calls the model many times with one neighbour
    list, and the host would wait for the device in each. On the CPU the memory of a tensor can be
    shared with a NumPy array, which may change unseen, so that nothing is kept.

    Args:
        num_types: species of the model.
    """

    def __init__(self, num_types: int) -> None:
        self._num_types = num_types
        self._kept: tuple[tuple[Tensor, ...], tuple[int, ...], tuple[Edges, Grouped]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_num_types": self._num_types, "_kept": None}

    def of(self, graph: Batch) -> tuple[Edges, Grouped]:
        """Return edges, from neighbours to centres, and the atoms by species."""
        index = graph["edge_index"], graph["types"]
        if not index[0].is_cuda or any(tensor.is_inference() for tensor in index):
            return self._build(*index)
        versions = tuple(tensor._version for tensor in index)
        if self._kept is not None:
            tensors, then, sorted_ = self._kept
            if then == versions and all(a is b for a, b in zip(tensors, index, strict=True)):
                return sorted_
        self._kept = index, versions, self._build(*index)
        return self._kept[2]

    def _build(self, edge_index: Tensor, types: Tensor) -> tuple[Edges, Grouped]:
        # The centre receives from its neighbours, so that its energy depends only on its edges.
        centre, neighbour = edge_index
        edges = Edges.build(neighbour, centre, len(types))
        return edges, Grouped(types, self._num_types)
