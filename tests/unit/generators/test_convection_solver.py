from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.generators.convection_solver import (
    Convection,
    chebyshev,
    evaluation_matrix,
    gauss_points,
    quadrature_weights,
)


@pytest.fixture(scope="module")
def flow() -> Convection:
    flow = Convection(48, 24, rayleigh=1e5, dt=0.0125)
    flow.start_at_rest(seed=3)
    flow.advance(6.0)
    return flow


def _critical_rayleigh(numbers=(1690.0, 1725.0)):
    """Return the Rayleigh number at which waves of wave number 3.117 begin to grow.

    1707.762 between rigid plates (Chandrasekhar 1961, Hydrodynamic and Hydromagnetic Stability).
    """
    rates = []
    for rayleigh in numbers:
        flow = Convection(16, 24, rayleigh, 1.0, 2 * np.pi / 3.117, dt=0.2)
        x = flow.length * np.arange(16) / 16
        wave = 1e-6 * np.cos(flow.k[1] * x)[:, None] * np.cos(np.pi * flow.z)
        flow.start(-flow.z + wave, 0 * wave, 0 * flow.z)
        sizes = []
        for _ in range(1500):
            flow.step()
            sizes.append(abs(flow.b[1]).max())
        rates.append(np.log(sizes[-1] / sizes[-501]))
    return float(np.interp(0, rates, numbers))


def test_convection_sets_in_at_the_critical_rayleigh_number():
    assert _critical_rayleigh() == pytest.approx(1707.762, rel=2e-4)


def test_walls_and_continuity_hold_to_rounding(flow):
    b, u, w, _ = flow.fields()
    assert np.abs(b[:, [0, -1]] - [0.5, -0.5]).max() < 1e-12
    assert max(np.abs(u[:, [0, -1]]).max(), np.abs(w[:, [0, -1]]).max()) < 1e-12
    assert np.abs(w.mean(0)).max() < 1e-12


def test_buoyancy_obeys_the_maximum_principle(flow):
    b, *_ = flow.fields()
    assert np.abs(b).max() < 0.5 + 1e-3


def test_energy_changes_by_what_buoyancy_does_and_viscosity_dissipates(flow):
    flow = Convection(48, 24, rayleigh=1e5, dt=0.0025)
    flow.start_at_rest(seed=3)
    flow.advance(3.0)
    before = _energy(flow)
    rates = [_power(flow)]
    for _ in range(8):
        flow.step()
        rates.append(_power(flow))
    done = 0.0025 * (sum(rates) - 0.5 * (rates[0] + rates[-1]))
    assert _energy(flow) - before == pytest.approx(done, rel=2e-3)


def _energy(flow: Convection) -> float:
    _, u, w, _ = flow.fields()
    return 0.5 * float((u * u + w * w).mean(0) @ flow.weights)


def _power(flow: Convection) -> float:
    b, _, w, omega = flow.fields()
    gain = (w * b).mean(0) - flow.viscosity * (omega**2).mean(0)
    return float(gain @ flow.weights)


def test_the_pressure_balances_the_momentum_equation(flow):
    _, _, w, _ = flow.fields()
    p = flow.pressure()
    assert abs((p.mean(0)) @ flow.weights) < 1e-12
    # Along x the mean of dp/dx is zero, so that the mean flow changes by stresses alone; across,
    # the mean of dp/dz balances buoyancy and the gradient of <w w>.
    b = flow.fields()[0]
    inner = slice(1, -1)
    left = flow.d @ p.mean(0)
    right = b.mean(0) - flow.d @ (w * w).mean(0)
    assert np.abs(left - right)[inner].max() < 1e-3 * np.abs(right).max()


def test_frames_are_what_the_polynomials_are_at_gauss_points(flow):
    frame = flow.frame(96, 32)
    assert {n: v.shape for n, v in frame.items()} == dict.fromkeys("pbuw", (96, 32))
    b, *_ = flow.fields()
    assert np.allclose(
        frame["b"][::2] @ evaluation_matrix(gauss_points(32), flow.z).T, b, atol=1e-9
    )


def test_quadrature_integrates_polynomials():
    nodes, _ = chebyshev(8)
    assert quadrature_weights(nodes) @ nodes**4 == pytest.approx(1 / 80)


def test_the_same_seed_is_the_same_flow():
    runs = []
    for seed in (1, 1, 2):
        flow = Convection(16, 12, rayleigh=1e4, dt=0.01)
        flow.start_at_rest(seed)
        flow.advance(0.05)
        runs.append(flow.b)
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("nx", [48, 64])
def test_products_of_resolved_waves_are_not_aliased_onto_resolved_waves(nx):
    flow = Convection(nx, 12, rayleigh=1e4, dt=0.01)
    spectra = np.random.default_rng(0).standard_normal((2, flow.modes, 13)) + 0j
    one, other = (flow._points(each) for each in spectra)
    fine = [np.fft.irfft(each, 4 * nx, axis=0, norm="forward") for each in spectra]
    exact = np.fft.rfft(fine[0] * fine[1], axis=0, norm="forward")[: flow.modes]
    assert np.allclose(flow._modes(one * other)[0], exact, atol=1e-12)
