"""Descriptor se_e2_r of distances only (DeepPot-SE), in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor
from scitoolkit.potentials.deepmd.descriptors.se_e2_r_config import (
    SeE2RDescriptorConfig,
)
from scitoolkit.potentials.deepmd.descriptors.trees import (
    fill_pair,
    pair_tree,
)
from scitoolkit.potentials.deepmd.file import Tree


class SeE2RDescriptor(PairDescriptor):
    """Descriptor D = T, the moments of the distances."""

    def __init__(
        self,
        config: SeE2RDescriptorConfig,
        num_types: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, num_types, generator, dtype, radial=True)
        self.width: int = config.embedding[-1]

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D, (n, M), of the moments (n, M, 1)."""
        return values.squeeze(2)

    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file."""
        fill_pair(self, tree, where)

    def to_tree(self, type_map: Sequence[str], precision: str) -> Tree:
        """Return the tree of a `.dp` file."""
        return pair_tree(self, type_map, precision)
