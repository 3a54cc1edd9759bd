from __future__ import annotations

import math

import pytest
from torch import nn

from scitoolkit.testing import ScheduleContract
from scitoolkit.training.optim import SGD
from scitoolkit.training.optim.schedules import (
    LEGW,
    Cosine,
    Exponential,
    LearningRate,
    Plateau,
    schedules,
)


class TestSchedules(ScheduleContract):
    @pytest.fixture(params=[*(n for n in schedules if n != "legw"), "legw", "legw of plateau"])
    def schedule(self, request):
        if request.param.startswith("legw"):
            after = {"after": Plateau()} if "of" in request.param else {}
            return LEGW(base_samples=32, warmup_epochs=0.5, **after)
        return schedules.get(request.param)()


def optimizer():
    return SGD(lr=0.2).build(nn.Linear(1, 1).parameters())


def test_cosine_and_exponential_follow_their_formulas():
    cosine, exponential = Cosine(final_factor=0.1), Exponential(final_factor=0.01)
    for step in (0, 13, 50, 99):
        wave = 0.5 * (1 + math.cos(math.pi * step / 100))
        assert cosine.factor(step, 100) == pytest.approx(0.1 + 0.9 * wave)
        assert exponential.factor(step, 100) == pytest.approx(0.01 ** (step / 100))


def test_the_rate_reaches_every_group_of_the_optimizer():
    one = optimizer()
    one.add_param_group({"params": nn.Linear(1, 1).parameters(), "lr": 0.05})
    rate = LearningRate(Cosine(), one, total_steps=10)
    assert rate.apply(5) == pytest.approx(0.1)
    assert [group["lr"] for group in one.param_groups] == pytest.approx([0.1, 0.025])


def test_plateau_waits_decays_and_stops_at_its_floor():
    rate = LearningRate(Plateau(decay=0.1, patience=2, min_factor=0.05), optimizer(), 100)
    found = []
    for loss in (1.0, 0.9, 0.9, 0.95, 0.8, 0.8, 0.8, 0.8, 0.8):
        rate.see_validation(loss)
        found.append(round(rate.apply(0) / 0.2, 6))
    assert found == [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
