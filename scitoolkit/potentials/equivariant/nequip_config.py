"""Configuration of the NequIP model."""

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


class NequipConfig(ModelConfig):
    """NequIP: equivariant message passing with gated nonlinearities.

    Names in brackets are those of nequip's configuration.

    Attributes:
        cutoff: Å [r_max].
        channels: multiplicity of each irrep [num_features].
        lmax: largest degree of features and spherical harmonics [l_max].
        layers: number of message-passing layers [num_layers].
        parity: features of both parities (0e, 0o, 1o, 1e, ...) instead of those of spherical
            harmonics (0e, 1o, 2e, ...) [parity]. Energies are invariant under inversion either way.
        num_basis: number of Bessel functions [num_bessels].
        envelope: power of the polynomial cutoff [polynomial_cutoff_p].
        radial_widths: hidden layers of the radial networks [radial_mlp_depth, radial_mlp_width].
        readout_width: number of scalars between the two linear layers of the readout.
        species_scale: whether each species has its scale of energies, the rms force on its atoms,
            instead of one for all [per_type_energy_scales].
        repulsion_envelope: add nequip's ZBL repulsion, multiplied by the polynomial cutoff of this
            power [pair_potential.polynomial_cutoff_p]; unlike `zbl` it acts up to the cutoff and is
            not subtracted from the labels before training.
        radial_table: in float32, tabulate the radial networks; see `MaceConfig`.
        precision: of parameters and arithmetic; geometry and energies are in float64.
        zbl: ZBL repulsion added to the learned energy, `{}` for defaults; see `ZblConfig`.
        long_range: electrostatic energy beyond the cutoff, `{}` for defaults; see
            `LongRangeConfig`.
        seed: of the initial weights.

    Example:
        >>> model = NequipConfig(channels=4, layers=2, radial_widths=[8]).build(["O", "H"])
        >>> model.type_map, model.cutoff
        (('O', 'H'), 5.0)
    """

    renamed: ClassVar[Mapping[str, str]] = {"degree": "lmax"}
    library: ClassVar[str] = "scitoolkit.potentials.equivariant.nequip_library:nequip_library"
    optimizer: ClassVar[Mapping[str, Any]] = EQUIVARIANT_OPTIMIZER
    loss: ClassVar[Mapping[str, float]] = EQUIVARIANT_LOSS
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 4.0,
        "channels": 4,
        "layers": 2,
        "lmax": 2,
        "radial_widths": [8],
        "precision": "float64",
    }

    name: Literal["nequip"] = "nequip"
    cutoff: PositiveFloat = 5.0
    channels: PositiveInt = 32
    lmax: int = Field(default=2, ge=0, le=3)
    layers: PositiveInt = 4
    parity: bool = False
    num_basis: PositiveInt = 8
    envelope: int = Field(default=6, ge=2)
    radial_widths: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    readout_width: PositiveInt = 16
    species_scale: bool = False
    repulsion_envelope: int | None = Field(default=None, ge=2)
    radial_table: bool = True
    precision: Literal["float32", "float64"] = "float32"
    zbl: ZblConfig | None = None
    long_range: LongRangeConfig | None = None
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _one_repulsion(self) -> Self:
        if self.repulsion_envelope is not None and self.zbl is not None:
            raise ValueError("repulsion_envelope and zbl are both nuclear repulsions: choose one")
        return self

    def build(self, type_map: Sequence[str]) -> Potential:
        """Return the untrained model."""
        return load_name("scitoolkit.potentials.equivariant.nequip:Nequip")(self, type_map)
