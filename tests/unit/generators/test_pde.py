"""Equations by text against exact solutions and the other generators."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.gray_scott import GrayScott
from scitoolkit.generators.kuramoto_sivashinsky import KuramotoSivashinsky
from scitoolkit.generators.pde import EquationsGenerator
from scitoolkit.generators.pde_problems import PROBLEMS
from scitoolkit.testing import GeneratorContract

TURN = 2 * np.pi


class TestPde(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return EquationsGenerator(problem="burgers", cells=64, spinup=1, frames=3, interval=2)


class TestPdeOfTwoFieldsInTwoDims(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return EquationsGenerator(problem="navier_stokes", cells=16, spinup=0, frames=3)


def last(**settings: object) -> tuple[np.ndarray, np.ndarray, float]:
    """Return x, the last frame of the first field and its time."""
    frames = EquationsGenerator(**{"spinup": 0, **settings}).sample({}, 0).frames
    field = next(iter(frames.data_vars))
    return frames["x"].values, frames[field].values[-1], float(frames["time"][-1])


def test_advection_moves_the_initial_state():
    x, u, t = last(problem="advection", initial={"u": "exp(sin(x))"}, constants={"speed": 0.7})
    np.testing.assert_allclose(u, np.exp(np.sin(x - 0.7 * t)), atol=1e-6)


def test_diffusion_with_dispersion_damps_and_moves_each_wave():
    equation = "dif(u,t) = nu*dif(u,x,x) + c*dif(u,x,3)"
    x, u, t = last(equations=equation, constants={"nu": 0.1, "c": 0.3}, initial={"u": "sin(2*x)"})
    exact = np.exp(-0.4 * t) * np.sin(2 * x - 8 * 0.3 * t)
    np.testing.assert_allclose(u, exact, atol=1e-6)


@pytest.mark.parametrize("nu", [0.05, 0.3])
def test_burgers_is_the_solution_of_cole_and_hopf(nu):
    """phi = 1 + a exp(-nu t) cos x solves the heat equation, and u = -2 nu phi_x / phi Burgers."""
    x, u, t = last(
        problem="burgers",
        constants={"nu": nu},
        initial={"u": "2*nu*0.8*sin(x)/(1 + 0.8*cos(x))"},
        frames=20,
    )
    decay = 0.8 * np.exp(-nu * t)
    np.testing.assert_allclose(u, 2 * nu * decay * np.sin(x) / (1 + decay * np.cos(x)), atol=1e-6)


def test_a_soliton_of_kdv_keeps_its_shape():
    speed = 1.5
    x, u, t = last(
        problem="kdv",
        length=40.0,
        cells=256,
        constants={"c": speed},
        initial={"u": "c/2/cosh(sqrt(c)/2*(x - 15))**2"},
    )
    exact = speed / 2 / np.cosh(math.sqrt(speed) / 2 * (x - 15 - speed * t)) ** 2
    np.testing.assert_allclose(u, exact, atol=2e-5)


def test_a_soliton_of_the_schroedinger_equation_turns_its_phase():
    frames = (
        EquationsGenerator(
            problem="nonlinear_schroedinger",
            initial={"a": "1/cosh(x - 10)"},
            amplitude={},
            spinup=0,
            frames=20,
        )
        .sample({}, 0)
        .frames.isel(time=-1)
    )
    exact = np.exp(0.5j * float(frames["time"])) / np.cosh(frames["x"].values - 10)
    np.testing.assert_allclose(frames["a"].values + 1j * frames["b"].values, exact, atol=2e-4)


def test_uniform_states_follow_the_ordinary_equations():
    _, u, t = last(problem="fisher_kpp", initial={"u": "0.1"}, constants={"r": 2.0}, cells=16)
    np.testing.assert_allclose(u, 1 / (1 + 9 * np.exp(-2 * t)), rtol=1e-6)
    _, u, t = last(problem="allen_cahn", initial={"u": "0.1"}, amplitude={}, cells=16)
    np.testing.assert_allclose(u, 1 / np.sqrt(1 + 99 * np.exp(-2 * t)), rtol=1e-6)


def test_small_waves_of_swift_hohenberg_grow_at_their_rate():
    settings = {"amplitude": {}, "initial": {"u": "1e-4*cos(x)*cos(x) - 5e-5"}, "frames": 5}
    x, u, t = last(problem="swift_hohenberg", **settings)
    rate = 0.3 - (1 - 4) ** 2
    np.testing.assert_allclose(u[:, 0], 5e-5 * np.cos(2 * x) * np.exp(rate * t), atol=1e-9)


def test_a_taylor_green_vortex_decays_at_its_rate():
    _, w, t = last(
        problem="navier_stokes", initial={"w": "2*cos(2*x)*cos(3*y)"}, amplitude={}, cells=32
    )
    x = TURN * np.arange(32) / 32
    exact = 2 * np.cos(2 * x)[:, None] * np.cos(3 * x) * np.exp(-0.02 * 13 * t)
    np.testing.assert_allclose(w, exact, atol=1e-6)


def test_in_three_dims_waves_move_and_decay():
    equation = "dif(u,t) + dif(u,x) - 2*dif(u,z) = 0.1*(dif(u,x,x) + dif(u,y,y) + dif(u,z,z))"
    frames = EquationsGenerator(
        equations=equation,
        dims=["x", "y", "z"],
        cells=16,
        initial={"u": "sin(x)*cos(y)*sin(z)"},
        spinup=0,
        frames=2,
    ).sample({}, 0)
    t, x = float(frames.frames["time"][-1]), TURN * np.arange(16) / 16
    moved = np.sin(x - t)[:, None, None] * np.cos(x)[:, None] * np.sin(x + 2 * t)
    np.testing.assert_allclose(frames.frames["u"].values[-1], moved * np.exp(-0.3 * t), atol=1e-6)
    assert frames.accuracy.error < 1e-12


def test_the_chaos_is_that_of_the_solver_by_hand():
    mine = EquationsGenerator(problem="kuramoto_sivashinsky")
    other = KuramotoSivashinsky()
    state = other.start(3)
    mine_step, other_step, own = mine.stepper(), other.stepper(), state
    for _ in range(40):
        state, own = other_step(state), mine_step(own)
    np.testing.assert_allclose(own, state, atol=1e-9 * np.abs(state).max())


def test_the_pattern_is_that_of_the_solver_by_hand():
    other = GrayScott(cells=192)
    mine = EquationsGenerator(problem="gray_scott")
    state = own = other.start(0)
    mine_step, other_step = mine.stepper(), other.stepper()
    for _ in range(20):
        state, own = other_step(state), mine_step(own)
    a, b = mine.points(own), other.points(state)
    assert np.abs(a - b).max() < 2e-3 * np.abs(b).max()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_defaults_of_every_problem_are_resolved(problem):
    short = {"frames": 3, "spinup": 2} if "chaotic" not in PROBLEMS[problem] else {}
    sample = EquationsGenerator(**{"problem": problem, **short}).sample({}, 5)
    assert not sample.missed
    assert sample.accuracy.error < 0.02


def test_a_front_thinner_than_the_grid_is_marked():
    made = EquationsGenerator(problem="burgers", constants={"nu": 5e-4}, cells=64).sample({}, 0)
    assert any("not resolved" in text for text in made.missed)
    assert made.accuracy.error > 0.1


def test_the_mean_of_a_field_that_exchanges_with_another_is_not_conserved():
    made = EquationsGenerator(
        equations=["dif(u,t) = v - u", "dif(v,t) = u - v + 0.1*dif(v,x,x) - 0*u"],
        initial={"u": "2 + sin(x)", "v": "1"},
        cells=16,
    )
    assert made.invariant_bounds() == {}
    assert not made.sample({}, 0).missed


def test_random_states_are_the_same_on_every_grid():
    coarse, fine = (EquationsGenerator(problem="burgers", cells=n).start(4) for n in (32, 96))
    np.testing.assert_allclose(fine[:10] / 3, coarse[:10], atol=1e-12)


def test_constants_are_drawn_and_stored(tmp_path):
    generator = EquationsGenerator(problem="burgers", cells=32, frames=2, spinup=0)
    drawn = generator.with_parameters({"nu": 0.2, "length": 3.0})
    assert drawn.value_of("nu") == 0.2
    sample = drawn.sample({}, 1)
    drawn.write(sample, drawn.origin(sample, 1, {}), tmp_path / "a.nc")
    frames, origin = drawn.read(tmp_path / "a.nc")
    assert frames.attrs["nu"] == 0.2
    assert frames.attrs["accuracy_error"] == origin.accuracy["error"]
    with pytest.raises(ConfigError, match="nux"):
        generator.with_parameters({"nux": 1.0})


@pytest.mark.parametrize(
    ("equations", "message"),
    [
        ("dif(u,t,t) = dif(u,x,x)", "single first derivative"),
        ("u*dif(u,t) = dif(u,x,x)", "single first derivative"),
        ("dif(u,t)**2 = dif(u,x,x)", "derivative"),
        ("dif(u,t) = dif(u,x,x) + sin(t)", "depends on time"),
        ("dif(u,t) = dif(v,x)", "no equation for v"),
        ("dif(u,t) = v; v*dif(v,x,x) = u", "not linear in v"),
        ("dif(u,x,x) = u", "no equation with"),
        ("dif(u,t) = nu*dif(u,x,x)", "nu"),
        ("dif(u,t) = dif(u,y)", "y"),
        ("dif(u,t) = u +", "equation"),
        ("dif(u,t) = u; dif(u,t) = -u", "single first derivative"),
    ],
)
def test_equations_that_cannot_be_solved_are_refused_by_name(equations, message):
    with pytest.raises(ConfigError, match=message):
        EquationsGenerator(equations=equations)


@pytest.mark.parametrize(
    "settings",
    [
        {"equations": "dif(u,t) = u", "dims": ["x", "x"]},
        {"equations": "dif(u,t) = u", "dims": ["t"]},
        {"equations": "dif(time,t) = time"},
        {"equations": "dif(u,t) = e*u", "constants": {"e": 1.0, "x": 2.0}},
    ],
)
def test_names_that_clash_are_refused(settings):
    with pytest.raises(ConfigError, match="name"):
        EquationsGenerator(**settings)


def test_roots_of_negative_states_and_poles_at_the_start_are_refused():
    positive = {"u": "2 + sin(x)"}
    settings = {"equations": "dif(u,t) = u**1.5", "time_step": 1e-3, "frames": 2}
    assert EquationsGenerator(**settings, initial=positive).sample({}, 0).accuracy.error < 1e-6
    with pytest.raises(NumericalError, match="not finite"):
        EquationsGenerator(**settings, initial={"u": "sin(x)"}).sample({}, 0)
    with pytest.raises(NumericalError, match="initial state of u"):
        EquationsGenerator(**settings, initial={"u": "1/x"}).sample({}, 0)


def test_other_names_and_unstable_equations_are_refused():
    with pytest.raises(ConfigError, match="burgers"):
        EquationsGenerator(problem="burger")
    with pytest.raises(ConfigError, match="not an evolving field"):
        EquationsGenerator(problem="navier_stokes", initial={"psi": "sin(x)"})
    with pytest.raises(ConfigError, match="q"):
        EquationsGenerator(problem="burgers", initial={"u": "sin(q)"})
    with pytest.raises(NumericalError, match="not finite"):
        EquationsGenerator(equations="dif(u,t) = -dif(u,x,x)", frames=500).sample({}, 0)


class TestPdeBetweenWalls(GeneratorContract):
    @pytest.fixture
    def generator(self):
        walls = {"y": {"w": "value"}}
        return EquationsGenerator(
            problem="navier_stokes", cells=16, spinup=0, frames=3, walls=walls, longest=2
        )


HEAT = {"problem": "diffusion", "length": 2.0, "constants": {"nu": 0.05, "k": np.pi / 2}}


@pytest.mark.parametrize("cells", [16, 32])
def test_heat_between_cold_and_between_insulated_walls(cells):
    walls = {"x": {"u": "value"}}
    x, u, t = last(**HEAT, cells=cells, walls=walls, initial={"u": "sin(k*x) - 0.5*sin(3*k*x)"})
    k, decay = np.pi / 2, np.exp(-0.05 * (np.pi / 2) ** 2 * t)
    assert (x[0], x[-1], x.size) == (0, 2, cells + 1)
    exact = decay * np.sin(k * x) - 0.5 * decay**9 * np.sin(3 * k * x)
    np.testing.assert_allclose(u, exact, atol=1e-7)
    walls = {"x": {"u": "slope"}}
    x, u, t = last(**HEAT, cells=cells, walls=walls, initial={"u": "3 + cos(k*x)"})
    np.testing.assert_allclose(u, 3 + decay * np.cos(k * x), atol=3e-7)


def test_burgers_between_walls_is_the_solution_of_cole_and_hopf_and_converges_with_the_cells():
    nu, errors = 0.05, []
    for cells in (16, 24, 32, 48):
        x, u, t = last(
            problem="burgers",
            length=np.pi,
            cells=cells,
            walls={"x": {"u": "value"}},
            constants={"nu": nu},
            initial={"u": "2*nu*0.8*sin(x)/(1 + 0.8*cos(x))"},
            frames=4,
        )
        decay = 0.8 * np.exp(-nu * t)
        exact = 2 * nu * decay * np.sin(x) / (1 + decay * np.cos(x))
        errors.append(np.abs(u - exact).max() / np.abs(exact).max())
    # Faster than any power: each 8 or 16 cells more divide the error by the same factor.
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 10
    assert errors[3] < 1e-6


def test_four_steps_of_half_the_size_have_a_sixteenth_of_the_error_between_walls():
    nu, errors = 0.5, []
    for step in (0.1, 0.05):
        _, u, _ = last(
            problem="burgers",
            length=np.pi,
            cells=64,
            time_step=step,
            interval=round(1 / step),
            walls={"x": {"u": "value"}},
            constants={"nu": nu},
            initial={"u": "3*sin(x)"},
            frames=1,
        )
        errors.append(u)
    _, fine, _ = last(
        problem="burgers",
        length=np.pi,
        cells=64,
        time_step=0.0125,
        interval=80,
        walls={"x": {"u": "value"}},
        constants={"nu": nu},
        initial={"u": "3*sin(x)"},
        frames=1,
    )
    coarse, half = (np.abs(u - fine).max() for u in errors)
    assert 10 < coarse / half < 30


def test_a_vortex_between_walls_in_y_and_periodic_in_x_decays_at_its_rate():
    frames = EquationsGenerator(
        problem="navier_stokes",
        cells=32,
        walls={"y": {"w": "value"}},
        initial={"w": "2*cos(x)*sin(1.5*y)"},
        amplitude={},
        spinup=0,
        frames=5,
    )
    sample = frames.sample({}, 0)
    w, t = sample.frames["w"].values[-1], float(sample.frames["time"][-1])
    x, y = TURN * np.arange(32) / 32, TURN * np.arange(33) / 32
    exact = 2 * np.cos(x)[:, None] * np.sin(1.5 * y) * np.exp(-0.02 * 3.25 * t)
    np.testing.assert_allclose(w, exact, atol=1e-6)
    assert sample.frames["y"].attrs.get("period") is None
    assert sample.frames["x"].attrs["period"] == pytest.approx(TURN)


def test_random_states_between_walls_have_their_symmetry_and_state_their_error():
    walls = {"x": {"u": "slope"}}
    settings = {"equations": "dif(u,t) = 0.1*dif(u,x,x) + u - u**3", "walls": walls, "cells": 64}
    made = EquationsGenerator(**settings, spinup=0, frames=5).sample({}, 3)
    u, step = made.frames["u"].values, TURN / 64
    slopes = np.abs(np.array([-3, 4, -1]) @ u[:, :3].T / (2 * step))
    assert slopes.max() < 0.02 * np.abs(np.gradient(u, step, axis=1)).max()
    assert not made.missed
    assert made.accuracy.error < 1e-4
    wall = EquationsGenerator(problem="burgers", walls={"x": {"u": "value"}}, cells=64)
    assert wall.invariant_bounds() == {}
    assert EquationsGenerator(**HEAT, walls=walls).invariant_bounds() == {"mean_u": 1e-8}
    thin = {"problem": "burgers", "walls": {"x": {"u": "value"}}, "constants": {"nu": 5e-4}}
    missed = EquationsGenerator(**thin, cells=64, spinup=0).sample({}, 0).missed
    assert any("not resolved" in text for text in missed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problem": "advection", "walls": {"x": {"u": "value"}}}, "symmetry of the walls"),
        ({"problem": "burgers", "walls": {"x": {"u": "slope"}}}, "symmetry of the walls"),
        ({"problem": "kdv", "walls": {"x": {"u": "value"}}}, "symmetry of the walls"),
        (  # zero for the first wave between the walls with an rms of 1
            {
                "equations": "dif(u,t) = dif(u,x,x) + dif(u,x)**2 + k**2*u**2 - 2*k**2",
                "constants": {"k": np.pi},
                "length": 1.0,
                "walls": {"x": {"u": "value"}},
            },
            "symmetry of the walls",
        ),
        ({"problem": "burgers", "walls": {"y": {"u": "value"}}}, "allowed: dims x"),
        ({"problem": "burgers", "walls": {"x": {"v": "value"}}}, "value or slope of u"),
        ({"problem": "gray_scott", "walls": {"x": {"a": "slope"}}}, "value or slope of a, b"),
        ({"problem": "burgers", "walls": {"x": {"u": "free"}}}, "value"),
    ],
)
def test_walls_of_which_images_are_no_solution_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        EquationsGenerator(**settings)


def test_an_initial_state_that_is_not_zero_at_its_wall_is_refused():
    generator = EquationsGenerator(
        problem="burgers", walls={"x": {"u": "value"}}, initial={"u": "cos(x)"}
    )
    with pytest.raises(NumericalError, match="is 1 at a wall of x"):
        generator.sample({}, 0)


FORCED = {
    "constants": {"a": 0.1, "k": np.pi},
    "length": 1.0,
    "cells": 32,
    "initial": {"u": "0*x"},
    "frames": 20,
}


@pytest.mark.parametrize(
    ("force", "wall", "amplitudes"),
    [
        ("sin(k*x)", "value", lambda n: n == 1),
        (
            "x*(1 - x)",
            "value",
            lambda n: np.where(n % 2 == 1, 8 / np.maximum(n * np.pi, 1) ** 3, 0),
        ),
        ("cos(2*k*x)", "slope", lambda n: n == 2),
    ],
)
def test_a_force_of_the_place_continues_behind_the_walls_as_its_field(force, wall, amplitudes):
    equation = f"dif(u,t) = a*dif(u,x,x) + {force}"
    x, u, t = last(**FORCED, equations=equation, walls={"x": {"u": wall}})
    wave = np.sin if wall == "value" else np.cos
    n = np.arange(1, 400)
    decay = 0.1 * (n * np.pi) ** 2
    exact = (amplitudes(n) * (1 - np.exp(-decay * t)) / decay) @ wave(np.pi * np.outer(n, x))
    np.testing.assert_allclose(u, exact, atol=3e-7)


@pytest.mark.parametrize("force", ["cos(k*x)", "x", "x**2*cos(u)"])
def test_a_force_that_is_not_zero_at_a_wall_of_value_zero_is_refused(force):
    equation = f"dif(u,t) = a*dif(u,x,x) + {force}"
    with pytest.raises(ConfigError, match="at a wall of x; allowed: 0"):
        EquationsGenerator(**FORCED, equations=equation, walls={"x": {"u": "value"}})


def test_the_mean_between_walls_is_conserved_only_if_no_term_with_coordinates_changes_it():
    walls = {"x": {"u": "slope"}}
    for term, bounds in (("x*u*dif(u,x)", {}), ("cos(k*x)", {"mean_u": 1e-8})):
        equation = f"dif(u,t) = a*dif(u,x,x) + {term}"
        made = EquationsGenerator(**FORCED, equations=equation, walls=walls)
        assert made.invariant_bounds() == bounds


def test_fields_beyond_the_numbers_of_a_file_are_refused():
    growing = EquationsGenerator(
        equations=["dif(u,t) = u"], initial={"u": "1e30"}, time_step=0.5, frames=8
    )
    with pytest.raises(NumericalError, match=r"u, frame \d: NaN or Inf in float32"):
        growing.sample({}, seed=0)
