"""How an emulator is trained on what a generator makes: stored, online, or chosen actively."""

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
    """Simulations of `data.generator` for a training; `data.draw.samples` counts those of training.

    Attributes:
        mode: `online` makes simulations while the training runs; `active` lets the disagreement
            of `uncertainty.members` choose their parameters; `stored` makes all of them as files
            first, and trains on these.
        workers: processes that make simulations; 0 makes them in the training itself.
        reservoir: simulations held in memory; one is replaced once all of its windows were drawn.
        repeats: times that each window is drawn before its simulation may be replaced.
        ahead: simulations made before they are due; memory is held for them.
        validation: simulations that the training is judged by, made before it.
        test: simulations for the report, made before it.
        candidates: parameter sets that the committee compares for each simulation.
        timeout: seconds after which a worker counts as dead.
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
        """Simulations that are made before the training and nothing is learned from."""
        return self.validation + self.test


def refuse_generator(
    generator: Any, draw: DrawConfig, stream: StreamConfig, inputs: Sequence[str]
) -> None:
    """Refuse a generator and draws that cannot feed a training, before anything runs.

    Args:
        generator: member of the kind `generator`.
        draw: the parameters of its samples.
        stream: how they are used.
        inputs: parameters that the network is given.

    Raises:
        ValueError: what does not go together.
    """
    if generator.suffix != FIELDS:
        raise ValueError(
            f"generator {generator.name} makes no fields, but {generator.suffix} files"
        )
    draw.require_valid(generator.with_parameters)
    if stream.mode == "stored":
        return
    if draw.method == "grid":
        raise ValueError("draw.method grid: a stream would see one corner first; sobol or random")
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
