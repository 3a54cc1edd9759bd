"""The generated kernels against dense matrices from quadrature, and what the scheme promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from restarts import assert_restart_is_exact

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.vlasov.basis import evaluate, integrals
from scitoolkit.generators.vlasov.reference import DenseReference
from scitoolkit.generators.vlasov.simulation import PhaseSpaceGrid, Simulation, Species

BASES = [(p, b) for p, b in itertools.product((1, 2, 3), ("serendipity", "tensor"))]
LENGTH = 4 * np.pi


def maxwellian(x, v, k=0.5, amplitude=0.1):
    return (1 + amplitude * np.cos(k * x)) * np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)


def random_state(degree, basis, seed=0, **options):
    """A simulation whose f and E are random numbers."""
    grid = PhaseSpaceGrid(LENGTH, 6, 16, degree, basis, **options)
    simulation = Simulation([Species(maxwellian, 8.0)], grid)
    rng = np.random.default_rng(seed)
    simulation.modes()[...] = rng.standard_normal(simulation.modes().shape)
    field = rng.standard_normal(simulation.field_modes().shape)
    field[:, 0] -= field[:, 0].mean()  # a periodic potential
    simulation.field_modes()[...] = field
    return simulation


def rates(simulation):
    """Return df/dt and dE/dt from one short RK3 step of a linear problem, as (f1 - f) / dt."""
    reference = DenseReference(simulation.grid.degree, simulation.grid.basis)
    penalty = float(simulation.grid.flux_v == "penalised")
    place = (simulation.half_x, simulation.half_v(0), simulation.centres_v())

    def both(f, e):
        df = reference.rate(f, -e, *place, penalty)
        de = reference.current(f, *place[1:])  # dE/dt = -J, the charge is -1
        de[:, 0] -= de[:, 0].mean()
        return df, de

    return both


@pytest.mark.parametrize(("degree", "basis"), BASES)
@pytest.mark.parametrize("flux", ["penalised", "central"])
def test_a_step_is_that_of_the_dense_matrices(degree, basis, flux):
    simulation = random_state(degree, basis, flux_v=flux)
    both, dt = rates(simulation), 0.5 * simulation.stable_step()
    f, e = simulation.modes().copy(), simulation.field_modes().copy()
    df, de = both(f, e)
    f1, e1 = f + dt * df, e + dt * de
    df, de = both(f1, e1)
    f2, e2 = 0.75 * f + 0.25 * (f1 + dt * df), 0.75 * e + 0.25 * (e1 + dt * de)
    df, de = both(f2, e2)
    f3, e3 = f / 3 + 2 / 3 * (f2 + dt * df), e / 3 + 2 / 3 * (e2 + dt * de)
    simulation.advance(dt, time_step=dt)
    assert np.abs(simulation.modes() - f3).max() < 2e-13 * np.abs(f3).max()
    assert np.abs(simulation.field_modes() - e3).max() < 2e-13 * np.abs(e3).max()


@pytest.mark.parametrize(("degree", "basis"), BASES)
def test_the_basis_is_orthonormal(degree, basis):
    nodes, weights = np.polynomial.legendre.leggauss(8)
    psi = evaluate(degree, basis, *np.meshgrid(nodes, nodes, indexing="ij"))
    gram = np.einsum("lab,mab,a,b->lm", psi, psi, weights, weights)
    assert np.abs(gram - np.eye(len(psi))).max() < 1e-13
    assert len(psi) == integrals(degree, basis).num


@pytest.mark.parametrize(("degree", "conserved"), [(1, False), (2, True), (3, True)])
def test_energy_is_conserved_in_space_where_v_squared_is_in_the_basis(degree, conserved):
    simulation = random_state(degree, "serendipity")
    f, e = simulation.modes().copy(), simulation.field_modes().copy()
    df, de = rates(simulation)(f, e)
    field = 2 * simulation.half_x * float((e * de).sum()) / 2
    simulation.modes()[...] = df
    kinetic = simulation.kinetic_energy()
    assert (abs(kinetic + field) < 1e-13 * abs(kinetic)) == conserved
    assert abs(simulation.mass()[0]) < 1e-11


def test_free_streaming_converges_with_order_p_plus_one():
    def start(x, v):
        return maxwellian(x, v, amplitude=0.5)

    for degree, cells, order in ((1, 32, 1.9), (2, 16, 2.9), (3, 16, 3.7)):
        errors = []
        for n in (cells, 2 * cells):
            grid = PhaseSpaceGrid(LENGTH, n, 2 * n, degree, field="given")
            simulation = Simulation([Species(start, 6.0)], grid, cfl=0.2)
            simulation.field_modes()[...] = 0
            simulation.advance(1.0)
            exact = simulation.project(lambda x, v: start(x - v, v))
            errors.append(float(np.sqrt(np.square(simulation.modes() - exact).sum()) / n))
        assert np.log2(errors[0] / errors[1]) > order, (degree, errors)


def test_bits_do_not_depend_on_threads_and_a_restart_is_exact():
    one, two = (
        Simulation([Species(maxwellian, 6.0)], PhaseSpaceGrid(LENGTH, 7, 32), threads=t)
        for t in (1, 3)
    )
    assert_restart_is_exact(one, two)


def test_mass_is_kept_and_f_squared_falls():
    simulation = Simulation([Species(maxwellian, 8.0)], PhaseSpaceGrid(LENGTH, 8, 32))
    mass, squares = simulation.mass()[0], []
    for _ in range(5):
        simulation.advance(1.0)
        squares.append(simulation.square())
    assert abs(simulation.mass()[0] / mass - 1) < 1e-12
    assert (np.diff(squares) < 0).all()


def test_energy_drifts_by_the_error_of_the_time_steps_alone():
    drifts = []
    for cfl in (0.8, 0.4):
        simulation = Simulation([Species(maxwellian, 8.0)], PhaseSpaceGrid(LENGTH, 8, 32), cfl=cfl)
        energy = simulation.kinetic_energy() + simulation.field_energy()
        simulation.advance(5.0)
        drifts.append(simulation.kinetic_energy() + simulation.field_energy() - energy)
    assert abs(drifts[0] / drifts[1]) > 7  # third order


def test_poisson_and_ampere_agree():
    ampere, poisson = (
        Simulation([Species(maxwellian, 6.0)], PhaseSpaceGrid(LENGTH, 16, 64, field=field))
        for field in ("ampere", "poisson")
    )
    for simulation in (ampere, poisson):
        simulation.advance(3.0)
    scale = np.abs(ampere.field_averages()).max()
    assert np.abs(ampere.field_averages() - poisson.field_averages()).max() < 1e-3 * scale


def test_the_field_of_a_wave_of_density_is_that_of_gauss():
    simulation = Simulation([Species(maxwellian, 8.0)], PhaseSpaceGrid(LENGTH, 16, 32))
    exact = -0.1 / 0.5 * np.sin(0.5 * simulation.centres_x())  # charge -1: dE/dx = 1 - n
    width = simulation.half_x
    exact *= np.sin(0.5 * width) / (0.5 * width)  # averages over cells
    assert np.abs(simulation.field_averages() - exact).max() < 1e-6


def test_a_reflecting_box_is_half_of_a_periodic_one():
    box = PhaseSpaceGrid(LENGTH / 2, 8, 32, left="reflecting", right="reflecting")
    half = Simulation([Species(maxwellian, 8.0)], box)
    whole = Simulation([Species(maxwellian, 8.0)], PhaseSpaceGrid(LENGTH, 16, 32))
    mass = half.mass()[0]
    for simulation in (half, whole):
        simulation.advance(2.0, time_step=0.01)
    assert np.abs(half.modes() - whole.modes()[:8]).max() < 1e-12
    assert abs(half.mass()[0] / mass - 1) < 1e-12


def test_an_absorbing_wall_takes_what_flies_out():
    grid = PhaseSpaceGrid(LENGTH, 8, 32, left="absorbing", right="absorbing", field="given")
    simulation = Simulation([Species(lambda x, v: np.exp(-((v - 3) ** 2)) + 0 * x, 6.0)], grid)
    simulation.field_modes()[...] = 0
    simulation.advance(20.0)
    assert 0 <= simulation.mass()[0] < 0.02


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells_v": 20}, "cells_v=16"),
        ({"degree": 4}, "degree 1, 2 or 3"),
        ({"left": "absorbing"}, "both periodic, or neither"),
        ({"length": -1.0}, "positive length"),
    ],
)
def test_unusable_grids_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        PhaseSpaceGrid(**{"length": 1.0, "cells_x": 4, "cells_v": 16, **change})


def test_an_unstable_time_step_is_refused_with_one_that_is_stable():
    simulation = Simulation([Species(maxwellian, 6.0)], PhaseSpaceGrid(LENGTH, 8, 32))
    with pytest.raises(ConfigError, match="unstable"):
        simulation.advance(1.0, time_step=1.0)
    with pytest.raises(ConfigError, match="unstable"):
        Simulation([Species(maxwellian, 6.0)], PhaseSpaceGrid(LENGTH, 8, 32), cfl=2.0)


def test_a_state_that_is_not_finite_is_told():
    simulation = Simulation([Species(maxwellian, 6.0)], PhaseSpaceGrid(LENGTH, 8, 32))
    simulation.modes()[0, 0, 0] = np.nan
    with pytest.raises(NumericalError, match="not finite"):
        simulation.advance(0.1)


def test_particles_at_the_edge_of_v_are_counted():
    wide, narrow = (
        Simulation([Species(maxwellian, v)], PhaseSpaceGrid(LENGTH, 4, 32)) for v in (8.0, 2.0)
    )
    assert wide.edge_share() < 1e-12
    assert narrow.edge_share() > 1e-3
