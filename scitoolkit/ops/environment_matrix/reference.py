"""Reference environment matrix in plain torch: readable, differentiable to any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

Layer = tuple[Tensor, Tensor, Tensor | None]
"""Weight (in, out), bias (out,), and step (out,) or None, of one layer."""

RADIAL_FACTOR = 0.2  # deepmd-kit's scale of se_e2_r


def switch(distance: Tensor, start: float, stop: float) -> Tensor:
    """Return the switching function w(r): 1 below `start`, 0 above `stop`, a quintic between.

    Example:
        >>> switch(torch.tensor([0.0, 1.5, 2.0]), 1.0, 2.0).tolist()
        [1.0, 0.5, 0.0]
    """
    u = ((distance - start) / (stop - start)).clamp(0.0, 1.0)
    # Not 1 - 10 u³ + 15 u⁴ - 6 u⁵: near the cutoff, where w is small, its digits cancel.
    return (1.0 - u) ** 3 * (1.0 + u * (3.0 + 6.0 * u))


def environment_rows(spec: EnvironmentSpec, vectors: Tensor) -> Tensor:
    """Return the rows (s, s x/r, s y/r, s z/r), not normalised, of edge vectors (E, 3) in Å.

    Returns:
        Shape (E, 4); (E, 1) with s alone for the radial descriptor.
    """
    distance = vectors.norm(dim=1, keepdim=True)
    s = switch(distance, spec.cutoff_smooth, spec.cutoff) / distance
    if spec.radial:
        return s
    return torch.cat([s, s * vectors / distance], dim=1)


def embedding(s: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Return the basis functions (E, widths[-1]) of normalised s (E, 1)."""
    h = s
    for weight, bias, step in layers:
        t = torch.tanh(h @ weight + bias)
        t = t if step is None else t * step
        if weight.shape[1] == weight.shape[0]:
            t = t + h
        elif weight.shape[1] == 2 * weight.shape[0]:
            t = t + torch.cat([h, h], dim=1)
        h = t
    return h


def moments(
    spec: EnvironmentSpec,
    vectors: Tensor,
    segments: Tensor,
    centre_types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    networks: Sequence[Sequence[Layer]],
) -> Tensor:
    """Return the moments T, shape (N, widths[-1], columns).

    Args:
        spec: the operation.
        vectors: (E, 3) from centre to neighbour, Å, sorted by centre and then by neighbour type.
        segments: (N * num_types + 1,) int64, first edge of each centre and neighbour type.
        centre_types: (N,) int64.
        mean: (num_types, columns), mean of the rows by centre type.
        deviation: (num_types, columns), standard deviation of the rows by centre type.
        networks: the layers of each embedding network.
    """
    counts = segments.diff().view(len(centre_types), spec.num_types)
    total = _present(spec, vectors, counts, centre_types, mean, deviation, networks)
    total = total + _absent(spec, counts, centre_types, mean, deviation, networks)
    return total / sum(spec.sel)


def present_moments(
    spec: EnvironmentSpec,
    vectors: Tensor,
    segments: Tensor,
    centre_types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    weights: Tensor,
) -> Tensor:
    """Return T without the absent neighbours, the output of the kernels.

    Args:
        spec, vectors, segments, centre_types, mean, deviation: as for `moments`.
        weights: shape (networks, parameters), as `operators.flat_weights` returns them.
    """
    counts = segments.diff().view(len(centre_types), spec.num_types)
    networks = [_layers(spec, network) for network in weights]
    total = _present(spec, vectors, counts, centre_types, mean, deviation, networks)
    return total / sum(spec.sel)


def _layers(spec: EnvironmentSpec, flat: Tensor) -> list[Layer]:
    """Return the layers of one network from its flat parameters."""
    sizes = (1, *spec.widths)
    shapes = [shape for a, b in pairwise(sizes) for shape in ((a, b), (b,))]
    parts = flat.split([math.prod(shape) for shape in shapes])
    tensors = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    return [(w, b, None) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]


def _present(
    spec: EnvironmentSpec,
    vectors: Tensor,
    counts: Tensor,
    centre_types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    networks: Sequence[Sequence[Layer]],
) -> Tensor:
    """Return the sums over the present neighbours."""
    centres, types = counts.shape
    pairs = torch.arange(centres * types, device=vectors.device)
    pair = torch.repeat_interleave(pairs, counts.flatten())
    centre, neighbour_type = pair // types, pair % types
    rows = environment_rows(spec, vectors)
    centre_type = centre_types[centre]
    rows = (rows - mean[centre_type]) / deviation[centre_type]
    network = neighbour_type if spec.type_one_side else centre_type * types + neighbour_type
    total = vectors.new_zeros(centres, spec.widths[-1], spec.columns)
    for index, layers in enumerate(networks):
        chosen = (network == index).nonzero().squeeze(1)
        if len(chosen):
            basis = embedding(rows[chosen, :1], layers)
            products = basis[:, :, None] * _factor(spec, rows[chosen])[:, None, :]
            total = total.index_add(0, centre[chosen], products)
    return total


def _factor(spec: EnvironmentSpec, rows: Tensor) -> Tensor:
    """Return the second factor of the moments: the rows, or a constant for se_e2_r."""
    return torch.full_like(rows, RADIAL_FACTOR) if spec.radial else rows


def _absent(
    spec: EnvironmentSpec,
    counts: Tensor,
    centre_types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    networks: Sequence[Sequence[Layer]],
) -> Tensor:
    """Return the contribution of absent neighbours (R = 0 before normalising) to the sums."""
    table = absent_rows(spec, mean, deviation, networks)[centre_types]
    absent = torch.tensor(spec.sel, device=counts.device) - counts
    return torch.einsum("nt,ntmc->nmc", absent.to(mean.dtype), table)


def absent_rows(
    spec: EnvironmentSpec, mean: Tensor, deviation: Tensor, networks: Sequence[Sequence[Layer]]
) -> Tensor:
    """Return the product G ⊗ R of one absent neighbour, shape (type, type, widths[-1], columns)."""
    zero = -mean / deviation
    rows = []
    for centre in range(spec.num_types):
        basis = [
            embedding(zero[centre : centre + 1, :1], networks[spec.network(centre, other)])
            for other in range(spec.num_types)
        ]
        rows.append(torch.cat(basis)[:, :, None] * _factor(spec, zero[centre]))
    return torch.stack(rows)
