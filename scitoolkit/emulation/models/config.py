"""Configuration sections of the built-in networks, each of which builds its network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config, refuse_unused
from scitoolkit.core.lazy import load_name
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from torch import nn

    from scitoolkit.emulation.models.padding import AnyPadding as Padding


class FieldModelConfig(Config):
    """Base of all field models: a network from fields to fields, or vectors to vectors.

    Attributes:
        network: the class as `module:name`; its keyword arguments are the keys of the section.
        tied_to_cells: whether it depends on neighbouring cells, so that their width is fixed.
        tied_to_box: whether it depends on modes of the box, so that its length is fixed.
        conditioned: whether `network` has an argument `conditioning`, the size of a condition, and
            its forward pass takes the condition after the fields.
        crosses_poles: whether all its layers pad a latitude by the cells beyond a pole.
    """

    network: ClassVar[str] = ""
    tied_to_cells: ClassVar[bool] = True
    tied_to_box: ClassVar[bool] = True
    conditioned: ClassVar[bool] = False
    crosses_poles: ClassVar[bool] = False
    name: str

    def build(
        self, inputs: int, outputs: int, padding: Sequence[Padding], conditioning: int = 0
    ) -> nn.Module:
        """Return the network for numbers of channels and boundaries.

        A section without `network` overrides this method.

        Args:
            inputs: input channels.
            outputs: output channels.
            padding: one entry per space dim.
            conditioning: size of the condition; 0 for none.
        """
        settings = {key: getattr(self, key) for key in type(self).model_fields if key != "name"}
        if conditioning:
            settings["conditioning"] = conditioning
        made: nn.Module = load_name(self.network)(inputs, outputs, padding, **settings)
        return made

    def whole_cells(self) -> int:
        """Return the number that should divide the cells of a dim, so that levels halve evenly."""
        return 1


models: Kind[type[FieldModelConfig]] = Kind(
    "field model", "network from fields to fields", contract="scitoolkit.testing:FieldModelContract"
)
AnyModel = Annotated[FieldModelConfig, Choice(models)]


class UNetConfig(FieldModelConfig):
    """A U-Net; see `scitoolkit.emulation.models.unet.UNet`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.unet:UNet"
    conditioned: ClassVar[bool] = True
    crosses_poles: ClassVar[bool] = True
    # Convolutions see neighbours only, and not how far the box extends.
    tied_to_box: ClassVar[bool] = False
    name: Literal["unet"] = "unet"
    widths: list[PositiveInt] = Field(default=[32, 64, 96, 128], min_length=1)
    blocks: PositiveInt = 1
    patch: PositiveInt = 1

    def whole_cells(self) -> int:
        """Return the number of cells of a patch on the coarsest level."""
        return self.patch * 2 ** (len(self.widths) - 1)


class ResNetConfig(FieldModelConfig):
    """Residual blocks at full resolution; see `scitoolkit.emulation.models.resnet.ResNet`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.resnet:ResNet"
    conditioned: ClassVar[bool] = True
    crosses_poles: ClassVar[bool] = True
    tied_to_box: ClassVar[bool] = False
    name: Literal["resnet"] = "resnet"
    width: PositiveInt = 32
    blocks: PositiveInt = 8
    kernel: Literal[3, 5, 7] = 3
    patch: PositiveInt = 1

    def whole_cells(self) -> int:
        """Return the number of cells of a patch."""
        return self.patch


class FNOConfig(FieldModelConfig):
    """A Fourier neural operator; see `scitoolkit.emulation.models.fno.FNO`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.fno:FNO"
    conditioned: ClassVar[bool] = True
    # A wave is the same function on any cells that hold it, but another one in another box.
    tied_to_cells: ClassVar[bool] = False
    name: Literal["fno"] = "fno"
    width: PositiveInt = 32
    layers: PositiveInt = 4
    modes: list[PositiveInt] = Field(default=[16], description="per dim; one value for all")


class FactorisedFNOConfig(FieldModelConfig):
    """A factorised Fourier neural operator, for many modes or three dims.

    See `scitoolkit.emulation.models.factorised_fno.FactorisedFNO`.
    """

    network: ClassVar[str] = "scitoolkit.emulation.models.factorised_fno:FactorisedFNO"
    conditioned: ClassVar[bool] = True
    tied_to_cells: ClassVar[bool] = False
    name: Literal["factorised_fno"] = "factorised_fno"
    width: PositiveInt = 64
    layers: PositiveInt = 4
    modes: list[PositiveInt] = Field(default=[16], description="per dim; one value for all")


class ConvNeXtUNetConfig(FieldModelConfig):
    """A U-Net of ConvNeXt blocks; see `scitoolkit.emulation.models.convnext.ConvNeXtUNet`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.convnext:ConvNeXtUNet"
    conditioned: ClassVar[bool] = True
    crosses_poles: ClassVar[bool] = True
    tied_to_box: ClassVar[bool] = False
    name: Literal["convnext_unet"] = "convnext_unet"
    widths: list[PositiveInt] = Field(default=[32, 64, 96], min_length=1)
    blocks: PositiveInt = 2
    kernel: Literal[3, 5, 7] = 7
    patch: PositiveInt = 1

    def whole_cells(self) -> int:
        """Return the number of cells of a patch on the coarsest level."""
        return self.patch * 2 ** (len(self.widths) - 1)


class EllipticConfig(FieldModelConfig):
    """Local sources and a global operator; see `scitoolkit.emulation.models.elliptic.Elliptic`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.elliptic:Elliptic"
    conditioned: ClassVar[bool] = True
    name: Literal["elliptic"] = "elliptic"
    products: PositiveInt = 16
    sources: PositiveInt = 6
    modes: list[PositiveInt] = Field(default=[24], description="per dim; one value for all")
    width: PositiveInt = 32


class FieldTransformerConfig(FieldModelConfig):
    """Attention between patches; see `scitoolkit.emulation.models.transformer.FieldTransformer`."""

    network: ClassVar[str] = "scitoolkit.emulation.models.transformer:FieldTransformer"
    conditioned: ClassVar[bool] = True
    name: Literal["field_transformer"] = "field_transformer"
    width: PositiveInt = 128
    blocks: PositiveInt = 6
    heads: PositiveInt = 4
    patch: PositiveInt = 4
    ratio: PositiveInt = Field(default=2, description="hidden values of a block over its width")
    attention: Literal["full", "axial"] = Field(
        default="full", description="axial: along each dim in turn, for many patches"
    )
    experts: PositiveInt = Field(default=1, description="gated layers of a block")
    chosen: PositiveInt = Field(
        default=2, description="of several experts, those that compute a patch"
    )

    @model_validator(mode="after")
    def _of_experts(self) -> FieldTransformerConfig:
        if self.experts == 1:
            refuse_unused(self, "experts: 1", "chosen")
        return self

    def whole_cells(self) -> int:
        """Return the number of cells of a patch."""
        return self.patch


class MLPConfig(FieldModelConfig):
    """A multilayer perceptron, for vectors; see `scitoolkit.emulation.models.mlp.MLP`."""

    conditioned: ClassVar[bool] = True
    name: Literal["mlp"] = "mlp"
    width: PositiveInt = 64
    layers: PositiveInt = 2

    def build(
        self, inputs: int, outputs: int, padding: Sequence[Padding], conditioning: int = 0
    ) -> nn.Module:
        """Return the network from `inputs` values to `outputs` values."""
        from scitoolkit.emulation.models.mlp import MLP

        return MLP(inputs, outputs, width=self.width, layers=self.layers, conditioning=conditioning)
