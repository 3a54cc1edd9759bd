"""Configuration of se_e2_r."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from scitoolkit.core.lazy import load_name
from scitoolkit.core.log import get_logger
from scitoolkit.potentials.deepmd.descriptors.fields import PairDescriptorConfig, PairFields

if TYPE_CHECKING:
    import torch

    from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
    from scitoolkit.potentials.deepmd.file import Tree
    from scitoolkit.potentials.deepmd.input_section import Section


log: Logger = get_logger(__name__)


class SeE2RFields(PairFields):
    """Settings of se_e2_r."""

    @model_validator(mode="before")
    @classmethod
    def _without_axis(cls, data: Any) -> Any:
        """Accept the key `axis_neurons`, which former configurations of se_e2_r have."""
        if isinstance(data, Mapping) and "axis_neurons" in data:
            log.warning("configuration key 'axis_neurons' is ignored by se_e2_r")
            return {key: value for key, value in data.items() if key != "axis_neurons"}
        return data


class SeE2RDescriptorConfig(SeE2RFields, PairDescriptorConfig):
    """Descriptor se_e2_r: distances of the neighbours, embedded by type."""

    deepmd_types: ClassVar[tuple[str, ...]] = ("se_e2_r", "se_r")
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 3.0,
        "cutoff_smooth": 1.0,
        "sel": [12, 24],
        "embedding": [4, 8],
    }

    name: Literal["se_e2_r"] = "se_e2_r"

    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor with initial weights."""
        made = load_name("scitoolkit.potentials.deepmd.descriptors.se_e2_r:SeE2RDescriptor")
        return made(self, num_types, generator, dtype)

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return the settings from a descriptor section of deepmd-kit's input.json."""
        from scitoolkit.potentials.deepmd.descriptors.trees import pair_from_input

        return pair_from_input(section)

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file."""
        from scitoolkit.potentials.deepmd.descriptors.trees import pair_from_tree

        return cls(**pair_from_tree(tree, where))
