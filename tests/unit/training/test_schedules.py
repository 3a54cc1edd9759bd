from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from scitoolkit.training.optim import SGD
from scitoolkit.training.optim.schedules import (
    Constant,
    Cosine,
    Exponential,
    LearningRate,
    Plateau,
)


def optimizer():
    return SGD(lr=0.2).build(nn.Linear(1, 1).parameters())


@given(st.integers(0, 20), st.integers(30, 200), st.sampled_from([Constant, Cosine, Exponential]))
def test_warm_up_is_linear_and_nothing_jumps(warmup, total, kind):
    schedule = kind(warmup_steps=warmup)
    factors = [schedule.factor(step, total) for step in range(total + 1)]
    assert factors[:warmup] == pytest.approx([(k + 1) / (warmup + 1) for k in range(warmup)])
    assert factors[warmup] == 1.0
    assert all(a >= b for a, b in zip(factors[warmup:], factors[warmup + 1 :], strict=False))
    assert factors[-1] == pytest.approx({Constant: 1.0, Cosine: 0.0, Exponential: 0.01}[kind])


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


def test_plateaus_memory_survives_a_resume():
    whole = LearningRate(Plateau(patience=2), optimizer(), 100)
    for loss in (1.0, 1.0):
        whole.see_validation(loss)
    half = LearningRate(Plateau(patience=2), optimizer(), 100)
    half.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for rate in (whole, half):
        rate.see_validation(1.0)
    assert half.apply(7) == whole.apply(7) == 0.1
