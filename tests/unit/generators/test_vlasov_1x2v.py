"""1X2V: kernels against dense matrices, and 1X1V as the special case of a product."""

from __future__ import annotations

import numpy as np
import pytest
from restarts import assert_restart_is_exact

from scitoolkit.core.errors import ConfigError
from scitoolkit.generators.vlasov.basis import integrals, modes
from scitoolkit.generators.vlasov.reference import DenseReference
from scitoolkit.generators.vlasov.simulation import PhaseSpaceGrid, Simulation, Species

BASES = [(1, "serendipity"), (2, "serendipity"), (2, "tensor")]
LENGTH = 4 * np.pi


def normal(v, thermal=1.0, drift=0.0):
    return np.exp(-(((v - drift) / thermal) ** 2) / 2) / (np.sqrt(2 * np.pi) * thermal)


def wave(x, v):
    return (1 + 0.1 * np.cos(0.5 * x)) * normal(v)


def tilted(x, vx, vy):
    """A state that is no product: the phase of the wave depends on vy, vx is correlated with it."""
    return (1 + 0.2 * np.cos(0.5 * x + 0.4 * vy)) * normal(vx - 0.3 * vy, 0.9) * normal(vy, 0.8)


def plasma(initial=tilted, degree=2, basis="serendipity", threads=1, cfl=0.9, **options):
    grid = PhaseSpaceGrid(
        **{
            "length": LENGTH,
            "cells_x": 6,
            "cells_v": 16,
            "degree": degree,
            "basis": basis,
            "cells_vy": 3,
            **options,
        }
    )
    return Simulation([Species(initial, 7.0, vy_max=5.0)], grid, threads=threads, cfl=cfl)


def random_state(degree, basis, **options):
    simulation = plasma(degree=degree, basis=basis, **options)
    rng = np.random.default_rng(0)
    simulation.modes()[...] = rng.standard_normal(simulation.modes().shape)
    field = rng.standard_normal(simulation.field_modes().shape)
    field[:, 0] -= field[:, 0].mean()  # a periodic potential
    simulation.field_modes()[...] = field
    return simulation


def rates(simulation):
    """Return the function of f and E that gives df/dt and dE/dt by dense matrices."""
    g = simulation.grid
    reference = DenseReference(g.degree, g.basis, 2)
    place = (simulation.half_x, simulation.half_v(0), simulation.centres_v())
    penalty = float(g.flux_v == "penalised")

    def both(f, e):
        rows = [f[:, y] for y in range(g.rows)]
        df = np.stack([reference.rate(row, -e, *place, penalty) for row in rows], 1)
        de = simulation.half_vy(0) * sum(reference.current(row, *place[1:]) for row in rows)
        de[:, 0] -= de[:, 0].mean()
        return df, de

    return both


@pytest.mark.parametrize(
    ("degree", "basis"), [*BASES, pytest.param(3, "serendipity", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("flux", ["penalised", "central"])
def test_a_step_is_that_of_the_dense_matrices(degree, basis, flux):
    simulation = random_state(degree, basis, flux_v=flux)
    both, dt = rates(simulation), 0.5 * simulation.stable_step()
    f, e = simulation.modes().copy(), simulation.field_modes().copy()
    made = (f, e)
    for share in (1.0, 0.25, 2 / 3):
        made = tuple(
            (1 - share) * start + share * (now + dt * rate)
            for start, now, rate in zip((f, e), made, both(*made), strict=True)
        )
    simulation.advance(dt, time_step=dt)
    assert np.abs(simulation.modes() - made[0]).max() < 2e-13 * np.abs(made[0]).max()
    assert np.abs(simulation.field_modes() - made[1]).max() < 2e-13 * np.abs(made[1]).max()


@pytest.mark.parametrize(("degree", "conserved"), [(1, False), (2, True)])
def test_energy_is_conserved_in_space_where_v_squared_is_in_the_basis(degree, conserved):
    simulation = random_state(degree, "serendipity")
    field = simulation.field_modes().copy()
    df, de = rates(simulation)(simulation.modes().copy(), field)
    simulation.modes()[...] = df
    kinetic = simulation.kinetic_energy()
    assert (
        abs(kinetic + simulation.half_x * (field * de).sum()) < 1e-13 * abs(kinetic)
    ) == conserved
    assert abs(simulation.mass()[0]) < 1e-11


def test_mass_is_kept_and_energy_drifts_by_the_error_of_the_time_steps_alone():
    drifts = []
    for cfl in (0.8, 0.4):
        simulation = plasma(cfl=cfl, cells_vy=8, cells_v=32)
        mass, squares = simulation.mass()[0], simulation.square()
        energy = simulation.kinetic_energy() + simulation.field_energy()
        simulation.advance(4.0)
        assert simulation.mass()[0] == pytest.approx(mass, rel=1e-12)
        assert simulation.square() < squares
        drifts.append(simulation.kinetic_energy() + simulation.field_energy() - energy)
    assert abs(drifts[0] / drifts[1]) > 7  # third order
    assert abs(drifts[0]) < 1e-5 * energy


@pytest.mark.parametrize(("degree", "basis"), BASES)
@pytest.mark.parametrize("field", ["ampere", "poisson"])
def test_a_product_with_a_maxwellian_of_vy_is_the_1x1v_run(degree, basis, field):
    options = {"degree": degree, "basis": basis, "field": field, "cells_v": 32}
    flat = Simulation([Species(wave, 7.0)], PhaseSpaceGrid(LENGTH, 6, **options))
    full = plasma(lambda x, vx, vy: wave(x, vx) * normal(vy, 0.6), cells_vy=8, **options)
    squares = full.moments()[4, :, 0].sum()
    for simulation in (flat, full):
        simulation.advance(3.0, time_step=0.02)
    # modes that are constant in vy, in the order of those of 1X1V: their sum is the integral
    even = [m for m, mode in enumerate(modes(degree, basis, 3)) if not mode.leading[2]]
    over_vy = full.modes()[:, :, even].sum(1) * full.half_vy(0) * np.sqrt(2)
    scale = np.abs(flat.modes()).max()
    assert np.abs(over_vy - flat.modes()).max() < 1e-11 * scale
    scale = np.abs(flat.field_modes()).max()
    assert np.abs(full.field_modes() - flat.field_modes()).max() < 1e-10 * scale
    assert np.abs(full.moments()[:3] - flat.moments()).max() < 1e-10 * flat.moments().max()
    # vy is left alone: its temperature stays what it was
    assert full.moments()[4, :, 0].sum() == pytest.approx(squares, rel=1e-12)


def test_free_streaming_converges_with_order_p_plus_one():
    def wide(x, vx, vy):
        return (1 + 0.5 * np.cos(0.5 * x + 0.3 * vy)) * normal(vx, 1.5) * normal(vy, 1.2)

    for degree, cells, order in ((1, 16, 1.85), (2, 8, 2.8)):
        errors = []
        for n in (cells, 2 * cells):
            made = plasma(
                wide,
                degree=degree,
                cells_x=n,
                cells_v=2 * n,
                cells_vy=n // 2,
                field="given",
                cfl=0.2,
            )
            made.field_modes()[...] = 0
            made.advance(0.5)
            exact = made.project(lambda x, vx, vy: wide(x - 0.5 * vx, vx, vy))
            volume = made.half_x * made.half_v(0) * made.half_vy(0)
            errors.append(float(np.sqrt(np.square(made.modes() - exact).sum() * volume)))
        assert np.log2(errors[0] / errors[1]) > order, (degree, errors)


def test_moments_are_those_of_an_anisotropic_plasma():
    simulation = plasma(
        lambda x, vx, vy: normal(vx, 0.9, 0.5) * normal(vy, 0.6, -0.4) * (2 + 0 * x),
        cells_v=64,
        cells_vy=16,
    )
    n, *moments = simulation.moments()[:, :, 0] / np.sqrt(2)
    assert np.allclose(n, 2, rtol=1e-10)
    exact = [0.5, 0.81 + 0.25, -0.4, 0.36 + 0.16]
    for found, expected in zip(moments, exact, strict=True):
        assert np.allclose(found / n, expected, rtol=1e-7)
    total = 2 * LENGTH
    assert simulation.mass()[0] == pytest.approx(total, rel=1e-10)
    assert simulation.kinetic_energy() == pytest.approx(0.5 * total * (1.06 + 0.52), rel=1e-7)
    assert simulation.averages().shape == (6, 16, 64)


def test_bits_do_not_depend_on_threads_and_a_restart_is_exact():
    one, two = (plasma(cells_x=7, threads=t) for t in (1, 3))
    assert_restart_is_exact(one, two)


def test_walls_mirror_vx_and_not_vy():
    def drifting(x, vx, vy):
        return wave(x, vx) * normal(vy, 0.8, 0.7)

    box = {"length": LENGTH / 2, "left": "reflecting", "right": "reflecting"}
    half = plasma(drifting, **box)
    whole = plasma(drifting, cells_x=12)
    for simulation in (half, whole):
        simulation.advance(2.0, time_step=0.01)
    assert np.abs(half.modes() - whole.modes()[:6]).max() < 1e-12
    density, flux = half.moments()[[0, 3], :, 0].sum(1)
    assert flux / density == pytest.approx(0.7, rel=1e-3)
    open_box = plasma(drifting, left="absorbing", right="absorbing", field="given")
    open_box.field_modes()[...] = 0
    mass = open_box.mass()[0]
    open_box.advance(20.0)
    assert 0 < open_box.mass()[0] < 0.5 * mass


def test_two_species_keep_momentum_along_both_axes():
    grid = PhaseSpaceGrid(LENGTH, 6, 16, cells_vy=4)
    ions = Species(lambda x, vx, vy: normal(vx, 0.3) * normal(vy, 0.3) + 0 * x, 2.0, 1.0, 10.0)
    simulation = Simulation([Species(tilted, 7.0), ions], grid)
    along_y = [simulation.moments(s)[3, :, 0].sum() for s in (0, 1)]
    momentum, mass = simulation.momentum(), simulation.mass()
    simulation.advance(2.0)
    assert simulation.mass() == pytest.approx(mass, rel=1e-12)
    assert simulation.momentum() == pytest.approx(momentum, abs=1e-3 * mass[0])
    assert [simulation.moments(s)[3, :, 0].sum() for s in (0, 1)] == pytest.approx(
        along_y, abs=1e-10
    )


def test_particles_at_the_edge_of_vy_are_counted():
    def product(x, vx, vy):
        return normal(vx) * normal(vy) + 0 * x

    wide, narrow = (
        Simulation([Species(product, 8.0, vy_max=v)], PhaseSpaceGrid(LENGTH, 2, 32, cells_vy=32))
        for v in (8.0, 2.0)
    )
    assert wide.edge_share() < 1e-12
    assert narrow.edge_share() > 1e-3


@pytest.mark.parametrize(("degree", "basis"), BASES)
def test_a_face_has_the_basis_of_one_dim_less(degree, basis):
    cell, flat = integrals(degree, basis, 3), integrals(degree, basis)
    assert cell.faces == flat.num
    assert cell.field == flat.field == degree + 1
    assert (
        cell.num
        == {("serendipity", 1): 8, ("serendipity", 2): 20, ("tensor", 2): 27}[basis, degree]
    )


def test_what_1x2v_cannot_do_is_refused():
    with pytest.raises(ConfigError, match="cells_vy 0"):
        PhaseSpaceGrid(LENGTH, 4, 16, cells_vy=0)
    with pytest.raises(ConfigError, match="vy_max -1"):
        Species(tilted, 6.0, vy_max=-1.0)
    with pytest.raises(ConfigError, match=r"called with \(x, vx, vy\)"):
        plasma(wave)
    with pytest.raises(ConfigError, match=r"called with \(x, v\)"):
        plasma(tilted, cells_vy=None)
