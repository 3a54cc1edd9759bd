"""Edge vectors of positions; forces and virials of derivatives by edge, without autograd."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import call, load_library
from scitoolkit.ops.codegen.compile import read


@functools.cache
def _library() -> ctypes.CDLL:
    return load_library(read(__file__, "edge_sums.c"))


def edge_vectors(positions: Tensor, edge_index: Tensor, shift: Tensor) -> Tensor:
    """Return (E, 3) vectors from centre to neighbour; all float64, on the CPU."""
    out = torch.empty_like(shift)
    call(_library().edge_vectors, len(shift), edge_index, positions, shift, out)
    return out


def edge_sums(
    edge_index: Tensor, frame: Tensor, num_frames: int, vectors: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return forces (N, 3) and virials (num_frames, 3, 3) of dE/d(edge vector) (E, 3), float64.

    One loop in the order of the edges: the same bits whatever the number of threads.
    """
    force = vectors.new_zeros(len(frame), 3)
    virial = vectors.new_zeros(num_frames, 3, 3)
    call(_library().edge_sums, len(vectors), edge_index, frame, vectors, gradient, force, virial)
    return force, virial
