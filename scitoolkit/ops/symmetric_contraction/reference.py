"""Reference symmetric contraction in plain torch: readable, differentiable to any order, slow.

Letters: N nodes, E elements, C channels, K paths, M monomials; i, m components in and out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.ops.symmetric_contraction.coupling import basis, monomials
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec


def symmetric_contraction(
    spec: ContractionSpec, x: Tensor, weight: Tensor, species: Tensor
) -> Tensor:
    """Return the contraction of each node, shape (N, dim_out, C).

    Args:
        spec: irreps and correlation.
        x: features, shape (N, dim_in, C).
        weight: shape (E, num_paths, C).
        species: element of each node, shape (N,).

    Source: Batatia et al. 2022 (arXiv 2206.07697), equations 10 and 11.
    """
    powers = {}  # monomials of each order, shape (N, M, C)
    for order in range(1, spec.correlation + 1):
        index = torch.tensor(monomials(spec.dim_in, order), device=x.device)
        powers[order] = x[:, index].prod(dim=2)
    parts, start = [], 0
    for out, order, count in spec.blocks:
        constants = torch.as_tensor(
            basis(spec.irreps_in, out, order), dtype=x.dtype, device=x.device
        )
        weights = weight[:, start : start + count][species]
        start += count
        part = torch.einsum("mMk,nkc,nMc->nmc", constants, weights, powers[order])
        if order == 1:
            parts.append(part)
        else:
            parts[-1] = parts[-1] + part
    return torch.cat(parts, dim=1)
