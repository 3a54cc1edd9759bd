"""MACE: messages from neighbours, raised to many-body features by the symmetric contraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.equivariant.layers import (
    Convolution,
    Factory,
    Geometry,
    Grouped,
    ManyBodyProduct,
    RadialNetwork,
    Readout,
    SpeciesLinear,
)
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.equivariant.pair_repulsion import PairRepulsion
from scitoolkit.potentials.equivariant.radial_functions import TRANSFORMS, RadialBasis
from scitoolkit.potentials.model import ModelConfig
from scitoolkit.potentials.zbl import ZblConfig


class MaceConfig(ModelConfig):
    """MACE: equivariant messages and many-body products.

    Names in brackets are those of mace_run_train.

    Attributes:
        cutoff: Å [r_max].
        channels: copies of each irrep [num_channels].
        lmax: largest degree of the edges' spherical harmonics [max_ell].
        lmax_hidden: largest degree of the features between layers [max_L].
        correlation: highest power in the product; body order is one more [correlation].
        layers: message passing steps [num_interactions].
        num_basis: Bessel functions of the distance [num_radial_basis].
        envelope: power of the polynomial cutoff [num_cutoff_basis].
        radial_widths: hidden layers of the radial networks [radial_MLP].
        readout_width: hidden layer of the last readout, of two layers or more [MLP_irreps].
        radial_table: in float32, evaluate the radial networks at distances 0.0125 Å apart and
            interpolate (degree 7), which is as exact as float32 and costs a tenth at the edges.
            Training steps of few edges do without: there the table would cost more.
        first_residual: whether the first layer keeps a species-dependent shortcut of its input
            [interaction_first: RealAgnosticResidualInteractionBlock].
        residual: the same of the other layers [interaction].
        first_density: whether the first layer divides its messages by a learned density of
            neighbours, not by their average number [RealAgnosticDensity...InteractionBlock].
        density: the same of the other layers.
        radial_type: functions of the distance [radial_type].
        distance_transform: of the distance in these [distance_transform]. With a transform the
            radial networks are evaluated at every edge, without a table.
        apply_cutoff: whether the cutoff multiplies the radial functions, or the radial networks'
            results [apply_cutoff].
        gate: activation of the last readout [gate].
        pair_repulsion: add mace-torch's repulsion of nuclei to the learned energy
            [pair_repulsion]; `zbl` is subtracted from the labels before training, this is not.
        precision: of parameters and arithmetic; geometry and energies are kept in float64.
        zbl: repulsion of nuclei added to the learned energy, `{}` for defaults; see `ZblConfig`.
        seed: of the initial weights.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "harmonics_degree": "lmax", "hidden_degree": "lmax_hidden",
    }  # fmt: skip
    example: ClassVar[Mapping[str, Any]] = {
        "cutoff": 4.0, "channels": 4, "lmax": 2, "lmax_hidden": 1, "radial_widths": [8],
        "precision": "float64",
    }  # fmt: skip

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
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.lmax_hidden > self.lmax:
            raise ValueError(f"lmax_hidden {self.lmax_hidden} must not exceed lmax {self.lmax}")
        if self.pair_repulsion and self.zbl is not None:
            raise ValueError("pair_repulsion and zbl are two repulsions of nuclei: choose one")
        return self

    def build(self, type_map: Sequence[str]) -> Mace:
        """Return the untrained model."""
        return Mace(self, type_map)


class MaceLayer(nn.Module):
    """One message passing step: convolution, many-body product, shortcut of the species."""

    def __init__(self, config: MaceConfig, number: int, num_types: int, factory: Factory) -> None:
        super().__init__()
        last = number == config.layers - 1
        harmonics = range(config.lmax + 1)
        before = range(1 if number == 0 else config.lmax_hidden + 1)
        after = range(1 if last else config.lmax_hidden + 1)
        channels = config.channels
        self.residual: bool = config.residual if number else config.first_residual
        self.convolution: Convolution = Convolution(
            before, harmonics, channels, [config.num_basis, *config.radial_widths], factory
        )
        kept = [each for each in before if each in after] if self.residual else harmonics
        self.shortcut: SpeciesLinear = SpeciesLinear(kept, channels, num_types, factory)
        self.product: ManyBodyProduct = ManyBodyProduct(
            harmonics, after, config.correlation, channels, num_types, factory
        )
        width = config.readout_width if last and number else None
        self.readout: Readout = Readout(channels, width, factory, config.gate)
        dense = config.density if number else config.first_density
        self.density: RadialNetwork | None = (
            RadialNetwork([config.num_basis, 1], factory) if dense else None
        )

    def forward(
        self, x: Tensor, geometry: Geometry, types: Tensor, groups: Grouped, neighbours: Tensor
    ) -> Tensor:
        """Return the next features, shape (N, D, C); `neighbours` is their average number."""
        if self.density is not None:
            neighbours = 1 + geometry.density(self.density, len(x))[:, :, None]
        sums = self.convolution(x, geometry) / neighbours
        if not self.residual:
            return self.product(self.shortcut(sums, groups), types)
        out, kept = self.product(sums, types), self.shortcut(x, groups)
        if kept.shape[1] < out.shape[1]:
            kept = torch.nn.functional.pad(kept, (0, 0, 0, out.shape[1] - kept.shape[1]))
        return out + kept


class Mace(EquivariantPotential):
    """Energies from the scalars of every layer; see `MaceConfig`.

    Source: Batatia et al., NeurIPS 2022 (arXiv 2206.07697), equations 8-13.
    """

    def __init__(self, config: MaceConfig, type_map: Sequence[str]) -> None:
        radial = RadialBasis(
            config.cutoff, config.num_basis, config.envelope, config.radial_type,
            config.apply_cutoff,
        )  # fmt: skip
        transform = TRANSFORMS.get(config.distance_transform)
        made = None if transform is None else transform(type_map)
        super().__init__(config, type_map, config.lmax, radial, made)
        self.repulsion = PairRepulsion(type_map, config.envelope) if config.pair_repulsion else None
        factory, types = Factory(self.dtype, config.seed), len(type_map)
        self.embedding: nn.Parameter = factory.normal(types, config.channels)
        self.layers: nn.ModuleList = nn.ModuleList(
            MaceLayer(config, number, types, factory) for number in range(config.layers)
        )

    def _atomic_energies(self, graph: Batch, vectors: Tensor) -> Tensor:
        types = graph["types"]
        geometry = self.geometry(graph, vectors, self.training)
        groups = Grouped(types, len(self.type_map))
        neighbours = self.average_neighbours.to(self.dtype)
        x = (self.embedding * len(self.type_map) ** -0.5)[types][:, None]
        energy = x.new_zeros(len(types))
        for layer in self.layers:
            x = layer(x, geometry, types, groups, neighbours)
            energy = energy + layer.readout(x)  # type: ignore[operator]
        total = energy.double()
        if self.repulsion is not None:
            total = total + self.repulsion(graph, vectors)
        return self.shift[types] + self.scale * total
