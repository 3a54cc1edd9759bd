"""Configuration of training data that a generator labels, and of the committee that chooses it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.potentials.model_config import ModelConfig, models

FRAMES = ".xyz"
"""Suffix of the samples of generators of atomic structures."""


class CommitteeConfig(Config):
    """Committee of potentials whose disagreement selects the samples to label.

    A round trains the members on all samples labelled so far. For each of the next samples, the
    candidate with the largest disagreement of the members' forces is then labelled.

    Attributes:
        members: number of potentials; they differ in their initial weights and the order of the
            frames.
        perturbation: noise that distinguishes the initial weights of the members where `start:`
            gives all of them the same: standard deviation of the noise over the root mean square of
            each trained parameter. 0.01 changes the forces by about a tenth before the training.
        model: of a member, usually a small one; by default that of the job.
        steps: of a member's training in each round; the other settings are those of `training`.
        first: number of samples drawn at random before the first round.
        per_round: number of samples chosen in a round.
        candidates: number of unlabelled draws that are compared for each sample.
        tolerance: disagreement on forces below which no more samples are labelled, eV/Å: largest
            over a frame's atoms, mean over the samples of a round.
    """

    members: Annotated[int, Field(ge=2)] = 3
    model: Annotated[ModelConfig, Choice(models)] | None = None
    steps: PositiveInt = 200
    first: PositiveInt = 8
    per_round: PositiveInt = 8
    candidates: Annotated[int, Field(ge=2)] = 8
    tolerance: NonNegativeFloat = 0.0
    perturbation: NonNegativeFloat = 0.01


class TeachingConfig(Config):
    """Samples of `data.generator` in addition to the `data.draw.samples` that are trained on.

    Attributes:
        validation: number of validation samples, drawn at random.
        test: number of test samples, drawn at random.
        processes: number of samples that are made in parallel.
        committee: chooses the training samples; without one they are drawn at random.
    """

    validation: PositiveInt = 4
    test: PositiveInt = 8
    processes: Annotated[PositiveInt, FREE_ON_RESUME] = 1
    committee: CommitteeConfig | None = None

    @property
    def held_out(self) -> int:
        """Number of validation and test samples."""
        return self.validation + self.test


def refuse_teacher(generator: Any, draw: DrawConfig, teaching: TeachingConfig) -> None:
    """Refuse a generator and draws that cannot train a potential.

    Raises:
        ValueError: the generator makes no frames of atoms, the draws are outside its validity or a
            grid, or there are fewer samples than the committee's first ones.
    """
    if generator.suffix != FRAMES:
        raise ValueError(
            f"generator {generator.name} makes no frames of atoms but {generator.suffix} files"
        )
    draw.require_valid(generator.with_parameters)
    if draw.method == "grid":
        raise ValueError(
            "draw.method grid: the validation and test samples would be one corner "
            "of the grid; use sobol or random"
        )
    committee = teaching.committee
    if committee is None:
        return
    if committee.first > draw.samples:
        raise ValueError(
            f"draw.samples {draw.samples} is less than teaching.committee.first {committee.first}"
        )
