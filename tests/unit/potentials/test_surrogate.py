"""The shipped potential of acetylacetone: what its card promises, and physics in float64."""

from __future__ import annotations

import ase
import ase.io
import ase.units
import numpy as np
import pytest
from ase.md.verlet import VelocityVerlet

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.potentials import Calculator

FOLDER = content_root("surrogates") / "acac_mace"
TEST = content_root("datasets") / "acac" / "test_MD_300K.xyz"


def molecule(number=0):
    atoms = ase.io.read(TEST, number)
    atoms.set_pbc(False)
    return atoms


@pytest.fixture(scope="module")
def calculator():
    return Calculator("acac_mace", precision="float64")


def test_errors_are_those_of_the_card(tmp_path):
    frames = ase.io.read(TEST, "::13")
    ase.io.write(tmp_path / "some.xyz", frames)
    found = api.evaluate(FOLDER, tmp_path / "some.xyz")
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    said = {
        line.split("|")[1].strip(): float(line.split("|")[2].split()[0])
        for line in card.split("measured -->")[1].splitlines()
        if line.startswith("| ") and "figure" not in line
    }
    assert found.units["energy_rmse"] == "meV"
    assert found.units["energy_per_atom_rmse"] == "meV/atom"
    assert found.units["force_rmse"] == "meV/Å"
    for name in ("energy_rmse", "force_rmse"):  # fifty of the 650 frames
        assert found.metrics[name] == pytest.approx(said[name], rel=0.35)


def test_forces_are_the_slopes_of_the_energy(calculator):
    atoms, step = molecule(), 1e-4
    atoms.calc = calculator
    forces = atoms.get_forces()
    for atom, axis in ((0, 0), (3, 1), (7, 2), (14, 0)):
        energies = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += sign * step
            moved.calc = calculator
            energies.append(moved.get_potential_energy())
        slope = -(energies[0] - energies[1]) / (2 * step)
        assert slope == pytest.approx(forces[atom, axis], abs=1e-6)


def test_precisions_agree(calculator):
    atoms = molecule(5)
    atoms.calc = calculator
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.calc = Calculator("acac_mace")
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=2e-4)
    assert np.abs(atoms.get_forces() - forces).max() < 2e-4


def drift(calculator, femtoseconds, step=0.5):
    """Return the slope of the total energy in meV/atom/ns, and its deviation in meV/atom."""
    atoms = molecule()
    atoms.calc = calculator
    speed = np.sqrt(ase.units.kB * 300 / atoms.get_masses())[:, None]
    atoms.set_velocities(speed * np.random.default_rng(0).normal(size=(len(atoms), 3)))
    dynamics = VelocityVerlet(atoms, step * ase.units.fs)
    times, totals = [], []
    for _ in range(int(femtoseconds / step / 4)):
        dynamics.run(4)
        times.append(dynamics.nsteps * step * 1e-6)
        totals.append(1e3 * atoms.get_total_energy() / len(atoms))
    return np.polyfit(times, totals, 1)[0], np.std(totals)


def test_a_short_run_conserves_the_energy(calculator):
    assert drift(calculator, 60)[1] < 0.5


@pytest.mark.slow
def test_twenty_picoseconds_hardly_drift(calculator):
    assert abs(drift(calculator, 20_000)[0]) < 1.0
