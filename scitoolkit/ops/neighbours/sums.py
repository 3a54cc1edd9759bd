"""Edge vectors of positions; forces and virials of derivatives by edge, without autograd."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import call, load_library

SOURCE = r"""
#include <stdint.h>
void edge_vectors(int64_t edges, const int64_t *index, const double *positions,
                  const double *shift, double *out) {
  for (int64_t e = 0; e < edges; e++) {
    const double *a = positions + 3 * index[e], *b = positions + 3 * index[edges + e];
    for (int c = 0; c < 3; c++) out[3 * e + c] = b[c] - a[c] + shift[3 * e + c];
  }
}

void edge_sums(int64_t edges, const int64_t *index, const int64_t *frame, const double *vectors,
               const double *gradient, double *force, double *virial) {
  for (int64_t e = 0; e < edges; e++) {
    int64_t i = index[e], j = index[edges + e];
    const double *g = gradient + 3 * e, *v = vectors + 3 * e;
    double *w = virial + 9 * frame[i];
    for (int c = 0; c < 3; c++) {
      force[3 * i + c] += g[c];
      force[3 * j + c] -= g[c];
      for (int d = 0; d < 3; d++) w[3 * c + d] -= v[c] * g[d];
    }
  }
}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    return load_library(SOURCE)


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
