"""Configuration of a training of interatomic potentials."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, FiniteFloat, model_validator

from scitoolkit.core.config import Config, DataPaths, refuse_unused
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.errors import BackendError
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import Choice, kind
from scitoolkit.io.atoms import LabelConfig, packages_for
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.model_config import ModelConfig, models
from scitoolkit.potentials.start_config import StartConfig, started_model
from scitoolkit.potentials.teaching_config import TeachingConfig, refuse_teacher
from scitoolkit.training.config import TrainingConfig

log: Logger = get_logger(__name__)
AnyModel = Annotated[ModelConfig, Choice(models)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
ReferenceEnergies = (
    Literal["auto", "isolated", "least_squares"]
    | Annotated[dict[str, FiniteFloat], Field(min_length=1)]
)
"""`isolated`: energies of the training frames of a single atom, which are then excluded from the
training. `least_squares`: the best fit to the training energies. `auto`: isolated if the files have
such a frame of every species, else least squares. Or eV by species."""


class FrameWeights(Config):
    """Weights of the frames of `data.path` in the loss; those that apply to a frame multiply.

    Frames of extxyz files and ASE databases may state weights too, by the names of mace-torch:
    `config_weight`, `config_energy_weight`, `config_forces_weight`, `config_stress_weight`. A label
    of weight 0 is not read. E0 and other statistics, and the errors of a report, have no weights.

    Attributes:
        config_types: weight by the entry `config_type` of a frame; 1 for others.
        files: weight by path or name of a file or folder, with wildcards; 1 for others.
    """

    config_types: dict[str, Weight] = Field(default_factory=dict)
    files: dict[str, Weight] = Field(default_factory=dict)


class AtomsConfig(Config):
    """Atomic configurations to train, validate and test on.

    Attributes:
        generator: a teacher that makes and labels configurations, instead of `path`.
        draw: distributions of the generator's parameters; `samples` is the number of training
            samples.
        teaching: held-out samples, and the committee that chooses the training samples.
        path: training data: deepmd system folders (or a folder of them) or HDF5 files, extxyz
            files, ASE databases and trajectories, or outputs of VASP.
        validation: likewise; if unset, a share of `path` is drawn, see `split`.
        test: likewise, for `evaluate`. If unset, the report gives the errors on the validation
            part and states it.
        labels: names and units of energies, forces and virials.
        weights: of frames in the loss.
    """

    renamed: ClassVar[Mapping[str, str]] = {"train": "path"}

    generator: Annotated[Config, Choice(kind("generator"))] | None = None
    draw: DrawConfig = DrawConfig()
    teaching: TeachingConfig = TeachingConfig()
    path: DataPaths = Field(default_factory=list)
    validation: DataPaths = Field(default_factory=list)
    test: DataPaths = Field(default_factory=list)
    labels: LabelConfig = LabelConfig()
    weights: FrameWeights = FrameWeights()

    @model_validator(mode="after")
    def _one_source(self) -> AtomsConfig:
        """Require either files or a generator that can train a potential."""
        if bool(self.path) == (self.generator is not None):
            raise ValueError("write either path, for files, or generator")
        if self.generator is None:
            refuse_unused(self, "data.path", "draw", "teaching")
        else:
            refuse_unused(self, "data.generator", "validation", "test", "labels", "weights")
            refuse_teacher(self.generator, self.draw, self.teaching)
        return self

    @property
    def files(self) -> list[Path]:
        """All files of the section."""
        return [*self.path, *self.validation, *self.test]

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that are required to read the files."""
        return packages_for(self.files)


class ShareConfig(Config):
    """Split of `data.path`, for configurations without `data.validation`.

    Attributes:
        validation: fraction of the configurations that is held out, drawn by the `seed` of the job.
    """

    validation: Share = 0.1


FINE_TUNING = {
    "optimizer": {"name": "adam", "lr": 1e-4},
    "schedule": {"name": "cosine", "warmup_steps": 10},
}
"""Default optimizer of fine-tuning: the rate of a new training would leave the start's minimum."""


def _with_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a new training with the defaults of its kind of model."""
    model = raw.get("model")
    name = model.get("name") if isinstance(model, Mapping) else getattr(model, "name", model)
    if name not in models.names():
        return raw
    kind_of_model = models.get(name)
    default, weights = kind_of_model.optimizer, kind_of_model.loss
    training, loss = raw.get("training") or {}, raw.get("loss") or {}
    if default and isinstance(training, Mapping):
        written = training.get("optimizer") or {}
        if isinstance(written, Mapping) and written.get("name", default["name"]) == default["name"]:
            raw["training"] = {**training, "optimizer": {**default, **written}}
    if isinstance(loss, Mapping):
        raw["loss"] = {**weights, **loss}
    return raw


class PotentialConfig(SeededConfig):
    """Configuration of a training of an interatomic potential.

    Attributes:
        type_map: species in the order of the model's types; by default those of the data.
        e0: reference energy of each species: `auto`, `isolated`, `least_squares`, or eV by species;
            see `ReferenceEnergies`. The source is logged.
        refit_e0: refit E0 to the energy errors after training, if E0 is from least squares; forces
            do not change.
        start: fine-tuning: trained weights to start from; see `StartConfig`.
        split: fraction of `data.path` to validate on.
        statistics_frames: number of training configurations that determine shifts and scales.
    """

    renamed: ClassVar[Mapping[str, str]] = {"data.seed": "seed"}

    domain: Literal["potentials"] = "potentials"
    data: AtomsConfig
    split: ShareConfig = ShareConfig()
    type_map: list[str] | None = None
    model: AnyModel
    start: StartConfig | None = None
    loss: LossConfig = LossConfig()
    e0: ReferenceEnergies = "auto"
    refit_e0: bool = True
    statistics_frames: int = Field(default=64, ge=1)
    training: TrainingConfig = TrainingConfig()

    def required_packages(self) -> tuple[str, ...]:
        """Return the required packages: vesin too if no neighbour-list kernel is available."""
        from scitoolkit.ops.codegen.compile import find_compiler

        try:
            find_compiler()
        except BackendError:
            from scitoolkit.ops.neighbours.lists import available

            if not available():
                return (*super().required_packages(), "vesin")
        return super().required_packages()

    @model_validator(mode="before")
    @classmethod
    def _fine_tuning(cls, raw: Any) -> Any:
        """Fill in the settings of the start's model, and the defaults of the kind of model."""
        if not isinstance(raw, Mapping):
            return raw
        start, filled = raw.get("start"), dict(raw)
        if not isinstance(start, Mapping) or not isinstance(start.get("path"), str):
            return filled if start else _with_defaults(filled)
        theirs, own = started_model(start), raw.get("model") or {}
        if theirs is None:
            filled["model"] = own or {"name": "mace"}
        elif isinstance(own, Mapping) and own.get("name", theirs["name"]) == theirs["name"]:
            filled["model"] = {**theirs, **own}
        training = raw.get("training") or {}
        if isinstance(training, Mapping) and "optimizer" not in training:
            filled["training"] = {**FINE_TUNING, **training}
        return filled

    @model_validator(mode="before")
    @classmethod
    def _former_share(cls, raw: Any) -> Any:
        """Accept a fraction in `data.validation`, the former place of `split.validation`."""
        data = raw.get("data") if isinstance(raw, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(data.get("validation"), int | float):
            return raw
        share = data["validation"]
        if (raw.get("split") or {}).get("validation", share) != share:
            raise ValueError("a share in data.validation is the former split.validation: write one")
        log.warning("a share in 'data.validation' is now written 'split.validation'")
        files = {key: value for key, value in data.items() if key != "validation"}
        return {**raw, "data": files, "split": {"validation": share}}

    @model_validator(mode="after")
    def _distinct(self) -> PotentialConfig:
        if self.type_map is not None and len(set(self.type_map)) != len(self.type_map):
            raise ValueError(f"type_map names a species twice: {self.type_map}")
        if self.data.validation:
            refuse_unused(self.split, "the files of data.validation", "validation")
        if self.data.generator is not None:
            refuse_unused(self.split, "data.teaching.validation", "validation")
            if self.start is not None and self.start.heads == "separate":
                raise ValueError("start.heads: separate is for files, data.path, not a generator")
        committee = self.data.teaching.committee
        if committee is not None:
            member = committee.model or self.model
            if "seed" not in type(member).model_fields:
                raise ValueError(
                    f"data.teaching.committee: {member.name} has no seed to tell members apart by"
                )
        return self
