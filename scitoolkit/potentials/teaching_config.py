"""Frames that a generator labels for a training of potentials, instead of files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.potentials.model_config import ModelConfig, models

FRAMES = ".xyz"
"""Suffix of the samples of generators of frames."""


class CommitteeConfig(Config):
    """Potentials whose disagreement chooses what the teacher labels (query by committee).

    A round trains the members on all samples that are labelled so far; each of the next samples is
    then the one of its candidates on whose forces the members disagree most.

    Attributes:
        members: potentials, which differ by their initial weights and the order of the frames.
        model: of a member, small; that of the job unless given.
        steps: of a member's training in each round; all else is as in `training`.
        first: samples that are drawn at random before the first round.
        per_round: samples that a round chooses.
        candidates: draws that are compared for each sample, unlabelled.
        tolerance: disagreement on forces below which no more samples are labelled, eV/Å: the mean
            over the samples of a round, of the largest over a frame's atoms.
    """

    members: Annotated[int, Field(ge=2)] = 3
    model: Annotated[ModelConfig, Choice(models)] | None = None
    steps: PositiveInt = 200
    first: PositiveInt = 8
    per_round: PositiveInt = 8
    candidates: Annotated[int, Field(ge=2)] = 8
    tolerance: NonNegativeFloat = 0.0


class TeachingConfig(Config):
    """Samples of `data.generator` for a training; `data.draw.samples` counts those of training.

    Attributes:
        validation: samples that the training is judged by, drawn at random.
        test: samples for the report, likewise.
        processes: samples that are made at a time.
        committee: chooses the samples of the training; drawn at random without.
    """

    validation: PositiveInt = 4
    test: PositiveInt = 8
    processes: Annotated[PositiveInt, FREE_ON_RESUME] = 1
    committee: CommitteeConfig | None = None

    @property
    def held_out(self) -> int:
        """Samples that nothing is learned from."""
        return self.validation + self.test


def refuse_teacher(generator: Any, draw: DrawConfig, teaching: TeachingConfig) -> None:
    """Refuse a generator and draws that cannot feed a training, before anything runs.

    Raises:
        ValueError: what does not go together.
    """
    if generator.suffix != FRAMES:
        raise ValueError(
            f"generator {generator.name} makes no frames of atoms, but {generator.suffix} files"
        )
    draw.require_valid(generator.with_parameters)
    if draw.method == "grid":
        raise ValueError("draw.method grid: samples of validation and test would be one corner of "
                         "it; sobol or random")  # fmt: skip
    committee = teaching.committee
    if committee is None:
        return
    if committee.first > draw.samples:
        raise ValueError(
            f"draw.samples {draw.samples} is less than teaching.committee.first {committee.first}"
        )
