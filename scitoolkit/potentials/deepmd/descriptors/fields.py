"""Settings that the descriptors built on the environment matrix share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.deepmd.descriptors.config import DescriptorConfig
from scitoolkit.potentials.deepmd.resnet_steps import ResnetSteps

TypePair = tuple[int, int]


class EnvironmentFields(Config):
    """Settings of an environment matrix and its embedding; names in brackets are deepmd-kit's.

    Attributes:
        cutoff: Å [rcut].
        cutoff_smooth: Å, where the switch begins [rcut_smth].
        embedding: widths [neuron].
        type_one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_resnet_dt: layers of the embedding with a step [resnet_dt]: deepmd-kit's
            TensorFlow backend has them in layers that keep their width (same_width), its others
            in all.
        exclude_types: pairs of types (places in the type map) that do not see each other.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "one_side": "type_one_side", "embedding_step": "embedding_resnet_dt",
    }  # fmt: skip

    cutoff: PositiveFloat = 6.0
    cutoff_smooth: float = Field(default=0.5, ge=0)
    embedding: list[PositiveInt] = Field(default=[25, 50, 100], min_length=1)
    type_one_side: bool = True
    embedding_resnet_dt: ResnetSteps = "none"
    exclude_types: list[TypePair] = Field(default_factory=list)

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.cutoff_smooth >= self.cutoff:
            raise ValueError(f"cutoff_smooth {self.cutoff_smooth} must be below {self.cutoff}")
        return self


class PairFields(EnvironmentFields):
    """Settings of the two-body embedding.

    Attributes:
        sel: most neighbours of each type, in the order of the type map; `auto` counts them.
        zero_mean: leave the mean of the environments at zero [set_davg_zero]. Without it an
            excluded neighbour makes a jump where it crosses the cutoff, as in deepmd-kit, so that
            models with `exclude_types` that are trained here have a mean of zero.
    """

    sel: list[PositiveInt] | Literal["auto"] = "auto"
    zero_mean: bool = False


class AxisFields(Config):
    """Settings of D = T T'^T.

    Attributes:
        axis_neurons: number of basis functions in the second factor T' [axis_neuron].
    """

    axis_neurons: PositiveInt = 16


def check_axis(axis_neurons: int, embedding: Sequence[int]) -> None:
    """Refuse a second factor wider than the first.

    Raises:
        ValueError: it is.
    """
    if axis_neurons > embedding[-1]:
        raise ValueError(f"axis_neurons {axis_neurons} exceed the last embedding width")


class PairDescriptorConfig(PairFields, DescriptorConfig):
    """Base of the configurations of se_e2_a and se_e2_r."""

    def summary(self) -> dict[str, Any]:
        """Return `sel`."""
        return {"sel": self.sel}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel` counted by type where it is `auto`."""
        from scitoolkit.potentials.deepmd.statistics import (
            max_neighbours,
            suggest_sel,
            warn_of_overflow,
        )

        most = max_neighbours(graphs, len(type_map))
        if self.sel == "auto":
            return self.model_copy(update={"sel": suggest_sel(most)})
        if len(self.sel) == len(most):
            warn_of_overflow(most, self.sel, type_map)
        return self


class AttentionFields(Config):
    """Settings of the attention; brackets have deepmd-kit's names.

    Attributes:
        attention_width: of queries, keys and values [attn].
        angular_gate: multiply the attention by cosines between neighbours [attn_dotr].
        normalize: queries, keys and values have length 1 [normalize].
        smooth: attention fades towards the cutoff; without it an atom that crosses the cutoff
            makes a jump [smooth_type_embedding].
        scaling: attention logits are divided by the root of width times this [scaling_factor].
        temperature: multiplies the logits instead, where it is given [temperature].
        norm_epsilon: of the layers' normalisation [ln_eps].
        gate_floor: where the directional part of a neighbour's row of the environment is shorter
            than this, close to the cutoff, its direction in the cosines is as much shorter than 1;
            1e-6 in models of deepmd-kit's TensorFlow backend.
    """

    attention_width: PositiveInt = 128
    angular_gate: bool = True
    normalize: bool = True
    smooth: bool = True
    scaling: PositiveFloat = 1.0
    temperature: float | None = None
    norm_epsilon: PositiveFloat = 1e-5
    gate_floor: NonNegativeFloat = 0.0
