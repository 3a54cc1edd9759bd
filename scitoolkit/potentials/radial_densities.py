"""Densities of the neighbours of each species around an atom."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.neighbours.sums import place_sums

NUM_BASIS = 8


def radial_densities(graph: Batch, vectors: Tensor, num_types: int, cutoff: float) -> Tensor:
    """Return sums over neighbours of each species, (N, T * NUM_BASIS), in the dtype of vectors.

    The functions are (1 - (r / cutoff)²)³ cos(n pi r / cutoff), n = 0..7, zero beyond the cutoff.

    Args:
        graph: the batch.
        vectors: (E, 3) edge vectors, Å; twice differentiable.
        num_types: T.
        cutoff: Å.
    """
    centre, neighbour = graph["edge_index"]
    number = len(graph["types"])
    distance = vectors.norm(dim=1, keepdim=True) / cutoff
    fade = (1 - distance.square()).clamp_min(0.0) ** 3
    order = torch.arange(NUM_BASIS, dtype=vectors.dtype, device=vectors.device)
    basis = fade * torch.cos(math.pi * order * distance)
    place = centre * num_types + graph["types"][neighbour]
    sums = place_sums(place, basis, number * num_types)
    return sums.view(number, num_types * NUM_BASIS)
