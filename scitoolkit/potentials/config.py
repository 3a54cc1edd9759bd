"""The configuration of a job of interatomic potentials."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.errors import BackendError
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import Choice, kind
from scitoolkit.io.atoms import LabelConfig, packages_for
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.model_config import ModelConfig, models
from scitoolkit.potentials.start_config import StartConfig
from scitoolkit.potentials.teaching_config import TeachingConfig, refuse_teacher
from scitoolkit.training.config import TrainingConfig

log: Logger = get_logger(__name__)
AnyModel = Annotated[ModelConfig, Choice(models)]
Share = Annotated[float, Field(gt=0, lt=1)]
ReferenceEnergies = (
    Literal["auto", "isolated", "least_squares"] | Annotated[dict[str, float], Field(min_length=1)]
)
"""`isolated`: of the training frames that are one atom without a neighbour; these are not trained
on. `least_squares`: the best fit to the training energies. `auto`: isolated where every species
of the frames has such a frame, else least squares. Or eV by species."""


class AtomsConfig(Config):
    """Which configurations to train, validate and test on.

    Attributes:
        generator: a teacher that makes and labels them, in place of `path`.
        draw: the parameters of its samples; `samples` counts those of the training.
        teaching: held-out samples, and whether a committee chooses those of the training.
        path: what to train on: deepmd system folders (or a folder of them), extxyz files, ASE
            databases.
        validation: likewise; without them a share of `path` is drawn, see `split`.
        test: likewise; used by `evaluate`. If unset, errors are those of the validation part, and
            the report says so.
        labels: names and units of energies, forces and virials.
    """

    renamed: ClassVar[Mapping[str, str]] = {"train": "path"}

    generator: Annotated[Config, Choice(kind("generator"))] | None = None
    draw: DrawConfig = DrawConfig()
    teaching: TeachingConfig = TeachingConfig()
    path: list[DataPath] = Field(default_factory=list)
    validation: list[DataPath] = Field(default_factory=list)
    test: list[DataPath] = Field(default_factory=list)
    labels: LabelConfig = LabelConfig()

    @model_validator(mode="after")
    def _one_source(self) -> AtomsConfig:
        """Refuse no frames, both files and a generator, and a generator that does not fit."""
        if bool(self.path) == (self.generator is not None):
            raise ValueError("write either path, for files, or generator")
        if self.generator is None:
            refuse_unused(self, "data.path", "draw", "teaching")
        else:
            refuse_unused(self, "data.generator", "validation", "test", "labels")
            refuse_teacher(self.generator, self.draw, self.teaching)
        return self

    @property
    def files(self) -> list[Path]:
        """All files that are named."""
        return [*self.path, *self.validation, *self.test]

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that reading the files needs."""
        return packages_for(self.files)


class ShareConfig(Config):
    """How `data.path` is divided where `data.validation` names no files.

    Attributes:
        validation: share of the configurations that are held out, drawn by the `seed` of the job.
    """

    validation: Share = 0.1


class PotentialConfig(SeededConfig):
    """A job of interatomic potentials.

    Attributes:
        type_map: species in the order of the model's types; found in the data unless given.
        e0: energies of the species that the model starts from: `auto`, `isolated`,
            `least_squares`, or eV by species; see `ReferenceEnergies`. The log says which.
        refit_e0: after training, fit E0 once more to the energies that the model predicts, where
            it is of least squares; forces do not change.
        start: fine-tuning: trained weights to start from; see `StartConfig`.
        split: share of `data.path` to validate on.
        statistics_frames: training configurations that shifts and scales are measured on.
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
        """Return vesin where no kernel makes the neighbour lists: neither compiled nor prebuilt."""
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
    def _former_share(cls, raw: Any) -> Any:
        """Accept a share in `data.validation`, where it was written formerly."""
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
        committee = self.data.teaching.committee
        if committee is not None:
            member = committee.model or self.model
            if "seed" not in type(member).model_fields:
                raise ValueError(
                    f"data.teaching.committee: {member.name} has no seed to tell members apart by"
                )
        return self
