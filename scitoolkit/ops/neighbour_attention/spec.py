"""Spec of attention among an atom's neighbours, its weights and its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from scitoolkit.ops.environment_matrix.reference import Layer

LOGIT_SHIFT = 20.0  # as in deepmd-kit: a neighbour at the cutoff has the logit -20


@dataclass(frozen=True)
class NeighbourAttentionSpec:
    """Moments of an atom's environment with basis functions refined by attention.

    For the neighbours j of an atom, with rows R_j and s_j of the environment matrix (mean 0; see
    `EnvironmentSpec`) and the switching function w,

        G_j = embedding(s_j; bias of the pair of types), times (1 + factor of the pair * w_j),
        G <- LayerNorm(G + attention(G)) for each layer,
        T[m, c] = 1/sel * sum_j G_j[m] R_j[c],

    where attention gates the softmax of queries and keys by the cosine between neighbours.

    Attributes:
        cutoff, cutoff_smooth: Å.
        sel: number of neighbours by which sums are divided; in a smooth softmax absent neighbours
            have the logit of a neighbour at the cutoff.
        widths: widths of the embedding's layers.
        attention_width: width of queries, keys and values.
        scale: factor of the logits.
        norm_epsilon: epsilon of the layer normalisation.
        normalize: normalise queries, keys and values to length 1.
        smooth: multiply logits, attention and factors by switching functions.
        angular: multiply attention by the cosine.
        gate_floor: length below which directions in the cosine are shortened in proportion; the
            length is that of a row's directional part, w/r over the deviation of the second column.

    Source: Zhang et al., DPA-1, npj Computational Materials 10, 94 (2024), eqs. 6-12.
    """

    cutoff: float
    cutoff_smooth: float
    sel: int
    widths: tuple[int, ...]
    attention_width: int
    scale: float
    norm_epsilon: float
    normalize: bool = True
    smooth: bool = True
    angular: bool = True
    gate_floor: float = 0.0


class LayerWeights(NamedTuple):
    """Parameters of an attention layer of H columns on M basis functions.

    Attributes:
        project: (M, 3 H), weights of queries, keys and values.
        project_bias: (3 H,).
        mix: (H, M), weights of the output.
        mix_bias: (M,).
        norm_weight, norm_bias: (M,).
    """

    project: Tensor
    project_bias: Tensor
    mix: Tensor
    mix_bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters of the operation.

    Attributes:
        embedding: layers of the embedding of s; no layer has a step.
        first_bias: (P, widths[0]), the first layer's bias for each pair of types; a single row if
            there are `factors`.
        factors: (P, M), factors of the basis functions for each pair of types, or None.
        deviation: (T, 4), standard deviation of the rows by the centre's type.
        layers: attention layers.
    """

    embedding: Sequence[Layer]
    first_bias: Tensor
    factors: Tensor | None
    deviation: Tensor
    layers: Sequence[LayerWeights]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Edges sorted by centre.

    Attributes:
        pointer: (N + 1,) int64, first edge of each atom.
        types: (N,) int64.
        pair: (E,) int64, the row of `first_bias` or `factors`.
        vectors: (E, 3) from centre to neighbour, Å.
    """

    pointer: Tensor
    types: Tensor
    pair: Tensor
    vectors: Tensor
