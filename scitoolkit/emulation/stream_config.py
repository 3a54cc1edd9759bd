"""Configuration of training on simulations of a generator: stored, online or active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.config import Config, refuse_unused
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.resume import FREE_ON_RESUME

FIELDS = ".nc"
_ONLINE = ("reservoir", "ahead", "repeats")


class StreamConfig(Config):
    """Simulations of `data.generator` for training, `data.draw.samples` of them, and for testing.

    Attributes:
        mode: `online` computes simulations during the training; `active` chooses their parameters
            by the disagreement of `uncertainty.members`; `stored` writes all simulations to files
            first and trains on the files.
        workers: processes that compute simulations; 0 computes them in the training process.
        reservoir: simulations in memory; one is replaced once all of its windows have been drawn.
        repeats: how often each window is drawn before its simulation may be replaced.
        ahead: simulations computed in advance, which need additional memory.
        validation: simulations for validation, computed before the training.
        test: simulations for testing, computed before the training.
        candidates: parameter sets that the committee compares for each simulation.
        timeout: seconds without an answer after which a worker is considered dead.
    """

    mode: Literal["online", "active", "stored"] = "online"
    workers: Annotated[NonNegativeInt, FREE_ON_RESUME] = 1
    reservoir: PositiveInt = 16
    repeats: PositiveInt = 1
    ahead: PositiveInt = 2
    validation: PositiveInt = 4
    test: PositiveInt = 4
    candidates: PositiveInt = 16
    timeout: Annotated[PositiveFloat, FREE_ON_RESUME] = 3600.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "stored":
            refuse_unused(self, "mode stored", *_ONLINE)
        if self.mode != "active":
            refuse_unused(self, f"mode {self.mode}", "candidates")
        return self

    @property
    def held_out(self) -> int:
        """Number of simulations for validation and testing."""
        return self.validation + self.test


def refuse_generator(
    generator: Any, draw: DrawConfig, stream: StreamConfig, inputs: Sequence[str]
) -> None:
    """Check that a generator and its draw suit a training, before anything runs.

    Args:
        generator: member of the kind `generator`.
        draw: the parameters of its samples.
        stream: how they are used.
        inputs: parameters that are inputs of the network.

    Raises:
        ValueError: settings that contradict each other.
    """
    if generator.suffix != FIELDS:
        raise ValueError(f"generator {generator.name} writes {generator.suffix} files, not fields")
    draw.require_valid(generator.with_parameters)
    if stream.mode == "stored":
        return
    if draw.method == "grid":
        raise ValueError("draw.method grid streams one corner of the grid first: sobol or random")
    if stream.reservoir > draw.samples:
        raise ValueError(
            f"draw.samples {draw.samples} is less than stream.reservoir {stream.reservoir}"
        )
    unseen = [name for name in draw.parameters if name not in inputs]
    if stream.mode == "active" and (unseen or not draw.parameters):
        raise ValueError(
            f"stream.mode active: parameters must have all that draw.parameters draws, not "
            f"{', '.join(unseen) or 'none'}"
        )
