"""Configuration of se_e2_a."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from scitoolkit.core.lazy import load_name
from scitoolkit.potentials.deepmd.descriptors.fields import (
    AxisFields,
    PairDescriptorConfig,
    PairFields,
    check_axis,
)

if TYPE_CHECKING:
    import torch

    from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
    from scitoolkit.potentials.deepmd.file import Tree
    from scitoolkit.potentials.deepmd.input_section import Section


class SeE2AFields(AxisFields, PairFields):
    """Settings of se_e2_a."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_axis(self.axis_neurons, self.embedding)
        return self


class SeE2ADescriptorConfig(SeE2AFields, PairDescriptorConfig):
    """Descriptor se_e2_a: distances and directions of the neighbours, embedded by type."""

    tables: ClassVar[bool] = True
    deepmd_types: ClassVar[tuple[str, ...]] = ("se_e2_a", "se_a")
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 4.0,
        "cutoff_smooth": 1.0,
        "sel": [12, 24],
        "embedding": [5, 10, 20],
        "axis_neurons": 4,
    }

    name: Literal["se_e2_a"] = "se_e2_a"

    @property
    def num_vectors(self) -> int:
        """Number of basis functions."""
        return self.embedding[-1]

    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor with initial weights."""
        made = load_name("scitoolkit.potentials.deepmd.descriptors.se_e2_a:SeE2ADescriptor")
        return made(self, num_types, generator, dtype)

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return the settings from a descriptor section of deepmd-kit's input.json."""
        from scitoolkit.potentials.deepmd.descriptors.trees import pair_from_input

        return {**pair_from_input(section), "axis_neurons": section.get("axis_neuron", 4)}

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file."""
        from scitoolkit.potentials.deepmd.descriptors.trees import pair_from_tree

        return cls(axis_neurons=tree["axis_neuron"], **pair_from_tree(tree, where))
