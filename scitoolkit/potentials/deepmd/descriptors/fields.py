"""Settings shared by the descriptors of the environment matrix."""

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
    """Settings of an environment matrix and its embedding; deepmd-kit's names in brackets.

    Attributes:
        cutoff: Å [rcut].
        cutoff_smooth: distance at which the switching function begins, Å [rcut_smth].
        embedding: widths of the embedding network [neuron].
        type_one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_resnet_dt: layers of the embedding with a trained time step [resnet_dt]:
            deepmd-kit's TensorFlow backend has them in layers of unchanged width (same_width), its
            other backends in all layers.
        exclude_types: pairs of types (indices into the type map) that do not interact.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "one_side": "type_one_side",
        "embedding_step": "embedding_resnet_dt",
    }

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
        sel: largest number of neighbours of each type, in the order of the type map; `auto` counts
            them.
        zero_mean: set the mean of the environments to zero [set_davg_zero]. Otherwise the energy
            jumps where an excluded neighbour crosses the cutoff, as in deepmd-kit; therefore
            models trained with `exclude_types` always have zero mean.
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
    """Refuse a second factor T' wider than T.

    Raises:
        ValueError: `axis_neurons` exceeds the last embedding width.
    """
    if axis_neurons > embedding[-1]:
        raise ValueError(f"axis_neurons {axis_neurons} exceed the last embedding width")


class PairDescriptorConfig(PairFields, DescriptorConfig):
    """Base class of the configurations of se_e2_a and se_e2_r."""

    def summary(self) -> dict[str, Any]:
        """Return `sel`."""
        return {"sel": self.sel}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel: auto` replaced by numbers counted for each type."""
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
    """Settings of the attention; deepmd-kit's names in brackets.

    Attributes:
        attention_width: of queries, keys and values [attn].
        angular_gate: multiply the attention by cosines between neighbours [attn_dotr].
        normalize: whether queries, keys and values are normalised to length 1 [normalize].
        smooth: whether attention vanishes smoothly at the cutoff; otherwise the energy jumps when
            an atom crosses the cutoff [smooth_type_embedding].
        scaling: the logits are divided by sqrt(attention_width * scaling) [scaling_factor].
        temperature: factor of the logits that replaces this division, if given [temperature].
        norm_epsilon: epsilon of the layer normalisation [ln_eps].
        gate_floor: smallest norm by which the directional part of a neighbour's environment row is
            divided for the cosines, which shortens directions close to the cutoff; 1e-6 in models
            of deepmd-kit's TensorFlow backend.
    """

    attention_width: PositiveInt = 128
    angular_gate: bool = True
    normalize: bool = True
    smooth: bool = True
    scaling: PositiveFloat = 1.0
    temperature: float | None = None
    norm_epsilon: PositiveFloat = 1e-5
    gate_floor: NonNegativeFloat = 0.0
