from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.draw import DrawConfig, Prior
from scitoolkit.core.errors import ConfigError
from scitoolkit.generators.config import GenerateConfig


def test_sobol_points_fill_the_box_and_more_samples_begin_the_same():
    priors = {"a": Prior(low=-1, high=3), "b": Prior(low=1, high=100, distribution="log_uniform")}
    few, many = (DrawConfig(samples=n, parameters=priors).draw() for n in (12, 64))
    assert many[:12] == few
    a, b = (np.array([v[key] for v in many]) for key in "ab")
    assert np.bincount(((a + 1) / 4 * 8).astype(int), minlength=8).tolist() == [8] * 8
    assert np.bincount((np.log10(b) / 2 * 8).astype(int), minlength=8).tolist() == [8] * 8


def test_a_normal_prior_stays_within_its_ends():
    prior = Prior(distribution="normal", mean=1.0, std=2.0, low=0.5, high=4.0)
    values = np.array([prior.value(q) for q in np.linspace(0, 1, 101)])
    assert values[0] == pytest.approx(0.5)
    assert values[-1] == pytest.approx(4.0)
    assert (np.diff(values) > 0).all()


def test_a_grid_has_its_ends_and_needs_the_right_number():
    priors = {"a": Prior(low=0, high=1), "b": [5.0, 7.0]}
    drawn = DrawConfig(method="grid", samples=6, parameters=priors).draw()
    assert [(v["a"], v["b"]) for v in drawn] == [
        (a, b) for a in (0.0, 0.5, 1.0) for b in (5.0, 7.0)
    ]
    with pytest.raises(ConfigError, match="nearest is 8"):
        DrawConfig(method="grid", samples=7, parameters=priors)


def test_random_draws_depend_on_the_seed_only():
    priors = {"a": Prior(low=0, high=1)}
    one, same, other = (
        DrawConfig(method="random", samples=4, parameters=priors).draw(s) for s in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 2, "high": 1}, "not below"),
        ({"low": 0, "high": 1, "distribution": "log_uniform"}, "positive"),
        ({"low": 0, "high": float("inf")}, "not below"),
        ({"low": 0, "high": 1, "std": 2}, "not used"),
    ],
)
def test_unusable_priors_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Prior(**settings)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"length": {"low": -1, "high": 3}}, "greater than 0"),
        ({"lenght": {"low": 1, "high": 3}}, "length"),
        ({"cells": {"low": 16, "high": 32}}, "not a parameter"),
    ],
)
def test_priors_beyond_the_equations_are_refused_before_anything_runs(parameters, message):
    with pytest.raises(ConfigError, match=message):
        GenerateConfig(generator={"name": "kuramoto_sivashinsky"}, draw={"parameters": parameters})
