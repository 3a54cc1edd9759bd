"""Edge vectors of positions, and forces and virials from gradients per edge, without autograd."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import call, load_library
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.neighbours.lists import available


@functools.cache
def _library() -> ctypes.CDLL:
    return load_library(read(__file__, "edge_sums.c"))


def supports(values: Tensor) -> bool:
    """Return whether these kernels can be used for values on this device.

    They are C loops over addresses, so they need memory of the CPU, and they have no derivative.
    Elsewhere torch's indexing is used, which is fast on GPUs and differentiable; an operation of
    the dispatch would have to repeat it as backend and as derivative.
    """
    return not values.requires_grad and values.device.type == "cpu" and available()


def edge_vectors(positions: Tensor, edge_index: Tensor, shift: Tensor) -> Tensor:
    """Return the vectors (E, 3) from centre to neighbour.

    Args:
        positions: (N, 3) float64, on the CPU and contiguous, like all tensors here.
        edge_index: (2, E) int64, centre and neighbour.
        shift: (E, 3) float64, periodic shift of the neighbour.
    """
    out = torch.empty_like(shift)
    call(_library().edge_vectors, len(shift), edge_index, positions, shift, out)
    return out


def place_sums(places: Tensor, values: Tensor, count: int) -> Tensor:
    """Return the sums of the rows that belong to each place; bit-identical from call to call.

    `index_add` of a GPU adds with atomics, in another order at every call; what is written with
    accumulation is sorted by place first. Both have all derivatives.

    Args:
        places: (N,) int64, 0 to count - 1, in any order.
        values: (N, ...) floats on the same device.
        count: number of places.

    Returns:
        (count, ...), zero where no row belongs.

    Example:
        >>> place_sums(torch.tensor([2, 0, 2]), torch.tensor([1.0, 2.0, 4.0]), 4)
        tensor([2., 0., 5., 0.])
    """
    sums = values.new_zeros(count, *values.shape[1:])
    if values.device.type == "cpu":
        return sums.index_add(0, places, values)
    return sums.index_put((places,), values, accumulate=True)


def edge_sums(
    edge_index: Tensor, frame: Tensor, num_frames: int, vectors: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return forces and virials from the gradients of an energy with respect to edge vectors.

    A single loop in the order of the edges, bit-identical for any number of threads.

    Args:
        edge_index: (2, E) int64, centre and neighbour.
        frame: (N,) int64, frame of each atom.
        num_frames: number of frames.
        vectors: (E, 3) float64, on the CPU and contiguous, like all tensors here.
        gradient: (E, 3) float64, dE/d(edge vector).

    Returns:
        Forces (N, 3) and virials (num_frames, 3, 3), float64.
    """
    force = vectors.new_zeros(len(frame), 3)
    virial = vectors.new_zeros(num_frames, 3, 3)
    call(_library().edge_sums, len(vectors), edge_index, frame, vectors, gradient, force, virial)
    return force, virial
