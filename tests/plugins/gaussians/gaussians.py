"""A plug-in descriptor: Gaussians of the distances by type of neighbour.

Source: Behler, J. Chem. Phys. 134, 074106 (2011), eq. 6 (G2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from scitoolkit.potentials import Descriptor, DescriptorConfig


class GaussianDescriptorConfig(DescriptorConfig):
    """Sums of Gaussians of the distances to the neighbours of each type.

    Attributes:
        cutoff: Å.
        number: of Gaussians, their centres spread evenly up to the cutoff.
    """

    example: ClassVar[Mapping[str, Any]] = {"cutoff": 3.5, "number": 6}

    name: Literal["gaussians"] = "gaussians"
    cutoff: PositiveFloat = 5.0
    number: PositiveInt = 8

    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor; it has no weights."""
        return GaussianDescriptor(self, num_types, dtype)


class GaussianDescriptor(Descriptor):
    """G[i, t, k] = sum over neighbours j of type t of exp(-(r_ij - c_k)² / w²) fade(r_ij)."""

    def __init__(
        self, config: GaussianDescriptorConfig, num_types: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.cutoff, self.num_types = config.cutoff, num_types
        self.width = num_types * config.number
        centres = torch.linspace(0.5, config.cutoff, config.number, dtype=dtype)
        self.register_buffer("centres", centres, persistent=False)

    def values(self, graph: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
        """Return (N, types, number)."""
        centre, neighbour = graph["edge_index"]
        distance = vectors.norm(dim=1, keepdim=True)
        fade = (1 - (distance / self.cutoff) ** 2).clamp_min(0) ** 3
        rows = torch.exp(-((2 * (distance - self.centres)) ** 2)) * fade
        place = centre * self.num_types + graph["types"][neighbour]
        out = rows.new_zeros(len(graph["types"]) * self.num_types, rows.shape[1])
        return out.index_add(0, place, rows).view(len(graph["types"]), self.num_types, -1)

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return the values, flattened."""
        return values.flatten(1)
