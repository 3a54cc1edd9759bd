"""Attention among the neighbours of an atom (DPA-1): moments of refined basis functions."""

from scitoolkit.ops.neighbour_attention.cpu import KeptAtoms
from scitoolkit.ops.neighbour_attention.public import KeptMoments, available
from scitoolkit.ops.neighbour_attention.spec import (
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)

__all__ = [
    "KeptAtoms",
    "KeptMoments",
    "LayerWeights",
    "NeighbourAttentionSpec",
    "Neighbours",
    "Weights",
    "available",
]
