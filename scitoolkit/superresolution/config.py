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
from scitoolkit.surrogate.config import TrainedStart
from scitoolkit.training.config import TrainingConfig


class FieldsConfig(Config):
    """Fields of the training data and their dims.

    Attributes:
        path: a file, a directory, a pattern with `*`, or a list of files. Each of several files
            is a simulation, or they are parts of one if their times continue; no crop contains rows
            of two simulations.
        test: files for testing; the test split of `path` if not given.
        fields: names of the variables; `velocity` selects all its components.
        dims: names of the dims in the order to use; by default that of the first field.
        periodic: {dim: length} of periodic dims.
        walled: dims between walls, along which the position is an input of the network.
        max_memory_mib: fields up to this size are loaded into memory, larger ones read crop by
            crop.
        files: `simulations` (one per file), `parts` of one simulation, or detected by their times.
        pattern: names of files that hold one sample each, as in `run{simulation}_t{step}.h5`.
        on_error: `skip` leaves out simulations that cannot be read or that differ.
        allow_suspect: train even if values look like unflagged fill values or unwritten frames.
        mask: a variable without time that is 1 where the fields have values, or `missing` if the
            other nodes are NaN or the file's fill value. Those nodes are left out of statistics,
            loss and scores; the network receives the nearest valid value instead.
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
        """Return the packages required to read the files."""
        from scitoolkit.io.campaign.files import campaign_packages

        return campaign_packages(self.path)


class PdeConfig(Config):
    """Equations for the residual loss and for evaluation.

    Attributes:
        equations: {name: text}, an expression equal to 0 or an equation with `=`.
        constants: {name: number or text}; numeric attributes of the file are constants, too.
        weight: weight gamma of the residual loss; with 0 equations are checked and evaluated only.
        weights: {equation: relative weight}; 1 unless given.
        balance: `gradient` scales equations to equal gradients, `fixed` uses the weights as given.
        points: number of random points per sample for residuals; 0 uses those of the regression.
        warmup_steps: steps over which the weight grows linearly from 0.
        combine: propagate a Laplacian as one derivative instead of several.
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
        """Return sympy if there are equations."""
        return ("sympy",) if self.equations else ()

    @model_validator(mode="after")
    def _named(self) -> PdeConfig:
        unknown = [name for name in self.weights if name not in self.equations]
        if unknown:
            raise ValueError(f"weights.{unknown[0]}: no equation of that name")
        if self.weight and not self.equations:
            raise ValueError("weight needs equations")
        if not self.equations:
            refuse_unused(self, "no equations", "combine")
        if not self.weight:
            refuse_unused(self, "weight: 0", "weights", "balance", "points", "warmup_steps")
        return self


class BoundaryConfig(Config):
    """Boundary condition on a field at one coordinate of a dim.

    Attributes:
        field: name of the field.
        dim: the dim normal to the boundary; not periodic.
        at: coordinate of the boundary along `dim`, as in the file.
        value: value of the field, or of its derivative by `dim` if `order` is 1.
        order: 0 (Dirichlet) or 1 (Neumann).
    """

    field: str
    dim: str
    at: float
    value: float = 0.0
    order: Literal[0, 1] = 0


class FlowConfig(Config):
    """Velocity and viscosity of a flow, for turbulence statistics.

    Attributes:
        velocity: {dim: field that is the velocity along it}.
        viscosity: kinematic; a number, a constant of `pde`, or an expression of constants.
            Without it statistics of dissipation are left out.
        time: the time dim.
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
    """Refinement of the latent grid: its channels, and {dim: factor of the number of nodes}."""

    channels: PositiveInt
    refine: dict[str, PositiveInt]


class EncoderConfig(Config):
    """U-Net encoder.

    Attributes:
        name: `unet`, or `resunet`, the encoder of the MeshfreeFlowNet paper, without stages.
        widths: channels of each level; each level has half the nodes of the one before.
        blocks: residual blocks per level of the encoding path; `resunet` has one.
        stages: refinements of the latent grid before the continuous decoder.
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
    """Base of all decoders: networks from a latent vector and coordinates to field values."""

    name: str
    widths: list[PositiveInt]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        raise NotImplementedError


decoders: Kind[type[DecoderConfig]] = Kind(
    "decoder", "latent grid to values at points", contract="scitoolkit.testing:DecoderContract"
)


class MLPConfig(DecoderConfig):
    """Small multilayer perceptron, for latent grids refined by the encoder."""

    name: Literal["mlp"] = "mlp"
    widths: list[PositiveInt] = Field(default=[48, 48], min_length=1)
    activation: str = "silu"
    features: NonNegativeInt = Field(default=0, description="random Fourier features, 0 for none")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": self.activation, "features": self.features}


class ImNetConfig(DecoderConfig):
    """Decoder of the MeshfreeFlowNet paper, with its inputs concatenated to every hidden layer."""

    name: Literal["imnet"] = "imnet"
    widths: list[PositiveInt] = Field(default=[512, 256, 128, 64, 32], min_length=1)
    activation: str = "softplus"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": self.activation, "skip": True}


class SirenConfig(DecoderConfig):
    """SIREN decoder: sine activations, initialised to preserve the size of derivatives."""

    name: Literal["siren"] = "siren"
    widths: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    omega: PositiveFloat = 6.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`."""
        return {"widths": self.widths, "activation": "sin", "omega": self.omega}


class ModelConfig(Config):
    """Architecture of the model.

    Attributes:
        blend: weights of the corners of a latent cell; with `smooth` the field is twice
            continuously differentiable across cells.
        interpolate: add the decoder's output to interpolated field values.
        average: average predictions over the reflections of `crop.symmetries.mirror`, which makes
            them symmetric and more accurate, at the cost of one query per reflection.
    """

    encoder: EncoderConfig = EncoderConfig()
    decoder: Annotated[DecoderConfig, Choice(decoders)] = ImNetConfig()
    blend: Literal["linear", "smooth"] = "linear"
    interpolate: bool = True
    average: bool = False


class SymmetryConfig(Config):
    """Symmetries of the equations, applied at random to training crops.

    Attributes:
        shift: periodic dims with an arbitrary origin.
        mirror: {dim: fields that change sign when the dim is reversed}.
    """

    shift: list[str] = Field(default=[])
    mirror: dict[str, list[str]] = Field(default={})


class CropConfig(Config):
    """Training samples: random crops.

    Attributes:
        size: {dim: number of nodes}; crops span dims that are not given.
        every: {dim: n}: the low resolution has every n-th node.
        coarser: factors by which the low resolution is thinned further along the dims of `every`,
            ascending from 1. Training steps take them in turn and the network is told the spacing,
            so that it refines nodes of every factor.
        points: number of random nodes of a crop for the regression loss.
        per_epoch: crops per epoch.
        symmetries: data augmentation.
    """

    size: dict[str, PositiveInt] = Field(default={})
    every: dict[str, PositiveInt]
    coarser: list[PositiveInt] = Field(default=[1])
    points: PositiveInt = 4096
    per_epoch: PositiveInt = 400
    symmetries: SymmetryConfig = SymmetryConfig()

    @model_validator(mode="after")
    def _ascends(self) -> CropConfig:
        if self.coarser != sorted({1, *self.coarser}):
            raise ValueError(f"coarser {self.coarser}: distinct factors that ascend from 1")
        if self.coarser != [1] and not any(n > 1 for n in self.every.values()):
            raise ValueError("coarser: no dim of every is thinned; leave it out")
        return self


class SuperresolutionConfig(SeededConfig):
    """Configuration of super-resolution: fields, crops, equations, model and training.

    Attributes:
        split: splits of the simulations of `data.path`; without it all are for training.
        boundaries: boundary conditions in the loss.
        boundary_weight: weight of the boundary loss.
        loss: norm of the regression error, in standard deviations of each field.
        spectrum: a held-out simulation, from which the power spectrum of predictions along the last
            periodic dim is corrected (`refined` in reports, and in the output of `predict`) without
            changing phases.
        members: networks of an ensemble, whose outputs are averaged.
        start: trained weights to begin from.
        weights_dtype: dtype of the stored weights; float16 halves the file, int8 quarters it.
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
    members: PositiveInt = 1
    start: TrainedStart | None = None
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _read(self) -> SuperresolutionConfig:
        if bool(self.boundaries) != bool(self.boundary_weight):
            raise ValueError("boundaries and boundary_weight > 0 require each other")
        if self.split is not None and self.data.test is not None:
            if self.split.test not in (0, CampaignSplit().test):
                raise ValueError("split.test is not used with data.test, which is the test part")
        if self.pde.constants and not (self.pde.equations or self.flow.velocity):
            raise ValueError("pde.constants: not used without pde.equations or flow; leave out")
        if self.data.mask is not None:
            refused = {
                "pde.equations": self.pde.equations,
                "boundaries": self.boundaries,
                "flow.velocity": self.flow.velocity,
                "spectrum": self.spectrum,
            }
            for key, value in refused.items():
                if value:
                    raise ValueError(f"{key}: needs values in all nodes; leave it or data.mask out")
        if self.crop.coarser != [1]:
            for key, stated in {"data.mask": self.data.mask, "spectrum": self.spectrum}.items():
                if stated:
                    raise ValueError(f"{key}: is of one resolution; leave it or crop.coarser out")
        if self.model.average and not self.crop.symmetries.mirror:
            raise ValueError("model.average needs crop.symmetries.mirror: means over mirror images")
        return self
