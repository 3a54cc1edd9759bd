from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.vlasov.collisions import BGK
from scitoolkit.generators.vlasov.members import Landau
from scitoolkit.generators.vlasov.rates import damping_rate
from scitoolkit.generators.vlasov.simulation import PhaseSpaceGrid, Simulation, Species


def two_beams(x, v):
    density = 1 + 0.3 * np.cos(0.5 * x)
    return density * (np.exp(-((v - 1.5) ** 2)) + 0.5 * np.exp(-((v + 1) ** 2) / 0.5)) / 2


def plasma(frequency, degree=2, basis="serendipity", field="given", **settings):
    grid = PhaseSpaceGrid(4 * np.pi, 8, 64, degree, basis, field=field)
    made = Simulation([Species(two_beams, 7.0, collision_frequency=frequency)], grid, **settings)
    if field == "given":
        made.field_modes()[...] = 0
    return made


def collisions(made, frequency=1.0):
    g = made.grid
    axes = [(made.centres_v(), made.half_v(0))]
    return BGK(g.degree, g.basis, axes, frequency)


@pytest.mark.parametrize(("degree", "basis"), [(1, "tensor"), (2, "serendipity"), (3, "tensor")])
def test_all_modes_of_the_moments_are_kept(degree, basis):
    made = plasma(0.0, degree, basis)
    before = made.moments()
    collisions(made).relax(made.modes(), 0.7)
    assert np.abs(made.moments() - before).max() < 1e-13 * np.abs(before).max()


def test_the_target_is_the_maxwellian_and_a_fixed_point():
    made = plasma(0.0)
    bgk = collisions(made)
    target = bgk.maxwellian(made.modes())
    n, flux, square = made.moments()[:, :, 0] / np.sqrt(2)
    u, t = flux / n, square / n - (flux / n) ** 2
    v = made.centres_v()
    exact = (
        n[:, None]
        / np.sqrt(2 * np.pi * t)[:, None]
        * np.exp(-((v - u[:, None]) ** 2) / (2 * t)[:, None])
    )
    assert np.abs(target[:, 0] / 2 - exact).max() < 0.02 * exact.max()
    again = bgk.maxwellian(target)
    assert np.abs(again - target).max() < 1e-12 * np.abs(target).max()


def test_the_distance_to_equilibrium_falls_exponentially():
    made = plasma(0.0)
    bgk = collisions(made, 0.8)
    target, start = bgk.maxwellian(made.modes()), made.modes().copy()
    for _ in range(3):
        bgk.relax(made.modes(), 0.5)
    expected = target + np.exp(-0.8 * 1.5) * (start - target)
    assert np.abs(made.modes() - expected).max() < 1e-12


def test_energy_and_mass_are_conserved_with_the_field():
    made = plasma(0.5, field="ampere")
    made.solve_poisson()
    mass, energy = made.mass()[0], made.kinetic_energy() + made.field_energy()
    made.advance(1.0)
    assert made.mass()[0] == pytest.approx(mass, rel=1e-13)
    assert made.kinetic_energy() + made.field_energy() == pytest.approx(energy, rel=1e-6)


def test_the_splitting_is_of_second_order():
    def state(steps):
        made = plasma(2.0)
        made.advance(0.16, time_step=0.16 / steps)
        return made.modes().copy()

    fine = state(64)
    errors = [np.abs(state(steps) - fine).max() for steps in (8, 16)]
    assert errors[0] / errors[1] > 3.5


def test_a_restart_goes_on_bit_for_bit():
    made, other = plasma(0.5, field="ampere"), plasma(0.5, field="ampere")
    made.advance(0.2)
    saved = made.state()
    made.advance(0.2)
    other.restore(saved)
    other.advance(0.2)
    assert np.array_equal(made.modes(), other.modes())


def test_frequent_collisions_make_the_electrons_an_adiabatic_fluid():
    """In one velocity dim the adiabatic exponent is 3: omega^2 = 1 + 3 k^2, hardly damped."""
    generator = Landau(cells_x=8, cells_v=32, duration=12.0, collision_frequency=50.0)
    frames = generator.sample({}, 0).frames
    assert generator.linear_root() is None
    assert not generator.checks(frames)
    frequency, rate = damping_rate(frames["instant"].values, frames["field_energy"].values)
    assert frequency == pytest.approx(np.sqrt(1 + 3 * 0.5**2), abs=5e-3)
    assert abs(rate) < 0.1 * abs(Landau().exact_root().imag)


def normal(v, thermal=1.0, drift=0.0):
    return np.exp(-(((v - drift) / thermal) ** 2) / 2) / (np.sqrt(2 * np.pi) * thermal)


def plasma_1x2v(initial, frequency, degree=2, basis="serendipity", **options):
    grid = PhaseSpaceGrid(
        4 * np.pi,
        **{
            "cells_x": 6,
            "cells_v": 32,
            "cells_vy": 12,
            "degree": degree,
            "basis": basis,
            **options,
        },
    )
    return Simulation([Species(initial, 7.0, vy_max=6.0, collision_frequency=frequency)], grid)


@pytest.mark.parametrize(
    ("degree", "basis"), [(1, "serendipity"), (2, "serendipity"), (2, "tensor")]
)
def test_all_modes_of_the_moments_are_kept_in_1x2v(degree, basis):
    def initial(x, vx, vy):
        wave = 1 + 0.3 * np.cos(0.5 * x + 0.4 * vy)
        return wave * normal(vx, 1.2, 0.4) * normal(vy, 0.8, -0.3)

    made = plasma_1x2v(initial, 1.0, degree, basis)
    before = made.moments()
    axes = [(made.centres_v(), made.half_v(0)), (made.centres_vy(), made.half_vy(0))]
    bgk = BGK(degree, basis, axes, 1.0)
    bgk.relax(made.modes(), 0.7)
    after = made.moments()
    # density, both fluxes, and the energy of both velocities together
    for rows in ([0], [1], [3], [2, 4]):
        change = (after[rows] - before[rows]).sum(0)
        assert np.abs(change).max() < 1e-13 * np.abs(before).max()
    target = bgk.maxwellian(made.modes())
    assert np.abs(bgk.maxwellian(target) - target).max() < 1e-12 * np.abs(target).max()


def test_collisions_make_temperatures_equal_at_their_frequency():
    def initial(x, vx, vy):
        return normal(vx, 1.2, 0.3) * normal(vy, 0.8, -0.2) + 0 * x

    made = plasma_1x2v(initial, 0.8, field="given", cells_x=2)
    made.field_modes()[...] = 0

    def temperatures():
        n, ux, square_x, uy, square_y = made.moments()[:, :, 0].sum(1)
        return np.array([square_x / n - (ux / n) ** 2, square_y / n - (uy / n) ** 2])

    before = temperatures()
    made.advance(1.5)
    after = temperatures()
    assert after.sum() == pytest.approx(before.sum(), rel=1e-12)
    ratio = (after[0] - after[1]) / (before[0] - before[1])
    assert ratio == pytest.approx(np.exp(-0.8 * 1.5), rel=2e-4)


def test_two_velocities_make_a_fluid_of_adiabatic_exponent_two():
    def initial(x, vx, vy):
        return (1 + 1e-3 * np.cos(0.5 * x)) * normal(vx) * normal(vy)

    made = plasma_1x2v(initial, 50.0, cells_x=8)
    mass, energy = made.mass()[0], made.kinetic_energy() + made.field_energy()
    made.advance(12.0)
    frequency, _ = damping_rate(np.array(made.times), np.array(made.field_energies))
    assert frequency == pytest.approx(np.sqrt(1 + 2 * 0.5**2), abs=5e-3)
    assert made.mass()[0] == pytest.approx(mass, rel=1e-12)
    assert made.kinetic_energy() + made.field_energy() == pytest.approx(energy, rel=1e-8)


def test_what_cannot_collide_is_refused():
    with pytest.raises(ConfigError, match="collision_frequency -1"):
        Species(two_beams, 6.0, collision_frequency=-1.0)
    made = plasma(0.0)
    made.modes()[3] *= -1
    with pytest.raises(NumericalError, match="cell 3 of x"):
        collisions(made).relax(made.modes(), 0.1)
