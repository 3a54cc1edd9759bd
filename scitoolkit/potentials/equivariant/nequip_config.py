"""Configuration of the NequIP model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

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

    Names in brackets are those of nequip's configuration. All parities are those of spherical
    harmonics (0e, 1o, 2e, ...), without the additional parities of nequip's `parity: true`;
    energies are nevertheless invariant under inversion.

    Attributes:
        cutoff: Å [r_max].
        channels: multiplicity of each irrep [num_features].
        lmax: largest degree of features and spherical harmonics [l_max].
        layers: number of message-passing layers [num_layers].
        num_basis: number of Bessel functions [num_bessels].
        envelope: power of the polynomial cutoff [polynomial_cutoff_p].
        radial_widths: hidden layers of the radial networks [radial_mlp_depth, radial_mlp_width].
        readout_width: number of scalars between the two linear layers of the readout.
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
    num_basis: PositiveInt = 8
    envelope: int = Field(default=6, ge=2)
    radial_widths: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    readout_width: PositiveInt = 16
    radial_table: bool = True
    precision: Literal["float32", "float64"] = "float32"
    zbl: ZblConfig | None = None
    long_range: LongRangeConfig | None = None
    seed: NonNegativeInt = 0

    def build(self, type_map: Sequence[str]) -> Potential:
        """Return the untrained model."""
        return load_name("scitoolkit.potentials.equivariant.nequip:Nequip")(self, type_map)
