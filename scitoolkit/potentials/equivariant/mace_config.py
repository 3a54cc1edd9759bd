"""Configuration of the MACE model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.lazy import load_name
from scitoolkit.potentials.long_range_config import LongRangeConfig
from scitoolkit.potentials.model_config import (
    EQUIVARIANT_LOSS,
    EQUIVARIANT_OPTIMIZER,
    ModelConfig,
)
from scitoolkit.potentials.zbl_config import ZblConfig

if TYPE_CHECKING:
    from scitoolkit.potentials.model import Potential


class MaceConfig(ModelConfig):
    """MACE: equivariant message passing with many-body products.

    Names in brackets are those of `mace_run_train`.

    Attributes:
        cutoff: Å [r_max].
        channels: multiplicity of each irrep [num_channels].
        lmax: largest degree of the edges' spherical harmonics [max_ell].
        lmax_hidden: largest degree of the features between layers [max_L].
        correlation: correlation order of the product; the body order is one more [correlation].
        layers: number of message-passing layers [num_interactions].
        num_basis: number of radial basis functions [num_radial_basis].
        envelope: power of the polynomial cutoff [num_cutoff_basis].
        radial_widths: hidden layers of the radial networks [radial_MLP].
        readout_width: hidden width of the last readout, in models of two or more layers
            [MLP_irreps].
        radial_table: in float32, tabulate the radial networks at intervals of 0.0125 Å and
            interpolate with degree 7, to float32 accuracy at a tenth of the cost per edge. Training
            steps with few edges evaluate the networks, which is cheaper there.
        first_residual: whether the first layer has a species-dependent residual connection
            [interaction_first: RealAgnosticResidualInteractionBlock].
        residual: the same for the other layers [interaction].
        first_density: whether the first layer divides its messages by a learned density of
            neighbours instead of their average number [RealAgnosticDensity...InteractionBlock].
        density: the same for the other layers.
        radial_type: kind of radial basis [radial_type].
        distance_transform: of the distance in the radial basis [distance_transform]. With a
            transform the radial networks are evaluated at every edge, without a table.
        apply_cutoff: whether the cutoff multiplies the radial basis, otherwise the outputs of the
            radial networks [apply_cutoff].
        gate: activation of the last readout [gate].
        pair_repulsion: add mace-torch's ZBL repulsion to the learned energy [pair_repulsion];
            unlike `zbl` it is not subtracted from the labels before training.
        precision: of parameters and arithmetic; geometry and energies are in float64.
        zbl: ZBL repulsion added to the learned energy, `{}` for defaults; see `ZblConfig`.
        long_range: electrostatic energy beyond the cutoff, `{}` for defaults; see
            `LongRangeConfig`.
        seed: of the initial weights.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "harmonics_degree": "lmax",
        "hidden_degree": "lmax_hidden",
    }
    library: ClassVar[str] = "scitoolkit.potentials.equivariant.mace_library:mace_library"
    optimizer: ClassVar[Mapping[str, Any]] = EQUIVARIANT_OPTIMIZER
    loss: ClassVar[Mapping[str, float]] = EQUIVARIANT_LOSS
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 4.0,
        "channels": 4,
        "lmax": 2,
        "lmax_hidden": 1,
        "radial_widths": [8],
        "precision": "float64",
    }

    name: Literal["mace"] = "mace"
    cutoff: PositiveFloat = 5.0
    channels: PositiveInt = 64
    lmax: int = Field(default=3, ge=0, le=4)
    lmax_hidden: int = Field(default=1, ge=0, le=3)
    correlation: int = Field(default=3, ge=1, le=4)
    layers: PositiveInt = 2
    num_basis: PositiveInt = 8
    envelope: int = Field(default=5, ge=2)
    radial_widths: list[PositiveInt] = Field(default=[64, 64, 64], min_length=1)
    readout_width: PositiveInt = 16
    radial_table: bool = True
    first_residual: bool = True
    residual: bool = True
    first_density: bool = False
    density: bool = False
    radial_type: Literal["bessel", "gaussian", "chebyshev"] = "bessel"
    distance_transform: Literal["none", "agnesi", "soft"] = "none"
    apply_cutoff: bool = True
    gate: Literal["silu", "tanh", "abs", "none"] = "silu"
    pair_repulsion: bool = False
    precision: Literal["float32", "float64"] = "float32"
    zbl: ZblConfig | None = None
    long_range: LongRangeConfig | None = None
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.lmax_hidden > self.lmax:
            raise ValueError(f"lmax_hidden {self.lmax_hidden} must not exceed lmax {self.lmax}")
        if self.pair_repulsion and self.zbl is not None:
            raise ValueError("pair_repulsion and zbl are both nuclear repulsions: choose one")
        return self

    def build(self, type_map: Sequence[str]) -> Potential:
        """Return the untrained model."""
        return load_name("scitoolkit.potentials.equivariant.mace:Mace")(self, type_map)
