"""Configurations of Deep Potential models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt

from scitoolkit.core.contracts import Batch
from scitoolkit.core.lazy import load_name
from scitoolkit.core.plugins import Choice
from scitoolkit.potentials.deepmd.descriptors.config import DescriptorConfig, descriptors
from scitoolkit.potentials.deepmd.descriptors.se_e2_a_config import (
    SeE2ADescriptorConfig,
    SeE2AFields,
)
from scitoolkit.potentials.deepmd.descriptors.se_e2_r_config import (
    SeE2RDescriptorConfig,
    SeE2RFields,
)
from scitoolkit.potentials.deepmd.resnet_steps import ResnetSteps
from scitoolkit.potentials.long_range_config import LongRangeConfig
from scitoolkit.potentials.model_config import ModelConfig
from scitoolkit.potentials.zbl_config import ZblConfig

if TYPE_CHECKING:
    from scitoolkit.potentials.model import Potential

AnyDescriptor = Annotated[DescriptorConfig, Choice(descriptors)]


class FittingFields(ModelConfig):
    """Settings of a Deep Potential without its descriptors; deepmd-kit's names in brackets.

    Attributes:
        fitting: widths of the hidden layers of the fitting nets [neuron].
        fitting_resnet_dt: layers of the fitting nets with a trained time step [resnet_dt].
        shared_fitting: one fitting net for all types, which requires descriptors that include the
            type, such as se_atten; by default if all descriptors include it.
        frame_parameters: number of parameters per frame, such as a temperature [numb_fparam].
        atom_parameters: number of parameters per atom [numb_aparam].
        precision: of parameters and arithmetic; energies are summed in float64.
        zbl: ZBL repulsion added to the learned energy, `{}` for defaults; see `ZblConfig`.
        long_range: electrostatic energy beyond the cutoff, `{}` for defaults; see
            `LongRangeConfig`.
        seed: of the initial weights.
    """

    renamed: ClassVar[Mapping[str, str]] = {"fitting_step": "fitting_resnet_dt"}
    tables: ClassVar[bool] = True
    library: ClassVar[str] = "scitoolkit.potentials.deepmd.library:deep_potential_library"

    fitting: list[PositiveInt] = Field(default=[240, 240, 240], min_length=1)
    fitting_resnet_dt: ResnetSteps = "same_width"
    shared_fitting: bool | None = None
    frame_parameters: NonNegativeInt = 0
    atom_parameters: NonNegativeInt = 0
    precision: Literal["float32", "float64"] = "float64"
    zbl: ZblConfig | None = None
    long_range: LongRangeConfig | None = None
    seed: NonNegativeInt = 0

    @property
    def descriptor_configs(self) -> list[DescriptorConfig]:
        """The descriptors."""
        raise NotImplementedError

    @property
    def one_fitting(self) -> bool:
        """Whether all types share one fitting net."""
        if self.shared_fitting is not None:
            return self.shared_fitting
        return all(part.holds_types for part in self.descriptor_configs)

    def summary(self) -> dict[str, Any]:
        """Return the summaries of the descriptors, by name if there are several."""
        pairs = [(part.name, part.summary()) for part in self.descriptor_configs]
        return pairs[0][1] if len(pairs) == 1 else {"descriptors": [{n: s} for n, s in pairs]}

    def build(self, type_map: Sequence[str]) -> Potential:
        """Return the untrained model; every `sel` must be a number."""
        return load_name("scitoolkit.potentials.deepmd.model:DeepPotential")(self, type_map)


class DeepPotentialConfig(FittingFields):
    """Fitting nets over one descriptor or several (DeePMD's family).

    Attributes:
        descriptors: one, or several that are concatenated [type: hybrid], each with a cutoff.

    Example:
        >>> settings = {"descriptors": [{"name": "se_e2_a", "cutoff": 6.0, "sel": [46, 92]},
        ...                             {"name": "se_atten", "cutoff": 4.0, "sel": 40}]}
        >>> DeepPotentialConfig.model_validate(settings).cutoff
        6.0
    """

    example: ClassVar[Mapping[str, Any]] = {
        "descriptors": [
            {"name": "se_e2_a", **SeE2ADescriptorConfig.example},
            {"name": "se_e2_r", **SeE2RDescriptorConfig.example},
        ],
        "fitting": [8, 8],
    }

    name: Literal["deep_potential"] = "deep_potential"
    descriptors: list[AnyDescriptor] = Field(min_length=1)

    @property
    def descriptor_configs(self) -> list[DescriptorConfig]:
        """The descriptors."""
        return self.descriptors

    @property
    def cutoff(self) -> float:
        """Largest cutoff of the descriptors, Å."""
        return max(part.cutoff for part in self.descriptor_configs)

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel` of each descriptor counted within its cutoff."""
        from scitoolkit.potentials.graph import within_cutoff

        resolved = [
            part.resolve_auto_sel([within_cutoff(g, part.cutoff) for g in graphs], type_map)
            for part in self.descriptor_configs
        ]
        return self.model_copy(update={"descriptors": resolved})


class _OneDescriptor(FittingFields):
    """Base of the short forms: the settings of one descriptor are in the model's section."""

    descriptor_class: ClassVar[type[DescriptorConfig]]

    @property
    def descriptor_configs(self) -> list[DescriptorConfig]:
        """The descriptor."""
        keys = type(self).descriptor_class.model_fields
        return [self.descriptor_class(**{key: getattr(self, key) for key in keys})]

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel: auto` replaced by the counted number."""
        (resolved,) = (part.resolve_auto_sel(graphs, type_map) for part in self.descriptor_configs)
        keys = type(resolved).model_fields
        return self.model_copy(update={key: getattr(resolved, key) for key in keys})


class SeE2AConfig(SeE2AFields, _OneDescriptor):
    """Deep Potential with the descriptor se_e2_a: distances and directions.

    The same model as `deep_potential` with this one descriptor.
    """

    descriptor_class: ClassVar[type[DescriptorConfig]] = SeE2ADescriptorConfig
    example: ClassVar[Mapping[str, Any]] = {**SeE2ADescriptorConfig.example, "fitting": [12, 12]}

    name: Literal["se_e2_a"] = "se_e2_a"


class SeE2RConfig(SeE2RFields, _OneDescriptor):
    """Deep Potential with the descriptor se_e2_r: distances only; see `SeE2AConfig`."""

    tables: ClassVar[bool] = False
    descriptor_class: ClassVar[type[DescriptorConfig]] = SeE2RDescriptorConfig
    example: ClassVar[Mapping[str, Any]] = {**SeE2RDescriptorConfig.example, "fitting": [8, 8]}

    name: Literal["se_e2_r"] = "se_e2_r"
