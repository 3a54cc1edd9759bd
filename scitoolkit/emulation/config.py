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
from scitoolkit.emulation.start_config import EmulatorStart
from scitoolkit.emulation.stream_config import StreamConfig, refuse_generator
from scitoolkit.emulation.variables import LEAD, NOISE, STEP
from scitoolkit.io.campaign.split import CampaignSplit

FEWEST_MEMBERS = 2
"""Least number of members of a committee."""


class DataConfig(Config):
    """Input and output variables, and the files or the generator that provide them.

    Attributes:
        generator: a solver that computes the simulations, instead of `path`.
        draw: parameters of its simulations; `samples` is the number of simulations for training.
        stream: whether simulations are computed before or during the training.
        path: a file, a directory, a pattern with `*`, or a list of files. Each of several files
            is a simulation, or they are parts of one if their times continue; one file may also
            hold many simulations. No window contains samples of two simulations.
        test: files for testing; the test split of `path` if not given.
        inputs: names of the input variables; `velocity` selects all components, `velocity_0` one.
        outputs: names of the output variables.
        sample_dim: the dim of the samples: time, or the members of an ensemble. `time` also matches
            t, step and similar names.
        lead: samples from input to output along `sample_dim`; with 0 both are of the same sample.
        leads: leads of one emulator, `lead` among them, which it receives as the input `lead`;
            rollouts use steps of `lead`.
        history: number of times at which the state is an input: now, and one, two, ... leads
            before.
        grid: the space dims; by default those of the variable with most dims.
        dims: names of the dims of a plain HDF5 file, which stores none.
        parameters: names of numbers of each simulation (a viscosity, a Rayleigh number) that are
            additional inputs: attributes or scalars of the files, or columns of
            `parameter_table`. A list, or {name: linear | log} if some span decades.
        parameter_table: CSV file whose first column names the simulations.
        mask: a variable without time that is 1 where the fields have values, or `missing` if the
            other cells (land, obstacles) are NaN or the file's fill value in every row.
        mask_of_step: an input that is 1 in the cells that have values at its time and 0 in others,
            for masks that move (sea ice). The state is its mean in other cells, and they count in
            no loss, score or statistic; values there may be any finite number.
        units: {name: unit that the file must have}.
        files: `simulations` (one per file), `parts` of one simulation, or detected by their times.
        pattern: names of files that hold one sample each, as in `run{simulation}_t{step}.h5`.
        gaps: missing times within a simulation are refused, or `split` it into stretches that no
            window crosses.
        select: {dim: value of the entry to read}, a level or a member: `{level: 500}`.
        levels: whether the vertical dim is a dim of the grid, or each level of it is a channel.
        staggered: whether fields on the faces of cells (WRF, ROMS, SGRID, COMODO) are read as
            `stored`, or as the means of neighbouring faces at the `centres`.
        offsets: {variable: number that is subtracted from it in the precision of the file}, for
            changes that float32 would lose beside a large mean. The emulator, its predictions and
            its exports are of the rest.
        time_steps: whether samples are equally far apart in time, or the time from each sample to
            the next is an `input` of the emulator, `step` (in seconds for dates).
        area_weights: weigh cells by their area on the sphere in losses, scores, means, guards and
            quantities if a coordinate is a latitude by CF; with `false` by widths in its unit.
        on_error: `skip` leaves out simulations that cannot be read, that differ from the others in
            variables, units, grid or time step, or that are copies, and logs their names.
        allow_suspect: train even if values look like unflagged fill values or unwritten frames.
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
    mask_of_step: str | None = None
    units: dict[str, str] = Field(default_factory=dict)
    files: Literal["auto", "simulations", "parts"] = "auto"
    pattern: str | None = None
    gaps: Literal["refuse", "split"] = "refuse"
    select: dict[str, float] = Field(default_factory=dict)
    levels: Literal["dim", "channels"] = "dim"
    staggered: Literal["stored", "centres"] = "stored"
    offsets: dict[str, float] = Field(default_factory=dict)
    time_steps: Literal["even", "input"] = "even"
    area_weights: bool = True
    on_error: Literal["raise", "skip"] = "raise"
    allow_suspect: bool = False

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages required to read the files."""
        from scitoolkit.io.campaign.files import campaign_packages

        return () if self.path is None else campaign_packages(self.path)

    @model_validator(mode="after")
    def _one_origin(self) -> DataConfig:
        if (self.path is None) == (self.generator is None):
            raise ValueError("give either path, for files, or generator")
        if self.generator is None:
            refuse_unused(self, "data.path", "draw", "stream")
            return self
        refuse_unused(
            self,
            "data.generator",
            "test",
            "pattern",
            "files",
            "dims",
            "parameter_table",
            "gaps",
            "select",
            "levels",
            "staggered",
            "offsets",
            "on_error",
            "mask",
            "mask_of_step",
            "time_steps",
        )
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
        if (mask := self.mask_of_step) is not None:
            if mask not in self.inputs or mask in self.outputs:
                raise ValueError(f"mask_of_step {mask} must be one of inputs, and no output")
            if self.mask is not None:
                raise ValueError("mask and mask_of_step: cells of land are 0 in mask_of_step, too")
            if self.history > 1:
                raise ValueError(
                    "mask_of_step needs history: 1, as earlier values have other masks"
                )
        if self.time_steps == "input":
            if self.lead == 0 or self.leads or self.history > 1:
                raise ValueError("time_steps: input needs lead >= 1, history: 1 and no leads")
            if taken := {STEP} & {*self.inputs, *self.outputs, *self.parameters}:
                raise ValueError(
                    f"with time_steps: input, {taken.pop()!r} must not be a variable's name"
                )
        if self.leads:
            if len(set(self.leads)) < max(len(self.leads), 2) or self.lead not in self.leads:
                raise ValueError(
                    f"leads {self.leads} must be two or more distinct leads that include lead "
                    f"{self.lead}"
                )
            if self.history > 1:
                raise ValueError("leads needs history: 1, whose times are one lead apart")
            if taken := {LEAD} & {*self.inputs, *self.outputs, *self.parameters}:
                raise ValueError(f"with leads, {taken.pop()!r} must not be a variable's name")
        if self.lead == 0 and (both := set(self.inputs) & set(self.outputs)):
            raise ValueError(f"with lead 0 no variable is both input and output: {sorted(both)}")
        return self

    @property
    def samples_before(self) -> int:
        """Number of samples before the present in the history."""
        return (self.history - 1) * self.lead

    @property
    def parameter_scales(self) -> dict[str, Literal["linear", "log"]]:
        """Scale of each parameter as an input of the network."""
        names = self.parameters
        return dict(names) if isinstance(names, dict) else dict.fromkeys(names, "linear")


class SymmetryConfig(Config):
    """Symmetries of the equations, applied at random to training samples.

    Attributes:
        shift: periodic, evenly spaced dims with an arbitrary origin.
        mirror: {dim: variables that change sign when the dim is reversed}; its points are symmetric
            about their middle.
    """

    shift: list[str] = Field(default_factory=list)
    mirror: dict[str, list[str]] = Field(default_factory=dict)


class DiagnosticConfig(Config):
    """Outputs that a second network computes from the other outputs of the same time.

    A pressure is an example: it depends on the present state alone. It is trained on the true state
    first, and on the emulator's state once `rollout.begin` is reached.

    Attributes:
        outputs: names. An output that is also an input changes by the difference of the network's
            values for the new and the old state.
        model: the network.
    """

    outputs: list[str] = Field(min_length=1)
    model: AnyModel = UNetConfig()


class QuantityConfig(Config):
    """An integral quantity of a state: the volume mean of a sum of products of variables.

    Attributes:
        terms: products, each a list of variables: [[u, u], [w, w]] is u^2 + w^2.
        scale: factor of the mean.
        offset: added to the scaled mean.
    """

    terms: list[list[str]] = Field(min_length=1)
    scale: float = 1.0
    offset: float = 0.0


class RolloutConfig(Config):
    """Autoregressive training, and rollouts in evaluation and prediction.

    Attributes:
        steps: consecutive steps whose errors are all in the loss.
        pushforward: steps without gradient before them (Brandstetter et al. 2022,
            arXiv:2202.03376).
        draw_pushforward: draw the number of such steps from 0 to `pushforward` for each batch.
        validation: steps of the validation rollouts that select the weights; by default
            `steps + pushforward`.
        jitter: apply a random one of `symmetries` before each step of a rollout and undo it after
            the step, so that errors tied to the grid do not accumulate in place.
        begin: share of the training after which rollouts begin; before, single steps are trained.
        noise: standard deviation of noise added to the state, in units of each variable's typical
            change in one step.
        evaluate: steps of the rollouts in the report; by default as many as the test split has.
        long: steps of the rollout beyond the end of the data, for climate statistics; 0 for none.
        predict: steps that `scitoolkit predict` computes after the last sample of a file; with 0 it
            advances every sample of the file by one step instead.
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


class AnomalyConfig(Config):
    """The climatology that anomalies in scores are relative to, from the training part.

    Attributes:
        by: `day_of_year`, means of the samples of the same day of the year and time of the day;
            `constant`, the mean of all samples; `none`; or `auto`, which is none without a
            latitude, else by day of the year where dates allow it.
        window: days of the year around a day, itself included, that its mean is over; 61 smooths
            the means of few years.
    """

    by: Literal["auto", "day_of_year", "constant", "none"] = "auto"
    window: Annotated[int, Field(ge=1, le=183)] = 1

    @model_validator(mode="after")
    def _centred(self) -> AnomalyConfig:
        if self.window % 2 == 0:
            raise ValueError(f"window must be odd, such as {self.window + 1}, to have a middle day")
        return self


class UncertaintyConfig(Config):
    """Prediction intervals of rollouts: an ensemble, calibrated on the validation split.

    Attributes:
        members: emulators that differ by their initialisation, or rollouts of one emulator that
            differ by their noise; with 1 the width of an interval depends on the lead alone.
        noise: number of standard normal values that are drawn in each step and scale and shift
            the channels of every block of one emulator, which is trained by the fair CRPS of
            `loss_members` draws (Lang et al. 2024, arXiv:2412.15832; Alet et al. 2025,
            arXiv:2506.10772). With 0 the members are emulators without noise.
        loss_members: draws of each training sample whose CRPS is the loss, with `noise`.
        coverage: nominal share of true values inside an interval.
        steps: number of steps that are calibrated, each separately.
        starts: rollouts per trajectory, evenly spread over it.
    """

    members: PositiveInt = 4
    noise: NonNegativeInt = 0
    loss_members: Annotated[int, Field(ge=2, le=16)] = 2
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9
    steps: PositiveInt = 16
    starts: PositiveInt = 4

    @model_validator(mode="after")
    def _of_noise(self) -> UncertaintyConfig:
        if not self.noise:
            refuse_unused(self, "noise: 0", "loss_members")
        elif self.members < FEWEST_MEMBERS:
            raise ValueError(f"noise needs members >= {FEWEST_MEMBERS}, whose spread it is")
        return self

    @property
    def emulators(self) -> int:
        """Number of emulators that are trained."""
        return 1 if self.noise else self.members


class EmulationConfig(SeededConfig):
    """Configuration of an emulator: data, split, boundaries, network and training.

    Attributes:
        split: splits of `data.path`: by simulation if there are several, else along the samples.
        boundary: {dim: circular | zeros | edge | pole}; `zeros`, for a wall, is the default. Beyond
            a `pole` are the cells half a turn around it.
        coordinates: dims whose position, and spacing if it varies, are inputs of the network.
        conditioning: how inputs without grid dims that no step changes (parameters, forcings) enter
            the network: as `channels` that are constant in space, or by `film`, which scales and
            shifts the channels of every block.
        residual: learn the change of an output that is also an input.
        transport: {dim: cells} that a flow moves a field by at most in one step; the network then
            returns displacements in addition to corrections.
        low_rank: layers of low rank, initialised from a trained emulator.
        start: fine-tuning: trained weights to start from.
        guards: maps applied in order to the state after each step that enforce invariants; the data
            must satisfy them. `validate` proposes those that hold in the data.
        quantities: {name: integral quantity} of the climate of long rollouts, such as the kinetic
            energy, {terms: [[u, u], [w, w]], scale: 0.5}.
        climatology: of the anomaly correlation in reports.
        regions: {name: {dim, latitude or longitude: [least, largest]}} of further scores; by
            default three bands of latitude. Longitudes count eastward.
        uncertainty: prediction intervals in reports and in the output of `predict`, calibrated
            on the simulations of the validation split.
        solver_seconds: CPU seconds of a solver per lead, for comparison.
        guarded_weight: weight in the loss of outputs that guards compute from others, such as a
            pressure; a learned output has weight 1. With 0 their errors are not in the loss and may
            grow many times while the errors of the other outputs hardly change.
        loss_weights: {output: weight} in the loss, whose errors are relative to the typical change
            of each output; 1 if not given, 0 leaves an output out.
        wall_weight: added to the volume of every cell (of mean 1) in the loss, which increases the
            weight of fine cells.
        weights_dtype: dtype of the stored weights; float16 halves the file, int8 quarters its large
            kernels. Scores are those of the stored weights.
        spatial_dim: the dim that `training.strategy: spatial` divides among processes; by default
            the longest one that can be divided.
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
    start: EmulatorStart | None = None
    guards: list[AnyGuard] = Field(default_factory=list)
    quantities: dict[str, QuantityConfig] = Field(default_factory=dict)
    climatology: AnomalyConfig = AnomalyConfig()
    regions: dict[str, dict[str, tuple[float, float]]] = Field(default_factory=dict)
    uncertainty: UncertaintyConfig | None = None
    solver_seconds: PositiveFloat | None = None
    guarded_weight: NonNegativeFloat = 0.0
    loss_weights: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    wall_weight: NonNegativeFloat = 0.0
    rollout: RolloutConfig = RolloutConfig()
    repeats: PositiveInt = Field(default=1, description="how often a sample is drawn per epoch")
    buffer: str = Field(default="1GiB", description="memory for cached samples")
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    spatial_dim: str | None = None
    training: EmulationTrainingConfig = EmulationTrainingConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> EmulationConfig:
        data, problems = self.data, []
        variables = {*data.inputs, *data.outputs}
        for dim, names in self.symmetries.mirror.items():
            if unknown := set(names) - variables:
                problems.append(
                    f"symmetries.mirror.{dim} names {sorted(unknown)}, which is neither input nor "
                    f"output ({', '.join(sorted(variables))})"
                )
        for name, quantity in self.quantities.items():
            if unknown := {v for term in quantity.terms for v in term} - set(data.outputs):
                problems.append(f"quantities.{name} names {sorted(unknown)}, which is no output")
        strategy = self.training.named_strategy()
        if strategy is not None and strategy.joins_calls and self.rollout.draw_pushforward:
            problems.append(
                f"rollout.draw_pushforward: processes of strategy {strategy.name} would draw other "
                "numbers of steps, and wait for each other: leave it out"
            )
        if self.rollout.jitter and not (self.symmetries.shift or self.symmetries.mirror):
            problems.append("rollout.jitter needs symmetries.shift or symmetries.mirror")
        for name, limits in self.regions.items():
            for dim, (low, high) in limits.items():
                # Longitudes from 350 to 10 cross the meridian of 0.
                if not (low <= high or dim == "longitude"):
                    problems.append(f"regions.{name}.{dim} is from {low:g} to {high:g}")
        # A shift moves cells around the period; beyond a wall there are none.
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
            if self.uncertainty.noise:
                problems += self._problems_of_noise()
        if data.parameter_table and not data.parameters and self.split.by != "parameter":
            problems.append("data.parameter_table is not used without data.parameters")
        if data.test is not None and self.split.test not in (0, CampaignSplit().test):
            problems.append("split.test is not used with data.test, which is the test part")
        if self.diagnostic is not None:
            # The diagnostic network computes `own` from the state; the main network learns `rest`.
            own = set(self.diagnostic.outputs)
            rest = set(data.outputs) - own
            if not own <= set(data.outputs) or not rest:
                problems.append(
                    f"diagnostic.outputs {sorted(own)} must be some of data.outputs {data.outputs}"
                )
            # The change of an output is then a difference of two diagnoses, before and after a
            # step, and that before needs the whole state.
            elif own & set(data.inputs) and not rest <= set(data.inputs):
                problems.append(
                    f"diagnostic.outputs {sorted(own)} as inputs need the other outputs as inputs "
                    "too"
                )
        if self.low_rank is not None:
            if self.uncertainty is not None and self.uncertainty.members > 1:
                problems.append("low_rank needs a single emulator: uncertainty.members: 1")
            if self.training.divides_fields:
                problems.append("low_rank and training.strategy spatial: choose another strategy")
        if data.mask_of_step is not None:
            # They read or move values of cells that have none, or weigh all cells at all times.
            for key in ("transport", "guards", "diagnostic", "uncertainty", "quantities"):
                if getattr(self, key):
                    problems.append(f"{key} is not possible with data.mask_of_step: leave it out")
            if self.climatology.by not in ("auto", "none"):
                problems.append("climatology is not possible with data.mask_of_step: leave it out")
            if self.training.divides_fields:
                problems.append("data.mask_of_step and training.strategy spatial: choose another")
        if self.start is not None:
            if self.low_rank is not None:
                problems.append("start and low_rank both give the first weights: leave one out")
            if self.start.replay and data.generator is not None:
                problems.append("start.replay needs data.path, not data.generator")
            if self.start.replay_simulations is not None and not self.start.replay:
                problems.append("start.replay_simulations is not used without start.replay")
        problems += self._problems_of_a_stream()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems_of_noise(self) -> list[str]:
        data, problems = self.data, []
        if self.training.divides_fields:
            problems.append("uncertainty.noise and training.strategy spatial: choose another")
        if NOISE in {*data.inputs, *data.outputs, *data.parameters}:
            problems.append(f"with uncertainty.noise, {NOISE!r} must not be a variable's name")
        if not self.model.conditioned:
            problems.append(
                f"uncertainty.noise needs a model whose blocks take a condition, and "
                f"{self.model.name} has none: unet, for example"
            )
        return problems

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
        members = 1 if self.uncertainty is None else self.uncertainty.emulators
        if data.stream.mode == "active" and members < FEWEST_MEMBERS:
            problems.append(
                f"data.stream.mode active needs uncertainty.members >= {FEWEST_MEMBERS}"
            )
        return problems


class ExportOptions(Config):
    """Options of the export of an emulator.

    Attributes:
        batch: number of samples of a call, fixed in the file.
    """

    batch: PositiveInt = 1
