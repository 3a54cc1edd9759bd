"""Configuration of se_atten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.contracts import Batch
from scitoolkit.core.lazy import load_name
from scitoolkit.potentials.deepmd.descriptors.config import DescriptorConfig
from scitoolkit.potentials.deepmd.descriptors.fields import (
    AttentionFields,
    AxisFields,
    EnvironmentFields,
    check_axis,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
    from scitoolkit.potentials.deepmd.file import Tree
    from scitoolkit.potentials.deepmd.input_section import Section


class SeAttenDescriptorConfig(AttentionFields, AxisFields, EnvironmentFields, DescriptorConfig):
    """Descriptor se_atten: neighbour embeddings refined by attention.

    deepmd-kit's names are in brackets. The mean of the environments is zero [set_davg_zero, its
    default].

    Attributes:
        sel: largest number of neighbours of all types together; `auto` counts them.
        type_one_side: whether the embedding ignores the centre's type [type_one_side].
        type_width: width of the type embedding [tebd_dim].
        type_input: `concat` appends the type embedding to the distance before the embedding
            network, `strip` feeds it to a separate network whose output is a factor
            [tebd_input_mode].
        type_output: whether the centre's type embedding is appended to the descriptor
            [concat_output_tebd].
        attention_layers: number of attention layers [attn_layer].
    """

    holds_types: ClassVar[bool] = True
    deepmd_types: ClassVar[tuple[str, ...]] = ("se_atten", "dpa1")
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 3.5,
        "cutoff_smooth": 1.0,
        "sel": 40,
        "embedding": [4, 8],
        "axis_neurons": 3,
        "type_width": 4,
        "attention_layers": 2,
        "attention_width": 6,
    }

    name: Literal["se_atten"] = "se_atten"
    sel: PositiveInt | Literal["auto"] = "auto"
    type_one_side: bool = False
    type_width: PositiveInt = 8
    type_input: Literal["concat", "strip"] = "concat"
    type_output: bool = True
    attention_layers: int = Field(default=2, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_axis(self.axis_neurons, self.embedding)
        return self

    @property
    def num_vectors(self) -> int:
        """Number of basis functions."""
        return self.embedding[-1]

    def summary(self) -> dict[str, Any]:
        """Return `sel`."""
        return {"sel": self.sel}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel: auto` replaced by the counted number."""
        from scitoolkit.potentials.deepmd.statistics import suggest_sel, warn_of_overflow

        types = len(type_map)
        most = max(int(_neighbours(graph, types).max()) for graph in graphs)
        if self.sel == "auto":
            return self.model_copy(update={"sel": sum(suggest_sel([most]))})
        warn_of_overflow([most], [self.sel], ["any"])
        return self

    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor with initial weights."""
        made = load_name("scitoolkit.potentials.deepmd.descriptors.se_atten:SeAttenDescriptor")
        return made(self, num_types, generator, dtype)

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return the settings from a descriptor section of deepmd-kit's input.json."""
        from scitoolkit.potentials.deepmd.descriptors.se_atten_file import settings_from_input
        from scitoolkit.potentials.deepmd.descriptors.trees import common_from_input

        return common_from_input(section) | settings_from_input(section)

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file."""
        from scitoolkit.potentials.deepmd.descriptors.se_atten_file import settings_from_tree
        from scitoolkit.potentials.deepmd.descriptors.trees import common_from_tree

        return cls(**common_from_tree(tree, where), **settings_from_tree(tree, where))


def _neighbours(graph: Batch, num_types: int) -> Tensor:
    """Return the number of neighbours of each atom."""
    return graph["segments"].diff().view(-1, num_types).sum(1)
