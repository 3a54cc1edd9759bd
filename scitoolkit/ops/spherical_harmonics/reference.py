"""Reference spherical harmonics in plain torch: readable, differentiable to any order, slow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec, sectoral


def spherical_harmonics(spec: HarmonicsSpec, vectors: Tensor) -> Tensor:
    """Return the harmonics of each row, shape (E, dim_out).

    Args:
        spec: degrees and normalisation.
        vectors: shape (E, 3).

    Source: recursion of the associated Legendre polynomials over degrees, in homogeneous form.
    """
    if spec.normalize:
        square = vectors.square().sum(1, keepdim=True)
        is_zero = square == 0
        length = torch.where(is_zero, torch.ones_like(square), square).sqrt()
        vectors = torch.where(is_zero, torch.zeros_like(vectors), vectors / length)
    x, y, z = vectors.unbind(1)
    square = x * x + y * y + z * z
    cosine, sine = [torch.ones_like(x)], [torch.zeros_like(x)]  # (z + i x)^m
    for _ in range(spec.max_degree):
        cosine, sine = (
            [*cosine, cosine[-1] * z - sine[-1] * x],
            [*sine, cosine[-1] * x + sine[-1] * z],
        )
    polar: dict[tuple[int, int], Tensor] = {}
    for m in range(spec.max_degree + 1):
        polar[m, m] = torch.full_like(x, sectoral(m))
        for degree in range(m + 1, spec.max_degree + 1):
            value = (2 * degree - 1) * y * polar[degree - 1, m]
            if degree > m + 1:
                below = math.sqrt((degree - 1) ** 2 - m * m)
                value = value - below * square * polar[degree - 2, m]
            polar[degree, m] = value / math.sqrt(degree**2 - m * m)
    parts = []
    for degree in spec.degrees:
        for m in range(-degree, degree + 1):
            azimuthal = sine[-m] if m < 0 else cosine[m]
            parts.append(spec.scale(degree) * polar[degree, abs(m)] * azimuthal)
    return torch.stack(parts, dim=1)
