"""Contract suite of learning-rate schedules, to inherit in tests.

Example:
    class TestMySchedule(ScheduleContract):
        @pytest.fixture
        def schedule(self):
            return MySchedule()
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.testing.member import check_registered, check_settings
from scitoolkit.training.optim import SGD
from scitoolkit.training.optim.schedules import LearningRate, ScheduleConfig, schedules

SAMPLES, STEPS_PER_EPOCH, STEPS = 64, 10, 100
WARMUP = 7


class ScheduleContract:
    """Contract suite of schedules; override the fixture `schedule`.

    The schedule must support trainings of 10 epochs of 10 steps of 64 samples.
    """

    @pytest.fixture
    def schedule(self) -> ScheduleConfig:
        """Return the configuration of the schedule under test."""
        raise NotImplementedError("override the fixture `schedule`")

    def test_registered_under_its_name(self, schedule: ScheduleConfig) -> None:
        """The registry returns this class; unknown keys are refused."""
        check_registered(schedules, schedule)
        check_settings(schedule)

    @pytest.mark.parametrize("steps", [1, 2, STEPS])
    def test_factors_are_finite_and_some_are_positive(
        self, schedule: ScheduleConfig, steps: int
    ) -> None:
        """No factor is negative, the first is positive, also in trainings of one step."""
        adapted = _adapted(schedule)
        factors = [adapted.factor(step, steps) for step in range(steps + 1)]
        assert all(math.isfinite(factor) and factor >= 0 for factor in factors)
        assert factors[0] > 0

    def test_a_factor_depends_on_the_step_alone(self, schedule: ScheduleConfig) -> None:
        """Factors are equal in any order of the steps, and for a new schedule in each step."""
        expected = _factors(_adapted(schedule), range(STEPS))
        adapted = _adapted(schedule)
        backward = _factors(adapted, reversed(range(STEPS)))
        assert backward[::-1] == expected == _factors(adapted, range(STEPS))
        resumed = [_adapted(schedule).factor(step, STEPS) for step in range(STEPS)]
        assert resumed == expected

    def test_the_given_schedule_is_not_changed(self, schedule: ScheduleConfig) -> None:
        """`for_training` leaves the configuration of other trainings unchanged."""
        before = schedule.model_dump(), _factors(schedule, range(STEPS))
        schedule.for_training(SAMPLES, STEPS_PER_EPOCH, STEPS)
        assert (schedule.model_dump(), _factors(schedule, range(STEPS))) == before

    def test_a_warm_up_is_linear_or_refused(self, schedule: ScheduleConfig) -> None:
        """After `warmup_steps` the schedule follows as without them, over the remaining steps."""
        settings = schedule.model_dump()
        try:
            warm, plain = (
                type(schedule)(**{**settings, "warmup_steps": steps}) for steps in (WARMUP, 0)
            )
        except ConfigError:
            return
        factors = [warm.factor(step, WARMUP + STEPS) for step in range(WARMUP + STEPS)]
        assert factors[WARMUP:] == pytest.approx(_factors(plain, range(STEPS)), rel=1e-9)
        line = [factors[WARMUP] * (step + 1) / (WARMUP + 1) for step in range(WARMUP)]
        assert factors[:WARMUP] == pytest.approx(line, rel=1e-9)

    @pytest.mark.parametrize("epoch", [1, 4, 7, 9])
    def test_validation_losses_change_only_the_saved_state(
        self, schedule: ScheduleConfig, epoch: int
    ) -> None:
        """A resumed training has the same rates; losses have an effect with `reads_validation`."""
        whole, losses = _rate(schedule), [1.0, 0.5, *[0.5] * 28]
        started = whole.state_dict()
        half = _rate(schedule)
        for number, loss in enumerate(losses):
            if number == epoch:
                state = json.loads(json.dumps(whole.state_dict()))
                half = _rate(schedule)
                half.load_state_dict(state)
            for rate in (whole, half) if number >= epoch else (whole,):
                rate.see_validation(loss)
            if number >= epoch:
                assert half.apply(number) == whole.apply(number)
        assert schedule.reads_validation == (whole.state_dict() != started)
        assert schedule.reads_validation == (whole.apply(5) != _rate(schedule).apply(5))


def _adapted(schedule: ScheduleConfig) -> ScheduleConfig:
    """Return a new schedule of the same settings, adapted to the training of the suite."""
    new = type(schedule).model_validate(schedule.model_dump())
    return new.for_training(SAMPLES, STEPS_PER_EPOCH, STEPS)


def _factors(schedule: ScheduleConfig, steps: Iterable[int]) -> list[float]:
    return [schedule.factor(step, STEPS) for step in steps]


def _rate(schedule: ScheduleConfig) -> LearningRate:
    optimizer: Any = SGD(lr=1.0).build(nn.Linear(1, 1).parameters())
    return LearningRate(_adapted(schedule), optimizer, STEPS)
