"""Conservation laws by finite volumes: waves, shocks, walls, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.conservation_laws import ConservationLawsGenerator
from scitoolkit.generators.conserved_problems import PROBLEMS
from scitoolkit.testing import GeneratorContract

WATER = {
    "equations": ["dif(h,t) + dif(m,x) = 0", "dif(m,t) + dif(m**2/h + h**2/2,x) = 0"],
    "speeds": {"x": "abs(m/h) + sqrt(h)"},
    "walls": {"x": {"h": "slope", "m": "value"}},
    "initial": {"h": "1 + 0.001*cos(pi*x)"},
    "length": 1.0,
    "cells": 64,
    "time_step": 0.005,
    "interval": 100,
    "frames": 4,
}


class TestConservationLaws(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return ConservationLawsGenerator(problem="burgers_inviscid", cells=32, frames=3, interval=2)


class TestConservationLawsOfFourFieldsInTwoDims(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return ConservationLawsGenerator(problem="gas_2d", cells=16, frames=2, interval=2)


def solved(**settings):
    return ConservationLawsGenerator(**settings).sample({}, 0).frames


def rms(values) -> float:
    return float(np.sqrt(np.mean(np.asarray(values) ** 2)))


def test_a_wave_moves_with_an_error_of_second_order():
    errors = []
    for cells in (32, 64, 128):
        frames = solved(
            equations="dif(u,t) + dif(speed*u,x) = 0",
            constants={"speed": 1.0},
            initial={"u": "sin(x)"},
            cells=cells,
            time_step=0.02,
            interval=100,
            frames=1,
            tolerance=1.0,
        )
        width = 2 * np.pi / cells
        average = np.sin(frames.x - 2.0) * np.sin(width / 2) / (width / 2)
        errors.append(rms(frames.u[0] - average))
    assert errors[0] < 0.03
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


@pytest.mark.parametrize(
    ("flux", "left", "right", "speed"),
    [("u**2/2", 2.0, 0.0, 1.0), ("u**2/2", 1.0, -0.5, 0.25), ("u**3/3", 1.0, 0.0, 1 / 3)],
)
def test_shocks_move_as_the_fluxes_at_both_sides_tell(flux, left, right, speed):
    mean, half = (left + right) / 2, (left - right) / 2
    made = ConservationLawsGenerator(
        equations=f"dif(u,t) + dif({flux},x) = 0",
        initial={"u": f"{mean} - {half}*tanh(1e6*(x - 1))"},
        open=["x"],
        length=4.0,
        cells=200,
        time_step=0.004,
        interval=250,
        frames=2,
    ).sample({}, 0)
    for frame in made.frames.u:
        place = 1 + speed * float(frame.time)
        behind, before = frame.sel(x=slice(0, place - 0.1)), frame.sel(x=slice(place + 0.1, 4))
        np.testing.assert_allclose(behind, left, atol=1e-3)
        np.testing.assert_allclose(before, right, atol=1e-3)
        assert float(frame.sum() * 0.02) == pytest.approx(
            left * place + right * (4 - place), abs=1e-2
        )


def test_the_shock_tube_has_the_states_between_its_waves():
    """Sod's problem: values of the exact solution of the Riemann problem."""
    made = ConservationLawsGenerator(problem="shock_tube").sample({}, 0)
    last = made.frames.isel(time=-1)
    time = float(last.time)
    assert time == pytest.approx(0.2)
    for low, high, density in ((0.05, 0.2, 1.0), (0.52, 0.65, 0.42632), (0.72, 0.82, 0.26557)):
        part = last.density.sel(x=slice(low, high))
        np.testing.assert_allclose(part, density, rtol=0.01)
    velocity = (last.m_x / last.density).sel(x=slice(0.55, 0.8))
    np.testing.assert_allclose(velocity, 0.92745, rtol=0.01)
    front = float(last.x[last.density > (0.26557 + 0.125) / 2][-1])
    assert front == pytest.approx(0.5 + 1.75216 * time, abs=0.005)
    assert not made.missed
    assert made.invariants == {}


def test_water_between_walls_swings_at_its_period():
    made = ConservationLawsGenerator(**WATER).sample({}, 0)
    height = made.frames.h - 1
    wave = 0.001 * np.cos(np.pi * made.frames.x)
    for number, time in enumerate(made.frames.time.values):
        expected = np.cos(np.pi * time) * wave
        assert rms(height[number] - expected) < 0.03 * rms(wave)
    assert set(made.invariants) == {"mean_h"}
    assert made.invariants["mean_h"] < 1e-13


def test_speeds_that_are_not_stated_are_those_of_the_fluxes():
    stated = solved(**WATER)
    own = solved(**{**WATER, "speeds": {}})
    np.testing.assert_allclose(own.h, stated.h, atol=1e-7)


def test_second_derivatives_and_sources_are_those_of_the_equation():
    frames = solved(
        dims=["x", "y"],
        equations="dif(u,t) = 0.1*(dif(u,x,x) + dif(u,y,2)) + 0.1*dif(u,x,y) - r*u + sin(x)*0",
        constants={"r": 0.5},
        initial={"u": "sin(x + y)"},
        cells=48,
        time_step=0.02,
        interval=50,
        frames=1,
    )
    expected = np.exp(-0.8) * np.sin(frames.x + frames.y)
    assert rms(frames.u[0] - expected) < 0.005 * rms(expected)


def test_coordinates_in_fluxes_and_sources():
    """A steady state of u_t + ((2 + sin x) u)_x = cos x: u = 1."""
    frames = solved(
        equations="dif(u,t) + dif((2 + sin(x))*u,x) = cos(x)",
        initial={"u": "1"},
        cells=64,
        time_step=0.01,
        frames=5,
    )
    np.testing.assert_allclose(frames.u, 1, atol=2e-3)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_defaults_of_problems_are_resolved(problem):
    short = {"frames": 3} if len(PROBLEMS[problem].get("dims", "x")) > 1 else {}
    made = ConservationLawsGenerator(**{"problem": problem, **short}).sample({}, 5)
    assert not made.missed
    assert made.accuracy.error < 0.05


def test_shocks_on_few_cells_are_marked():
    made = ConservationLawsGenerator(problem="shock_tube", cells=64, time_step=2e-3, interval=10)
    assert any(text.startswith("error") for text in made.sample({}, 0).missed)


def test_constants_are_drawn():
    drawn = ConservationLawsGenerator(problem="shock_tube").with_parameters({"gamma": 1.6})
    assert drawn.value_of("gamma") == 1.6
    assert drawn.value_of("length") == 1.0
    with pytest.raises(ConfigError, match="not a parameter"):
        drawn.with_parameters({"nu": 1.0})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"equations": "dif(u,t) + u*dif(u,x) = 0"}, "constants times dif"),
        ({"equations": "dif(u,t) = dif(u,x,3)"}, "constants times dif"),
        ({"equations": "dif(u,t) = dif(u*dif(u,x),x)"}, "a derivative inside another"),
        ({"equations": "dif(u,t) = dif(x*u,x,x)"}, "has coordinates"),
        ({"equations": "dif(u,t) = t*u"}, "depends on time"),
        ({"equations": "u*dif(u,t) = dif(u,x)"}, "constant factor"),
        ({"equations": "dif(u,t) = dif(w,x)"}, "unknown name 'w'"),
        ({"equations": "u = 1"}, "unknown name 'u'"),
        ({"problem": "gas_4d"}, "no problem 'gas_4d'"),
        ({"amplitude": {"v": 1.0}}, "amplitude: v"),
        ({"amplitude": {}}, "no initial state"),
        ({"walls": {"y": {"u": "value"}}}, "walls.y"),
        ({"open": ["y"]}, "open: y"),
        ({"speeds": {"y": "1"}}, "speeds.y"),
        ({"constants": {"x": 1.0}}, "distinct names"),
    ],
)
def test_what_is_no_conservation_law_is_refused(settings, told):
    plain = {
        "equations": "dif(u,t) + dif(u**2/2,x) = 0",
        "amplitude": {"u": 1.0},
        "time_step": 0.01,
    }
    with pytest.raises((ConfigError, ValueError), match=told):
        ConservationLawsGenerator(**{**plain, **settings})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"time_step": 0.02}, "half a cell"),
        ({"speeds": {"x": "sqrt(h)/2"}}, "faster than stated"),
        ({"walls": {"x": {"h": "slope", "m": "slope"}}}, "symmetry of the walls"),
        ({"initial": {"h": "1/(x - x)"}}, "division by zero|not finite"),
        ({"initial": {"h": "-1 + 0.1*x"}, "speeds": {}}, "no real speed"),
    ],
)
def test_states_that_cannot_be_computed_are_refused(settings, told):
    with pytest.raises((NumericalError, ConfigError, ValueError), match=told):
        ConservationLawsGenerator(**{**WATER, **settings}).sample({}, 0)
