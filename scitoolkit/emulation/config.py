"""The configuration of an emulation job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice, kind
from scitoolkit.emulation.guards.base import AnyGuard
from scitoolkit.emulation.low_rank_config import LowRankConfig
from scitoolkit.emulation.models.config import AnyModel, UNetConfig
from scitoolkit.emulation.models.padding import Padding
from scitoolkit.emulation.spatial.strategy import EmulationTrainingConfig
from scitoolkit.emulation.stream_config import StreamConfig, refuse_generator
from scitoolkit.emulation.variables import LEAD
from scitoolkit.io.campaign.split import CampaignSplit

FEWEST_MEMBERS = 2
"""Members of a committee that can disagree."""


class DataConfig(Config):
    """Which variables of which files, or of which generator's simulations, become which.

    Attributes:
        generator: a solver that makes the simulations, in place of `path`.
        draw: the parameters of its simulations; `samples` counts those of the training.
        stream: whether they are made before the training or while it runs.
        path: a file, a directory, a pattern with `*`, or a list of files. Several files are one
            simulation each, or parts of one where their times go on; a file may hold many
            simulations too. No window crosses from one simulation into another.
        test: files that nothing is learned from; the test part of `path` when not given.
        inputs: names of the variables that the emulator is given; `velocity` stands for all its
            components, `velocity_0` for one.
        outputs: names of those it returns.
        sample_dim: the dim that counts samples: time, or the member of an ensemble. `time` also
            accepts t, step and the like.
        lead: samples from input to output along `sample_dim`; 0 maps within one sample.
        leads: leads that one emulator learns, `lead` among them, each given to it as the input
            `lead`; rollouts take steps of `lead`.
        history: times at which the state is given: now, and one, two, ... leads before.
        grid: the space dims; those of the variables with most dims unless stated.
        dims: names of the dims of a plain HDF5 file, which has none.
        parameters: names of numbers that each simulation has (a viscosity, a Rayleigh number),
            inputs beside the fields: attributes or scalars of the files, or columns of
            `parameter_table`. A list, or {name: linear | log} where some span decades.
        parameter_table: CSV file whose first column names the simulations.
        mask: a variable without time that is 1 where the fields have values, or `missing` where
            the other cells are NaN, or the file's fill value, in every row. Land, obstacles.
        units: {name: unit that the file must state}.
        files: `simulations` (one a file), `parts` of one simulation, or found by their times.
        pattern: names of files that hold one sample each, as in `run{simulation}_t{step}.h5`.
        on_error: `skip` leaves out whole simulations that cannot be read, or differ from the
            others in variables, units, grid or time step, and copies; the log names them.
        allow_suspect: train although values look like unflagged fill values or frames that were
            never written.
    """

    path: DataPath | list[DataPath] | None = None
    generator: Annotated[Config, Choice(kind("generator"))] | None = None
    draw: DrawConfig = DrawConfig()
    stream: StreamConfig = StreamConfig()
    test: DataPath | list[DataPath] | None = None
    inputs: list[str] = Field(min_length=1)
    outputs: list[str] = Field(min_length=1)
    sample_dim: str = "time"
    lead: NonNegativeInt = 1
    leads: list[PositiveInt] = Field(default_factory=list)
    history: PositiveInt = 1
    grid: list[str] | None = None
    dims: list[str] | dict[str, list[str]] | None = None
    parameters: list[str] | dict[str, Literal["linear", "log"]] = Field(default_factory=list)
    parameter_table: DataPath | None = None
    mask: str | None = None
    units: dict[str, str] = Field(default_factory=dict)
    files: Literal["auto", "simulations", "parts"] = "auto"
    pattern: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    allow_suspect: bool = False

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that reading the files needs."""
        from scitoolkit.io.campaign.files import campaign_packages

        return () if self.path is None else campaign_packages(self.path)

    @model_validator(mode="after")
    def _one_origin(self) -> DataConfig:
        if (self.path is None) == (self.generator is None):
            raise ValueError("write either path, for files, or generator")
        if self.generator is None:
            refuse_unused(self, "data.path", "draw", "stream")
            return self
        refuse_unused(self, "data.generator", "test", "pattern", "files", "dims", "parameter_table",
                      "on_error", "mask")  # fmt: skip
        refuse_generator(self.generator, self.draw, self.stream, [*self.parameters])
        return self

    @property
    def streams(self) -> bool:
        """Whether simulations are made while the training runs."""
        return self.generator is not None and self.stream.mode != "stored"

    @model_validator(mode="after")
    def _distinct(self) -> DataConfig:
        for key in ("inputs", "outputs"):
            names = getattr(self, key)
            if len(set(names)) < len(names):
                raise ValueError(f"{key} names a variable twice: {names}")
        if len(self.parameter_scales) < len(self.parameters):
            raise ValueError(f"parameters names one twice: {self.parameters}")
        if self.history > 1 and (self.lead == 0 or not set(self.inputs) & set(self.outputs)):
            raise ValueError("history needs lead >= 1 and an output that is also an input")
        if self.leads:
            if len(set(self.leads)) < max(len(self.leads), 2) or self.lead not in self.leads:
                raise ValueError(
                    f"leads {self.leads} must be two or more, each once, and lead {self.lead} one "
                    "of them"
                )
            if self.history > 1:
                raise ValueError("leads needs history: 1, whose times are one lead apart")
            if taken := {LEAD} & {*self.inputs, *self.outputs, *self.parameters}:
                raise ValueError(f"with leads, {taken.pop()!r} names the lead and no variable")
        if self.lead == 0 and (both := set(self.inputs) & set(self.outputs)):
            raise ValueError(f"with lead 0 no variable is both input and output: {sorted(both)}")
        return self

    @property
    def samples_before(self) -> int:
        """Samples before the present that the history reaches back."""
        return (self.history - 1) * self.lead

    @property
    def parameter_scales(self) -> dict[str, Literal["linear", "log"]]:
        """The scale on which each parameter is given to the network."""
        names = self.parameters
        return dict(names) if isinstance(names, dict) else dict.fromkeys(names, "linear")


class SymmetryConfig(Config):
    """Transformations that turn a solution into a solution; samples are drawn under all of them.

    Attributes:
        shift: periodic dims along which the origin is arbitrary.
        mirror: {dim: variables that change sign when the dim is reversed}.
    """

    shift: list[str] = Field(default_factory=list)
    mirror: dict[str, list[str]] = Field(default_factory=dict)


class DiagnosticConfig(Config):
    """Outputs that follow from the other outputs of the same moment, by a network of their own.

    A pressure is one: it has no memory. It is learned from the true state first, and
    from the emulator's own state in the part of the training that `rollout.begin` starts.

    Attributes:
        outputs: names. One that is also an input changes by the difference of what the network
            makes of the new state and of the old one.
        model: the network.
    """

    outputs: list[str] = Field(min_length=1)
    model: AnyModel = UNetConfig()


class QuantityConfig(Config):
    """A number that a state is judged by: the volume mean of a sum of products of variables.

    Attributes:
        terms: products, each a list of variables: [[u, u], [w, w]] is u^2 + w^2.
        scale: multiplies the mean.
        offset: added to it.
    """

    terms: list[list[str]] = Field(min_length=1)
    scale: float = 1.0
    offset: float = 0.0


class RolloutConfig(Config):
    """How the emulator learns to be fed with its own output.

    Attributes:
        steps: steps in a row whose errors are all learned from.
        pushforward: steps without a gradient before them (Brandstetter et al. 2022,
            arXiv:2202.03376).
        draw_pushforward: draw their number from 0 to `pushforward` for each batch.
        validation: steps of the validation's rollouts, by which the weights are chosen;
            `steps + pushforward` unless given.
        jitter: rollouts apply a random one of `symmetries` before each step and undo it after, so
            that errors tied to the grid do not add up in place.
        begin: share of the training that is done with single steps first.
        noise: added to the state, in units of each variable's typical change in one step.
        evaluate: steps of the rollout in the report; all that the test part has unless stated.
        long: steps of the rollout past the data's end in the report, for the climate; 0 for none.
        predict: steps that `scitoolkit predict` goes beyond a file's last sample; 0 maps every
            sample of the file one step ahead instead.
    """

    steps: PositiveInt = 1
    pushforward: NonNegativeInt = 0
    draw_pushforward: bool = False
    validation: PositiveInt | None = None
    jitter: bool = False
    begin: Annotated[float, Field(ge=0, le=1)] = 0.7
    noise: NonNegativeFloat = 0.0
    evaluate: PositiveInt | None = None
    long: NonNegativeInt = 1000
    predict: NonNegativeInt = 16


class UncertaintyConfig(Config):
    """Intervals of rollouts: an ensemble, and a calibration on the validation part.

    Attributes:
        members: emulators trained side by side, which differ by their initialisation; with 1 the
            width of an interval depends on the lead alone.
        coverage: share of truths that an interval is to hold.
        steps: leads that are calibrated, each by itself.
        starts: rollouts from each trajectory, evenly spread over it.
    """

    members: PositiveInt = 4
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9
    steps: PositiveInt = 16
    starts: PositiveInt = 4


class EmulationConfig(SeededConfig):
    """An emulator: variables, division, boundaries, network and training.

    Attributes:
        split: division of `data.path`: by simulation where there are several, else along the
            samples.
        boundary: {dim: circular | zeros | edge}; `zeros` for a wall, and unless stated.
        coordinates: dims whose position, and spacing where it varies, the network is told.
        conditioning: how inputs that have no grid dim and that no step changes (parameters,
            forcings) reach the network: as `channels` of one value in all cells, or by `film`,
            which scales and shifts the channels of every block.
        residual: learn the change where an output is also an input.
        transport: {dim: cells} that a flow carries a field at most in one step; the network then
            returns displacements beside corrections. For fields that move.
        low_rank: layers in low rank, begun from a trained emulator.
        guards: maps of the state after each step that hold it to invariants, in their order; the
            data must obey them. `validate` proposes those that hold in the data.
        quantities: {name: what the climate of long rollouts is judged by}, such as the kinetic
            energy, {terms: [[u, u], [w, w]], scale: 0.5}.
        uncertainty: intervals around rollouts, in reports and in what `predict` writes; they are
            calibrated on the simulations of the validation part.
        solver_seconds: CPU seconds in which a solver advances by one lead, for comparison.
        guarded_weight: of outputs that guards compute from others, as a pressure, in the loss,
            where a learned output weighs 1. With 0 training does not see their errors, which may
            grow many times while those of the others hardly change.
        wall_weight: added to every cell's volume, mean 1, in the loss: fine cells count more.
        weights_dtype: how the trained weights are kept; float16 halves the file, int8 quarters
            its large kernels. What is scored is what is kept.
        spatial_dim: the dim that `training.strategy: spatial` divides among processes; the longest
            that can be divided unless given.
    """

    renamed: ClassVar[Mapping[str, str]] = {"weights": "weights_dtype"}

    domain: Literal["emulation"] = "emulation"
    data: DataConfig
    split: CampaignSplit = CampaignSplit()
    boundary: dict[str, Padding] = Field(default_factory=dict)
    coordinates: list[str] = Field(default_factory=list)
    symmetries: SymmetryConfig = SymmetryConfig()
    conditioning: Literal["channels", "film"] = "channels"
    residual: bool = True
    transport: dict[str, PositiveInt] | None = None
    model: AnyModel = UNetConfig()
    diagnostic: DiagnosticConfig | None = None
    low_rank: LowRankConfig | None = None
    guards: list[AnyGuard] = Field(default_factory=list)
    quantities: dict[str, QuantityConfig] = Field(default_factory=dict)
    uncertainty: UncertaintyConfig | None = None
    solver_seconds: PositiveFloat | None = None
    guarded_weight: NonNegativeFloat = 0.0
    wall_weight: NonNegativeFloat = 0.0
    rollout: RolloutConfig = RolloutConfig()
    repeats: PositiveInt = Field(default=1, description="times a sample is drawn in an epoch")
    buffer: str = Field(default="1GiB", description="memory for samples kept between batches")
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    spatial_dim: str | None = None
    training: EmulationTrainingConfig = EmulationTrainingConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> EmulationConfig:
        data, problems = self.data, []
        known = {*data.inputs, *data.outputs}
        for dim, names in self.symmetries.mirror.items():
            if unknown := set(names) - known:
                problems.append(
                    f"symmetries.mirror.{dim} names {sorted(unknown)}, which is neither input nor "
                    f"output ({', '.join(sorted(known))})"
                )
        for name, quantity in self.quantities.items():
            if unknown := {v for term in quantity.terms for v in term} - set(data.outputs):
                problems.append(f"quantities.{name} names {sorted(unknown)}, which is no output")
        if self.rollout.jitter and not (self.symmetries.shift or self.symmetries.mirror):
            problems.append("rollout.jitter needs symmetries.shift or symmetries.mirror")
        for dim in self.symmetries.shift:
            if self.boundary.get(dim) != "circular":
                problems.append(f"symmetries.shift needs boundary.{dim}: circular")
        if self.rollout.steps + self.rollout.pushforward > 1:
            missing = set(data.inputs) & set(data.outputs)
            if data.lead == 0 or not missing:
                problems.append("a rollout needs lead >= 1 and an output that is also an input")
        if self.uncertainty is not None:
            if data.lead == 0 or not set(data.inputs) & set(data.outputs):
                problems.append("uncertainty needs lead >= 1 and an output that is also an input")
            if not self.split.validation and self.split.validation_range is None:
                problems.append("uncertainty needs split.validation, to be calibrated on")
        if data.parameter_table and not data.parameters and self.split.by != "parameter":
            problems.append("data.parameter_table is not used without data.parameters")
        if data.test is not None and self.split.test not in (0, CampaignSplit().test):
            problems.append("split.test is not used with data.test, which is the test part")
        if self.diagnostic is not None:
            own = set(self.diagnostic.outputs)
            rest = set(data.outputs) - own
            if not own <= set(data.outputs) or not rest:
                problems.append(
                    f"diagnostic.outputs {sorted(own)} must be some of data.outputs {data.outputs}"
                )
            elif own & set(data.inputs) and not rest <= set(data.inputs):
                problems.append(
                    f"diagnostic.outputs {sorted(own)} as inputs need the other outputs as inputs "
                    "too"
                )
        if self.low_rank is not None:
            if self.uncertainty is not None and self.uncertainty.members > 1:
                problems.append("low_rank is of one emulator: uncertainty.members: 1")
            if self.training.divides_fields:
                problems.append("low_rank and training.strategy spatial: choose another strategy")
        problems += self._problems_of_a_stream()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems_of_a_stream(self) -> list[str]:
        data, problems = self.data, []
        if data.generator is None:
            return []
        if self.split != CampaignSplit():
            problems.append("split is not used with data.generator: data.stream counts simulations")
        if not data.streams:
            return problems
        if self.repeats != 1:
            problems.append("repeats is not used with a stream: data.stream.repeats")
        if data.stream.mode == "active" and data.leads:
            problems.append("stream.mode active compares one step, and data.leads has several")
        members = 1 if self.uncertainty is None else self.uncertainty.members
        if data.stream.mode == "active" and members < FEWEST_MEMBERS:
            problems.append(
                f"data.stream.mode active needs uncertainty.members >= {FEWEST_MEMBERS}"
            )
        return problems


class ExportOptions(Config):
    """How an emulator is exported.

    Attributes:
        batch: samples of a call, fixed in the file.
    """

    batch: PositiveInt = 1
