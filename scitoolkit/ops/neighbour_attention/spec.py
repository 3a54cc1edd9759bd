"""Spec of the attention among an atom's neighbours, its weights, and the edges it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from scitoolkit.ops.environment_matrix.reference import Layer


@dataclass(frozen=True)
class NeighbourAttentionSpec:
    """Moments of an atom's environment with basis functions that attention has refined.

    For the neighbours j of an atom, with rows R_j and s_j of the environment matrix (mean 0; see
    `EnvironmentSpec`) and w the switch,

        G_j = embedding(s_j; bias of the pair of types), times (1 + factor of the pair * w_j),
        G <- LayerNorm(G + attention(G)) for each layer,
        T[m, c] = 1/sel * sum_j G_j[m] R_j[c],

    where attention gates the softmax of queries and keys by the cosine between neighbours.

    Attributes:
        cutoff, cutoff_smooth: Å.
        sel: number of neighbours that sums are divided by; absent ones take part in a smooth
            softmax with the logit of one at the cutoff.
        widths: of the embedding's layers.
        attention_width: of queries, keys and values.
        scale: of the logits.
        norm_epsilon: of the layers' normalisation.
        normalize: queries, keys and values have length 1.
        smooth: logits, attention and factors fade with w.
        angular: attention is multiplied by the cosine.
        gate_floor: where the directional part of a row (w/r over the deviation of its second
            column) is shorter than this, the direction in the cosine is as much shorter than 1.

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
        project: (M, 3 H), queries, keys and values side by side. project_bias: (3 H,).
        mix: (H, M). mix_bias: (M,).
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
        embedding: layers of the network of s alone; no layer has a step.
        first_bias: (P, widths[0]), the first layer's bias for each pair of types; one row where
            `factors` tell the pairs apart.
        factors: (P, M) of each pair, None without any.
        deviation: (T, 4) of the rows, by the centre's type.
        layers: of the attention.
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
        pointer: (N + 1,) int64, where the edges of each atom begin.
        types: (N,) int64.
        pair: (E,) int64, the row of `first_bias` or `factors`.
        vectors: (E, 3) from centre to neighbour, Å.
    """

    pointer: Tensor
    types: Tensor
    pair: Tensor
    vectors: Tensor
