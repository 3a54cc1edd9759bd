"""Reference attention among neighbours in plain torch: readable, differentiable to any order.

The attention matrices have shape (N, most neighbours, most neighbours) in each layer, so that large
systems need far more memory than with the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.ops.environment_matrix import EnvironmentSpec
from scitoolkit.ops.environment_matrix import reference as environment
from scitoolkit.ops.neighbour_attention.spec import (
    LOGIT_SHIFT,
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)


class Slots:
    """Mapping between edges (E,) sorted by atom and a padded table (N, K) of neighbours.

    Attributes:
        present: (N, K), whether there is an edge.
        absent: `sel` minus K.
    """

    def __init__(self, centre: Tensor, num_atoms: int, sel: int) -> None:
        counts = torch.bincount(centre, minlength=num_atoms)
        most = int(counts.max().clamp_min(1)) if num_atoms else 1
        place = (
            torch.arange(len(centre), device=centre.device) - (counts.cumsum(0) - counts)[centre]
        )
        self._flat, self._shape = centre * most + place, (num_atoms, most)
        self.present: Tensor = torch.arange(most, device=centre.device) < counts[:, None]
        self.absent: int = sel - most

    def spread(self, values: Tensor) -> Tensor:
        """Return values (E, ...) as a table (N, K, ...), zero where there is no edge."""
        table = values.new_zeros(self._shape[0] * self._shape[1], *values.shape[1:])
        return table.index_add(0, self._flat, values).view(*self._shape, *values.shape[1:])

    def gather(self, values: Tensor) -> Tensor:
        """Return the edges (E, ...) of a table (N, K, ...)."""
        return values.flatten(0, 1)[self._flat]


def attention(
    spec: NeighbourAttentionSpec,
    layer: LayerWeights,
    basis: Tensor,
    fade: Tensor,
    cosines: Tensor | None,
    slots: Slots,
) -> Tensor:
    """Return the basis functions (E, M) after a layer of gated self-attention.

    Args:
        spec: the operation.
        layer: the weights.
        basis: (E, M).
        fade: (N, K), switching function of each neighbour, 0 where there is none.
        cosines: (N, K, K) between the directions of neighbours, None without the gate.
        slots: mapping of edges to (N, K).
    """
    query, key, value = (slots.spread(part) for part in projected(spec, layer, basis))
    logits = torch.bmm(query * spec.scale, key.transpose(1, 2))
    if spec.smooth:
        pair = fade[:, :, None] * fade[:, None, :]
        logits = (logits + LOGIT_SHIFT) * pair - LOGIT_SHIFT
        # Absent neighbours, up to `sel`, have the logit of a neighbour at the cutoff.
        least = logits.detach().amax(2, keepdim=True).clamp_min(-LOGIT_SHIFT)
        powers = (logits - least).exp()
        absent = torch.exp(-LOGIT_SHIFT - least) * slots.absent
        weights = powers / (powers.sum(2, keepdim=True) + absent) * pair
    else:
        there = slots.present.to(logits.dtype)
        weights = logits.masked_fill(~slots.present[:, None, :], -torch.inf)
        weights = weights.masked_fill(~slots.present.any(1)[:, None, None], 0.0)
        weights = weights.softmax(2) * there[:, :, None] * there[:, None, :]
    if cosines is not None:
        weights = weights * cosines
    return mixed(spec, layer, basis, slots.gather(torch.bmm(weights, value)))


def projected(
    spec: NeighbourAttentionSpec, layer: LayerWeights, basis: Tensor
) -> tuple[Tensor, ...]:
    """Return queries, keys and values (E, H) of basis functions (E, M)."""
    parts = (basis @ layer.project + layer.project_bias).chunk(3, dim=1)
    if not spec.normalize:
        return parts
    return tuple(part / part.norm(dim=1, keepdim=True) for part in parts)


def mixed(
    spec: NeighbourAttentionSpec, layer: LayerWeights, basis: Tensor, attended: Tensor
) -> Tensor:
    """Return the normalised sum of basis functions (E, M) and attended values (E, H)."""
    out = attended @ layer.mix + layer.mix_bias
    return torch.nn.functional.layer_norm(
        basis + out, basis.shape[1:], layer.norm_weight, layer.norm_bias, spec.norm_epsilon
    )


def refined_moments(
    spec: NeighbourAttentionSpec,
    layers: Sequence[LayerWeights],
    basis: Tensor,
    rows: Tensor,
    fade: Tensor,
    directions: Tensor,
    slots: Slots,
) -> Tensor:
    """Return the moments (N, M, 4) of basis functions refined by attention layers.

    Args:
        spec: the operation.
        layers: the weights.
        basis: (E, M) before attention.
        rows: (E, 4) of the environment matrix.
        fade: (E,), switching function.
        directions: (E, 3), see `gate_directions`.
        slots: mapping of edges to (N, K).
    """
    if layers:
        cosines, spread = None, slots.spread(directions)
        if spec.angular:
            cosines = torch.bmm(spread, spread.transpose(1, 2))
        faded = slots.spread(fade)
        for layer in layers:
            basis = attention(spec, layer, basis, faded, cosines, slots)
    # Batched matrix products avoid an array (E, M, 4).
    return torch.bmm(slots.spread(basis).transpose(1, 2), slots.spread(rows)) / spec.sel


def gate_directions(spec: NeighbourAttentionSpec, vectors: Tensor, lengths: Tensor) -> Tensor:
    """Return the directions (E, 3) whose cosines gate the attention.

    Args:
        spec: the operation.
        vectors: (E, 3), Å.
        lengths: (E,), lengths of the directional parts of the environment matrix's rows.
    """
    directions = vectors / vectors.norm(dim=1, keepdim=True)
    if not spec.gate_floor:
        return directions
    return directions * (lengths / spec.gate_floor).clamp_max(1.0)[:, None]


def moments(spec: NeighbourAttentionSpec, weights: Weights, neighbours: Neighbours) -> Tensor:
    """Return the moments (N, M, 4) of all atoms."""
    types = neighbours.types
    centre, basis, rows, fade, directions = edge_inputs(spec, weights, neighbours)
    slots = Slots(centre, len(types), spec.sel)
    return refined_moments(spec, weights.layers, basis, rows, fade, directions, slots)


def edge_inputs(
    spec: NeighbourAttentionSpec, weights: Weights, neighbours: Neighbours
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the centre, basis functions, row, switching function and direction of each edge."""
    vectors, types = neighbours.vectors, neighbours.types
    atoms = torch.arange(len(types), device=types.device)
    counts = neighbours.pointer.diff()
    centre = torch.repeat_interleave(atoms, counts, output_size=len(vectors))
    distance = vectors.norm(dim=1)
    fade = environment.switch(distance, spec.cutoff_smooth, spec.cutoff)
    of_rows = EnvironmentSpec(spec.cutoff, spec.cutoff_smooth, (spec.sel,), spec.widths)
    rows, deviation = (
        environment.environment_rows(of_rows, vectors),
        weights.deviation[types[centre]],
    )
    directions = gate_directions(spec, vectors, rows[:, 0] / deviation[:, 1])
    rows = rows / deviation
    basis = _basis(spec, weights, neighbours.pair, rows[:, :1], fade)
    return centre, basis, rows, fade, directions


def _basis(
    spec: NeighbourAttentionSpec, weights: Weights, pair: Tensor, s: Tensor, fade: Tensor
) -> Tensor:
    (first, _, _), *others = weights.embedding
    shown = torch.zeros_like(pair) if weights.factors is not None else pair
    hidden = torch.tanh(s @ first + weights.first_bias[shown])
    radial = environment.embedding(hidden, others)
    if weights.factors is None:
        return radial
    factors = weights.factors[pair]
    return radial * (1 + (factors * fade[:, None] if spec.smooth else factors))


def moments_and_slopes(
    spec: NeighbourAttentionSpec,
    weights: Weights,
    neighbours: Neighbours,
    atoms: Tensor,
    cotangent: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the moments (n, M, 4) of some atoms, and d<cotangent, moments>/d(vectors), (E, 3)."""
    with torch.enable_grad():
        vectors = neighbours.vectors.detach().requires_grad_()
        edges = Neighbours(neighbours.pointer, neighbours.types, neighbours.pair, vectors)
        out = moments(spec, weights, edges)[atoms]
        (slopes,) = torch.autograd.grad(out, vectors, cotangent, materialize_grads=True)
    return out.detach(), slopes
