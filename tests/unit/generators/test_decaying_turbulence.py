from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.generators.decaying_turbulence import DecayingTurbulence
from scitoolkit.testing import GeneratorContract


class TestDecayingTurbulence(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return DecayingTurbulence(cells=16, spinup=1, frames=4, interval=2)


def test_a_taylor_green_vortex_decays_at_its_rate():
    flow = DecayingTurbulence(cells=32, viscosity=0.05, time_step=0.01)
    x = 2 * np.pi * np.arange(32) / 32
    start = 2 * np.cos(2 * x)[:, None] * np.cos(3 * x)
    state, step = np.fft.rfft2(start), flow.stepper()
    for _ in range(100):
        state = step(state)
    exact = start * np.exp(-0.05 * (4 + 9) * 1.0)
    assert np.abs(np.fft.irfft2(state, s=(32, 32)) - exact).max() < 1e-12


def budget(flow: DecayingTurbulence, steps: int) -> tuple[list[float], list[float]]:
    """Return energy and enstrophy before and after every step."""
    state, step = flow.start(3), flow.stepper()
    energies, enstrophies = [], []
    for number in range(steps + 1):
        velocity = flow.velocity(state)
        energies.append(0.5 * float(np.mean(velocity["u"] ** 2 + velocity["v"] ** 2)))
        vorticity = np.fft.irfft2(state, s=(flow.cells,) * 2)
        enstrophies.append(0.5 * float(np.mean(vorticity**2)))
        state = step(state) if number < steps else state
    return energies, enstrophies


def test_energy_falls_by_twice_the_viscosity_times_the_enstrophy():
    flow = DecayingTurbulence(viscosity=2e-3, time_step=2.5e-3)
    energies, enstrophies = budget(flow, 80)
    assert energies[0] == pytest.approx(0.5)
    lost = 2 * flow.viscosity * flow.time_step * np.trapezoid(enstrophies)
    assert energies[0] - energies[-1] == pytest.approx(lost, rel=1e-5)


def test_without_viscosity_energy_and_enstrophy_are_conserved():
    flow = DecayingTurbulence(viscosity=1e-30, time_step=2.5e-3)
    energies, enstrophies = budget(flow, 80)
    assert energies[-1] == pytest.approx(energies[0], rel=1e-7)
    assert enstrophies[-1] == pytest.approx(enstrophies[0], rel=1e-6)


def test_the_velocity_has_no_divergence_and_the_vorticity_is_its_curl():
    frames = DecayingTurbulence(cells=32, spinup=0, frames=1).generate(0).frames.isel(time=0)
    k = 1j * np.fft.fftfreq(32, 1 / 32)
    u, v = (np.fft.fft2(frames[n].values) for n in "uv")
    divergence = np.fft.ifft2(k[:, None] * u + k * v).real
    curl = np.fft.ifft2(k[:, None] * v - k * u).real
    assert np.abs(divergence).max() < 1e-5 * np.abs(curl).max()
    np.testing.assert_allclose(curl, frames["vorticity"].values, atol=1e-5 * np.abs(curl).max())


@pytest.mark.parametrize("cells", [32, 48, 64, 96])
def test_advection_conserves_energy_and_enstrophy_of_all_resolved_waves(cells):
    """Also where the grid is a multiple of three, so that a wave of exactly a third exists."""
    flow = DecayingTurbulence(cells=cells, viscosity=1e-12, time_step=1e-3)
    _kx, _ky, square, kept = flow._waves()
    noise = np.random.default_rng(0).standard_normal((cells, cells))
    state = np.fft.rfft2(noise) * kept * (square > 0)
    after = flow.stepper()(state)
    before, later = (np.fft.irfft2(s, s=(cells, cells)) for s in (state, after))
    moved = np.sqrt(np.mean((later - before) ** 2) * np.mean(before**2))
    assert abs(np.mean(later**2) - np.mean(before**2)) < 1e-7 * moved
    energies = [
        sum(np.mean(v**2) for v in flow.velocity(spectrum).values()) for spectrum in (state, after)
    ]
    assert abs(energies[1] / energies[0] - 1) < 1e-9


@pytest.mark.parametrize(
    ("viscosity", "told"), [(2e-2, []), (2e-3, ["error"]), (1e-6, ["use cells=128", "error"])]
)
def test_vortices_smaller_than_the_grid_are_told(viscosity, told):
    """With viscosity 2e-3 the spectrum falls, but a run of twice the cells differs by a third."""
    flow = DecayingTurbulence(viscosity=viscosity, cells=64, frames=10)
    missed = flow.sample({}, 0).missed
    assert len(missed) == len(told)
    assert all(text in note for text, note in zip(told, missed, strict=True))
