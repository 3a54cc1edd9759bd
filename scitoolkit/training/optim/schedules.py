"""Learning-rate schedules as functions of the step, so that resuming needs no replay.

Every schedule has a linear warm-up. State that depends on validation losses (`plateau`) is saved in
checkpoints.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    model_validator,
)

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Choice, Kind
from scitoolkit.core.resume import FREE_ON_RESUME

if TYPE_CHECKING:
    from torch.optim import Optimizer


class ScheduleConfig(Config):
    """Base class of schedules: a linear warm-up, followed by `shape`."""

    name: str
    warmup_steps: NonNegativeInt = Field(default=0, description="steps of linear warm-up")
    length: Annotated[PositiveInt | None, FREE_ON_RESUME] = Field(
        default=None, description="steps of the whole schedule, if not those of the training"
    )

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor of the learning rate in step number `step` (from 0)."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        after = max(1, total_steps - self.warmup_steps)
        return self.shape(min(1.0, (step - self.warmup_steps) / after))

    @abstractmethod
    def shape(self, progress: float) -> float:
        """Return the factor after the warm-up, at `progress` from 0 to 1."""

    @property
    def reads_validation(self) -> bool:
        """Whether the schedule depends on validation losses."""
        return False

    def for_training(self, samples: int, steps_per_epoch: int, total_steps: int) -> ScheduleConfig:
        """Return the schedule adapted to a training.

        Args:
            samples: samples per step, over all processes.
            steps_per_epoch: steps per epoch.
            total_steps: steps of the training.
        """
        return self

    def observe(self, loss: float, memory: dict[str, Any]) -> None:
        """Update the state of the schedule after a validation.

        Args:
            loss: the validation loss.
            memory: state saved in checkpoints, JSON types: `scale`, which multiplies the factor,
                `best` and `bad_epochs`, which start as 1, infinity and 0.
        """


schedules: Kind[type[ScheduleConfig]] = Kind(
    "schedule",
    "learning rate over a training",
    contract="scitoolkit.testing:ScheduleContract",
)
AnySchedule = Annotated[ScheduleConfig, Choice(schedules)]


class Constant(ScheduleConfig):
    """Constant learning rate after the warm-up."""

    name: Literal["constant"] = "constant"

    def shape(self, progress: float) -> float:
        """Return 1."""
        return 1.0


class Cosine(ScheduleConfig):
    """Cosine decay from 1 to `final_factor`.

    Example:
        >>> round(Cosine().factor(50, 100), 3)
        0.5
        >>> Cosine(warmup_steps=9).factor(0, 100)
        0.1
    """

    name: Literal["cosine"] = "cosine"
    final_factor: float = Field(default=0.0, ge=0, le=1)

    def shape(self, progress: float) -> float:
        """Return the factor of the cosine."""
        wave = 0.5 * (1 + math.cos(math.pi * progress))
        return self.final_factor + (1 - self.final_factor) * wave


class Exponential(ScheduleConfig):
    """Exponential decay from 1 to `final_factor`.

    Example:
        >>> stairs = Exponential(final_factor=0.25, hold_steps=2)
        >>> [stairs.factor(step, 4) for step in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    name: Literal["exponential"] = "exponential"
    final_factor: float = Field(default=0.01, gt=0, le=1)
    hold_steps: PositiveInt = Field(default=1, description="steps between changes of the rate")

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor, constant over `hold_steps`."""
        after = step - self.warmup_steps
        held = step - after % self.hold_steps if after > 0 else step
        return super().factor(held, total_steps)

    def shape(self, progress: float) -> float:
        """Return the power of `final_factor`."""
        return self.final_factor**progress


class LEGW(ScheduleConfig):
    """Linear-epoch gradual warm-up: transfers a tuned schedule to another batch size.

    For steps of k times `base_samples` the peak rate is multiplied by sqrt(k), and the warm-up
    lasts k times as many epochs; the schedule after the warm-up is unchanged in epochs.

    Source: You et al. 2019, https://arxiv.org/abs/1901.08256 (linear-epoch gradual warm-up).

    Example:
        >>> schedule = LEGW(base_samples=32, warmup_epochs=0.5).for_training(128, 25, 500)
        >>> schedule.factor(0, 500), schedule.factor(50, 500)
        (0.0392156862745098, 2.0)
    """

    name: Literal["legw"] = "legw"
    base_samples: PositiveInt = Field(description="samples per step for which the rate was tuned")
    warmup_epochs: PositiveFloat = Field(description="epochs of warm-up at `base_samples`")
    after: AnySchedule = Field(default=Cosine(), description="schedule after the warm-up")
    _peak: float = PrivateAttr(default=1.0)

    @model_validator(mode="after")
    def _warms_up_by_epochs(self) -> LEGW:
        if self.warmup_steps or self.after.warmup_steps:
            raise ValueError("warmup_steps follows from warmup_epochs and the batch: remove it")
        return self

    def for_training(self, samples: int, steps_per_epoch: int, total_steps: int) -> ScheduleConfig:
        """Return the schedule for steps of `samples`.

        Raises:
            ConfigError: the warm-up would last more than half of the training.
        """
        ratio = samples / self.base_samples
        warmup = round(self.warmup_epochs * ratio * steps_per_epoch)
        if 2 * warmup > total_steps:
            raise ConfigError(
                f"steps of {samples} samples need {warmup} steps of warm-up, of {total_steps}",
                where="training.schedule",
                allowed="at most half of the training",
                fix="more epochs, a smaller batch, or fewer schedule.warmup_epochs",
            )
        after = self.after.model_copy(update={"warmup_steps": warmup})
        scaled = self.model_copy(update={"after": after})
        scaled._peak = math.sqrt(ratio)
        return scaled

    @property
    def reads_validation(self) -> bool:
        """Whether the schedule after the warm-up depends on validation losses."""
        return self.after.reads_validation

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor of the schedule after the warm-up, times the peak."""
        return self._peak * self.after.factor(step, total_steps)

    def shape(self, progress: float) -> float:
        """Return the factor after the warm-up."""
        return self._peak * self.after.shape(progress)

    def observe(self, loss: float, memory: dict[str, Any]) -> None:
        """Pass the loss to the schedule after the warm-up."""
        self.after.observe(loss, memory)


class Plateau(ScheduleConfig):
    """Decay by a factor after `patience` epochs without a lower validation loss."""

    name: Literal["plateau"] = "plateau"
    decay: float = Field(default=0.5, gt=0, lt=1)
    patience: PositiveInt = 5
    min_factor: float = Field(default=1e-3, ge=0, le=1)

    @property
    def reads_validation(self) -> bool:
        """True: the rate depends on validation losses."""
        return True

    def shape(self, progress: float) -> float:
        """Return 1; `observe` scales the rate."""
        return 1.0

    def observe(self, loss: float, memory: dict[str, Any]) -> None:
        """Lower the scale after `patience` validations without a better loss."""
        if loss < memory["best"]:
            memory["best"], memory["bad_epochs"] = loss, 0
            return
        memory["bad_epochs"] += 1
        if memory["bad_epochs"] >= self.patience:
            memory["scale"] = max(self.min_factor, memory["scale"] * self.decay)
            memory["bad_epochs"] = 0


class LearningRate:
    """Sets the optimizer's learning rate before each step.

    Example:
        >>> from torch import nn
        >>> from scitoolkit.training.optim import SGD
        >>> optimizer = SGD(lr=1.0).build(nn.Linear(1, 1).parameters())
        >>> rate = LearningRate(Exponential(final_factor=0.25), optimizer, total_steps=2)
        >>> [rate.apply(step) for step in range(3)]
        [1.0, 0.5, 0.25]
    """

    def __init__(self, schedule: ScheduleConfig, optimizer: Optimizer, total_steps: int) -> None:
        self._schedule, self._optimizer = schedule, optimizer
        self._total_steps = schedule.length or total_steps
        self._base = [float(group["lr"]) for group in optimizer.param_groups]
        self._memory: dict[str, Any] = {"scale": 1.0, "best": math.inf, "bad_epochs": 0}
        self._last = 1.0

    def apply(self, step: int) -> float:
        """Set the rate of step number `step` (from 0) and return that of the first group."""
        factor = self._memory["scale"] * self._schedule.factor(step, self._total_steps)
        if factor != self._last:
            for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
                group["lr"] = base * factor
            self._last = factor
        return self._base[0] * factor

    def changes_with(self, total_steps: int) -> bool:
        """Return whether a training of another length has other rates up to its end.

        Without `length` a schedule may read the length of the training.
        """
        if self._schedule.length is not None:
            return False
        steps = range(0, max(total_steps, self._total_steps), max(1, total_steps // 256))
        rate = self._schedule.factor
        return any(rate(k, total_steps) != rate(k, self._total_steps) for k in steps)

    def see_validation(self, loss: float) -> None:
        """Pass the validation loss of an epoch to the schedule."""
        self._schedule.observe(loss, self._memory)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule (JSON types)."""
        return dict(self._memory)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._memory = dict(state)
        self._memory["scale"], self._memory["best"] = float(state["scale"]), float(state["best"])
        self._memory["bad_epochs"] = int(state["bad_epochs"])
        self._last = math.nan  # the next `apply` sets the rate whatever it is
