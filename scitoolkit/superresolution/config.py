"""The configuration of a super-resolution job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice, Kind
from scitoolkit.io.campaign.split import CampaignSplit
from scitoolkit.training.config import TrainingConfig


class FieldsConfig(Config):
    """Which fields of which file, and what their dims are.

    Attributes:
        path: a file to learn from, a directory, a pattern with `*`, or a list of files. Several
            are one simulation each, or parts of one where their times go on; crops never cross
            from one simulation into another.
        test: simulations that nothing is learned from; the test part of `path` when not given.
        fields: names of the variables; `velocity` stands for all its components.
        dims: names of the dims in the order to use; the first field's unless stated.
        periodic: {dim: its length} of periodic dims.
        walled: dims that end at walls, so that the position along them matters.
        max_memory_mib: fields up to this size are held in memory, larger ones read crop by crop.
        files: `simulations` (one a file), `parts` of one simulation, or found by their times.
        pattern: names of files that hold one sample each, as in `run{simulation}_t{step}.h5`.
        on_error: `skip` leaves out whole simulations that cannot be read or differ.
        allow_suspect: train although values look like unflagged fill values or frames that were
            never written.
        mask: a variable without time that is 1 where the fields have values, or `missing` where
            they are NaN or the file's fill value: other nodes have no part in statistics, loss
            and scores, and are given to the network as the nearest valid one.
    """

    path: DataPath | list[DataPath]
    test: DataPath | list[DataPath] | None = None
    fields: list[str] = Field(min_length=1)
    dims: list[str] | None = None
    periodic: dict[str, PositiveFloat] = Field(default={})
    walled: list[str] = Field(default=[])
    max_memory_mib: PositiveInt = 512
    files: Literal["auto", "simulations", "parts"] = "auto"
    pattern: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    allow_suspect: bool = False
    mask: str | None = None

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that reading the files needs."""
        from scitoolkit.io.campaign.files import campaign_packages

        return campaign_packages(self.path)


class PdeConfig(Config):
    """Equations that the prediction is to obey.

    Attributes:
        equations: {name: text}, each to vanish, or with `=`.
        constants: {name: number or text}; numeric attributes of the file are known too.
        weight: of the residual loss, gamma; 0 leaves the equations to `check` and `evaluate`.
        weights: {equation: relative weight}; 1 unless stated.
        balance: `gradient` keeps each equation's gradient at the size of the others'.
        points: at which residuals are taken, per sample; 0 takes those of the regression.
        warmup_steps: over which the weight grows from 0.
        combine: carry a Laplacian as one derivative.
    """

    equations: dict[str, str] = Field(default={})
    constants: dict[str, float | str] = Field(default={})
    weight: NonNegativeFloat = 0.0
    weights: dict[str, NonNegativeFloat] = Field(default={})
    balance: Literal["fixed", "gradient"] = "fixed"
    points: NonNegativeInt = 0
    warmup_steps: NonNegativeInt = 0
    combine: bool = True

    def required_packages(self) -> tuple[str, ...]:
        """Return sympy where there are equations to read."""
        return ("sympy",) if self.equations else ()

    @model_validator(mode="after")
    def _named(self) -> PdeConfig:
        unknown = [name for name in self.weights if name not in self.equations]
        if unknown:
            raise ValueError(f"weights.{unknown[0]}: no equation of that name")
        if self.weight and not self.equations:
            raise ValueError("weight is set, but there are no equations")
        if not self.equations:
            refuse_unused(self, "no equations", "combine")
        if not self.weight:
            refuse_unused(self, "weight: 0", "weights", "balance", "points", "warmup_steps")
        return self


class BoundaryConfig(Config):
    """A condition on a field at one place of a dim: its value, or its derivative across.

    Attributes:
        field: name of the field.
        dim: the dim that the boundary cuts.
        at: coordinate.
        value: of the field there, or of its derivative by `dim` when `order` is 1.
        order: 0 (Dirichlet) or 1 (Neumann).
    """

    field: str
    dim: str
    at: float
    value: float = 0.0
    order: Literal[0, 1] = 0


class FlowConfig(Config):
    """What makes the fields a flow, for turbulence statistics.

    Attributes:
        velocity: {dim: field} that is the velocity along it.
        viscosity: kinematic; a number, a constant of `pde`, or a text of constants.
        time: the dim that is time.
    """

    velocity: dict[str, str] = Field(default={})
    viscosity: float | str = 0.0
    time: str | None = None

    @model_validator(mode="after")
    def _read(self) -> FlowConfig:
        if not self.velocity:
            refuse_unused(self, "no velocity", "viscosity", "time")
        return self


class StageConfig(Config):
    """A refinement of the latent grid: channels, and how many times as dense in each dim."""

    channels: PositiveInt
    refine: dict[str, PositiveInt]


class EncoderConfig(Config):
    """The U-Net.

    Attributes:
        name: `unet`, or `resunet`: that of the MeshfreeFlowNet paper, without stages.
        widths: channels of each level; each level but the first is pooled by 2 from the one before.
        blocks: residual blocks a level on the way down; `resunet` has one.
        stages: refinements of the latent grid, before the continuous decoder.
        channels: latent channels.
    """

    name: Literal["unet", "resunet"] = "unet"
    widths: list[PositiveInt] = Field(default=[16, 32, 64, 128, 256], min_length=1)
    blocks: PositiveInt = 1
    stages: list[StageConfig] = Field(default=[])
    channels: PositiveInt = 32

    @model_validator(mode="after")
    def _possible(self) -> EncoderConfig:
        if self.name == "resunet" and (self.stages or self.blocks != 1 or len(self.widths) < 2):
            raise ValueError("resunet takes no stages, 1 block a level and at least 2 widths")
        return self


class DecoderConfig(Config):
    """Base of all decoders: layers from a latent vector and a place to the fields' values."""

    name: str
    widths: list[PositiveInt]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        raise NotImplementedError


decoders: Kind[type[DecoderConfig]] = Kind("decoder", "latent grid to values at points")


class MLPConfig(DecoderConfig):
    """A light decoder, for latent grids that the encoder has refined."""

    name: Literal["mlp"] = "mlp"
    widths: list[PositiveInt] = Field(default=[48, 48], min_length=1)
    activation: str = "silu"
    features: NonNegativeInt = Field(default=0, description="random Fourier features, 0 for none")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": self.activation, "features": self.features}


class ImNetConfig(DecoderConfig):
    """The decoder of the MeshfreeFlowNet paper: its inputs are fed to every hidden layer."""

    name: Literal["imnet"] = "imnet"
    widths: list[PositiveInt] = Field(default=[512, 256, 128, 64, 32], min_length=1)
    activation: str = "softplus"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": self.activation, "skip": True}


class SirenConfig(DecoderConfig):
    """Sines throughout, initialised so that their derivatives neither grow nor die."""

    name: Literal["siren"] = "siren"
    widths: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    omega: PositiveFloat = 6.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": "sin", "omega": self.omega}


class ModelConfig(Config):
    """Encoder, decoder and how they are joined.

    Attributes:
        blend: `smooth` makes the field twice continuously differentiable across latent cells.
        interpolate: whether the decoder adds to interpolated values or makes them itself.
        average: whether predictions are means over `crop.symmetries.mirror`, which makes them
            symmetric and more accurate, at the cost of one query for each mirror image.
    """

    encoder: EncoderConfig = EncoderConfig()
    decoder: Annotated[DecoderConfig, Choice(decoders)] = ImNetConfig()
    blend: Literal["linear", "smooth"] = "linear"
    interpolate: bool = True
    average: bool = False


class SymmetryConfig(Config):
    """What turns a solution into a solution; crops are drawn under all of them.

    Attributes:
        shift: periodic dims along which the origin is arbitrary.
        mirror: {dim: fields that change sign when the dim is reversed}.
    """

    shift: list[str] = Field(default=[])
    mirror: dict[str, list[str]] = Field(default={})


class CropConfig(Config):
    """What a sample is.

    Attributes:
        size: {dim: nodes}; dims that are left out are taken whole.
        every: {dim: n}: the low resolution keeps every n-th node.
        points: random nodes of a crop at which the prediction is compared.
        per_epoch: crops in an epoch.
        symmetries: augmentation.
    """

    size: dict[str, PositiveInt] = Field(default={})
    every: dict[str, PositiveInt]
    points: PositiveInt = 4096
    per_epoch: PositiveInt = 400
    symmetries: SymmetryConfig = SymmetryConfig()


class SuperresolutionConfig(SeededConfig):
    """A super-resolution job: fields, crops, equations, model and training.

    Attributes:
        split: which simulations of `data.path` are for validation and testing; all are learned
            from unless given.
        boundaries: conditions that a loss of weight `boundary_weight` asks for.
        boundary_weight: see `boundaries`.
        loss: of the regression, in standard deviations of each field.
        spectrum: a simulation that nothing else is learned from, by which predictions get the power
            of the waves along the last periodic dim (`refined` in reports, and what `predict` then
            writes); no phase is changed.
        weights_dtype: how the trained weights are kept; float16 halves the file, int8 quarters
            it.
    """

    renamed: ClassVar[Mapping[str, str]] = {"weights": "weights_dtype"}

    domain: Literal["superresolution"] = "superresolution"
    data: FieldsConfig
    split: CampaignSplit | None = None
    crop: CropConfig
    pde: PdeConfig = PdeConfig()
    flow: FlowConfig = FlowConfig()
    model: ModelConfig = ModelConfig()
    boundaries: list[BoundaryConfig] = Field(default=[])
    boundary_weight: NonNegativeFloat = 0.0
    loss: Literal["l1", "l2"] = "l1"
    spectrum: DataPath | None = None
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _read(self) -> SuperresolutionConfig:
        if bool(self.boundaries) != bool(self.boundary_weight):
            raise ValueError("boundaries and boundary_weight > 0 need one another")
        if self.split is not None and self.data.test is not None:
            if self.split.test not in (0, CampaignSplit().test):
                raise ValueError("split.test is not used with data.test, which is the test part")
        if self.pde.constants and not (self.pde.equations or self.flow.velocity):
            raise ValueError("pde.constants: not used without pde.equations or flow; leave out")
        if self.data.mask is not None:
            refused = {"pde.equations": self.pde.equations, "boundaries": self.boundaries,
                       "flow.velocity": self.flow.velocity, "spectrum": self.spectrum}  # fmt: skip
            for key, given in refused.items():
                if given:
                    raise ValueError(f"{key}: needs values in all nodes; leave it or data.mask out")
        if self.model.average and not self.crop.symmetries.mirror:
            raise ValueError("model.average needs crop.symmetries.mirror: means over mirror images")
        return self
