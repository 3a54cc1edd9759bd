"""Measures of the error of samples, on problems whose error is known."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import yaml

from scitoolkit import api
from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.resolution import (
    SAFETY,
    TURNOVERS,
    added_error,
    convergence_error,
    difference_error,
    remapped,
)

WAVE = np.sin(2 * np.pi * np.arange(32) / 32)


def states_of(rate: float, steps: int, size: float) -> np.ndarray:
    return np.stack([size * np.exp(-rate * n) * WAVE[None] for n in (0, steps // 2, steps)])


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e8])
@pytest.mark.parametrize(("rate", "steps"), [(0.01, 40), (0.002, 300)])
def test_the_error_of_eulers_steps_is_that_of_the_run(size, rate, steps):
    """A step is off by rate^2/2, which the decay of the wave hardly damps in these runs."""

    def advanced(state, counts):
        return [(state * (1 - rate) ** n, state * np.exp(-rate * n)) for n in counts]

    error = added_error(states_of(rate, steps, size), advanced, steps, 4, chaotic=False)
    assert error == pytest.approx(steps * rate**2 / 2, rel=0.35)


def test_a_difference_that_a_run_has_once_is_not_multiplied():
    def advanced(state, counts):
        return [(state, state * 1.01) for _ in counts]

    error = added_error(states_of(0, 1000, 1.0), advanced, 1000, 4, chaotic=False)
    assert error == pytest.approx(0.01)


def test_the_time_of_a_chaotic_run_is_limited_by_its_turnover():
    """A wave that turns by an angle per step has a turnover of 1/angle steps."""
    angle = 0.02
    turn = np.stack([WAVE, np.roll(WAVE, 8)])

    def moved(state, by):
        cos, sin = np.cos(by), np.sin(by)
        return np.stack([cos * state[0] - sin * state[1], sin * state[0] + cos * state[1]])

    def advanced(state, counts):
        return [(moved(state, angle * n), moved(state, 1.001 * angle * n)) for n in counts]

    states = np.stack([turn] * 3)
    limited = added_error(states, advanced, 100_000, 4, chaotic=True)
    assert limited == pytest.approx(TURNOVERS * 1e-3, rel=0.05)
    whole = added_error(states, advanced, 1000, 4, chaotic=False)
    assert whole == pytest.approx(1000 * angle * 1e-3, rel=0.05)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_infinitely_off(bad):
    def advanced(state, counts):
        return [(state, np.full_like(state, bad)) for _ in counts]

    assert added_error(states_of(0, 10, 1.0), advanced, 10, 4, chaotic=False) == np.inf
    assert convergence_error([{"u": WAVE}, {"u": np.full_like(WAVE, bad)}], [2.0]) == np.inf


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("ratio", [1.5, 2.0, 3.0])
def test_the_error_of_the_finest_run_is_found_at_any_order(order, ratio):
    runs = [{"u": 5 + WAVE * (1 + (0.02 * ratio**level) ** order)} for level in range(3)]
    error = convergence_error(runs, [ratio, ratio], 3)
    assert error == pytest.approx(SAFETY * 0.02**order, rel=0.05)


def test_runs_that_do_not_converge_are_off_by_their_difference():
    runs = [{"u": WAVE}, {"u": 0.9 * WAVE}, {"u": WAVE}]
    assert convergence_error(runs, [2.0, 2.0]) == pytest.approx(SAFETY * 0.1)


@pytest.mark.parametrize(("cells", "others"), [(12, 6), (12, 5), (5, 12), (48, 16)])
def test_averages_over_other_cells_conserve_the_integral(cells, others):
    values = np.random.default_rng(0).standard_normal((3, cells))
    made = remapped(values, others, 1)
    np.testing.assert_allclose(made.mean(1), values.mean(1), atol=1e-14)
    np.testing.assert_allclose(remapped(made.T, others, 0).T, made, atol=1e-14)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_forces_that_are_no_derivative_are_off(share):
    from ase.build import molecule
    from ase.calculators.emt import EMT

    class Wrong(EMT):
        def calculate(self, *arguments, **keywords):
            super().calculate(*arguments, **keywords)
            self.results["forces"] = self.results["forces"] * (1 + share)

    atoms = molecule("CH3CH2OH")
    atoms.rattle(0.1, seed=1)
    atoms.calc = Wrong()
    errors = [difference_error(atoms, seed) for seed in range(20)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(
        share / (1 + share), rel=0.6, abs=2e-3
    )


def test_a_campaign_with_samples_that_are_off_ends_with_an_error_and_marks_them(tmp_path):
    document = {
        "domain": "generate",
        "generator": {"name": "lorenz96", "spinup": 100, "frames": 30, "tolerance": 1e-4},
        "draw": {"method": "grid", "samples": 2, "parameters": {"forcing": [1.0, 8.0]}},
        "output": str(tmp_path / "made"),
        "run": {"root": str(tmp_path)},
    }
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(NumericalError, match=r"1 of 2 samples.*sample 1.*error"):
        api.train(path)
    files = [xr.open_dataset(tmp_path / f"made/sample_0000{n}.nc") for n in (0, 1)]
    assert files[0].attrs["accuracy_error"] < 1e-4 < files[1].attrs["accuracy_error"]
    assert files[0].attrs["missed"] == ""
    assert "tolerance 0.0001" in files[1].attrs["missed"]
    table = (tmp_path / "made/samples.csv").read_text().splitlines()
    assert "error" in table[0]
    assert "Error of the samples: median" in (tmp_path / "made/README.md").read_text()
    for opened in files:
        opened.close()
