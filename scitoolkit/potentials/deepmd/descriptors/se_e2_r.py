"""se_e2_r: the smooth-edition descriptor of distances alone, in plain torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from scitoolkit.core.log import get_logger
from scitoolkit.potentials.deepmd.descriptors.environment import (
    PairDescriptor,
    PairDescriptorConfig,
    PairFields,
)
from scitoolkit.potentials.deepmd.descriptors.trees import (
    common_from_input,
    common_from_tree,
    fill_pair,
    pair_tree,
    sel_from_input,
)
from scitoolkit.potentials.deepmd.file import Tree
from scitoolkit.potentials.deepmd.input_section import Section

log: Logger = get_logger(__name__)


class SeE2RFields(PairFields):
    """Settings of se_e2_r."""

    @model_validator(mode="before")
    @classmethod
    def _without_axis(cls, data: Any) -> Any:
        """Accept the key of se_e2_a that former configurations of se_e2_r hold."""
        if isinstance(data, Mapping) and "axis_neurons" in data:
            log.warning("configuration key 'axis_neurons' has no meaning for se_e2_r")
            return {key: value for key, value in data.items() if key != "axis_neurons"}
        return data


class SeE2RDescriptorConfig(SeE2RFields, PairDescriptorConfig):
    """Distances of the neighbours, embedded by type."""

    deepmd_types: ClassVar[tuple[str, ...]] = ("se_e2_r", "se_r")
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 3.0, "cutoff_smooth": 1.0, "sel": [12, 24], "embedding": [4, 8],
    }  # fmt: skip

    name: Literal["se_e2_r"] = "se_e2_r"

    def build(
        self, num_types: int, generator: torch.Generator, dtype: torch.dtype
    ) -> SeE2RDescriptor:
        """Return the descriptor with initial weights."""
        return SeE2RDescriptor(self, num_types, generator, dtype)

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return our settings of a descriptor section of deepmd-kit's input.json."""
        return {
            **common_from_input(section), "sel": sel_from_input(section),
            "zero_mean": section.get("set_davg_zero", False),
        }  # fmt: skip

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file."""
        return cls(
            sel=tree["sel"], zero_mean=tree.get("set_davg_zero", False),
            **common_from_tree(tree, where),
        )  # fmt: skip


class SeE2RDescriptor(PairDescriptor):
    """D = T, the moments of the distances."""

    def __init__(
        self, config: SeE2RDescriptorConfig, num_types: int, generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__(config, num_types, generator, dtype, radial=True)
        self.width: int = config.embedding[-1]

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D of (n, M, 1)."""
        return values.squeeze(2)

    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file."""
        fill_pair(self, tree, where)

    def to_tree(self, type_map: Sequence[str], precision: str) -> Tree:
        """Return the tree of a `.dp` file."""
        return pair_tree(self, type_map, precision)
