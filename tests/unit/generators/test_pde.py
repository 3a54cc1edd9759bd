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


def test_other_names_and_unstable_equations_are_refused():
    with pytest.raises(ConfigError, match="burgers"):
        EquationsGenerator(problem="burger")
    with pytest.raises(ConfigError, match="not an evolving field"):
        EquationsGenerator(problem="navier_stokes", initial={"psi": "sin(x)"})
    with pytest.raises(ConfigError, match="q"):
        EquationsGenerator(problem="burgers", initial={"u": "sin(q)"})
    with pytest.raises(NumericalError, match="not finite"):
        EquationsGenerator(equations="dif(u,t) = -dif(u,x,x)", frames=500).sample({}, 0)
