"""se_e2_a on the compiled kernels, the table and the torch reference; dynamics, committees."""

from __future__ import annotations

import ase
import ase.units
import numpy as np
import pytest
import torch
from ase.md.verlet import VelocityVerlet

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.potentials import SeE2AConfig
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.committee import model_deviation


def potential(backend="kernels", precision="float64", type_one_side=True, seed=0, **more):
    model = SeE2AConfig(
        cutoff=4.0,
        cutoff_smooth=1.0,
        sel=[12, 24],
        embedding=[5, 10, 20],
        axis_neurons=4,
        fitting=[12, 12],
        precision=precision,
        type_one_side=type_one_side,
        seed=seed,
        **more,
    ).build(["O", "H"])
    model.descriptors[0].mean[:, 0] = torch.tensor([0.05, 0.08])
    model.descriptors[0].deviation[:] = torch.tensor(
        [[0.2, 0.15, 0.15, 0.15], [0.25, 0.1, 0.1, 0.1]]
    )
    model.shift[:] = torch.tensor([-3.0, -1.0])
    model.eval()
    model.descriptors[0].use_kernels = backend != "reference"
    if backend == "table":
        model.compress(shortest=0.8, tolerance=1e-11)
    return model


def water(seed=0, molecules=4, length=6.0):
    rng = np.random.default_rng(seed)
    sites = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])[:molecules]
    positions = []
    for site in sites:
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        shape = np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
        positions.append(site * length / 2 + shape @ rotation + 0.1 * rng.normal(size=3))
    return ase.Atoms(
        "OHH" * molecules, positions=np.concatenate(positions), cell=[length] * 3, pbc=True
    )


def values(model, atoms, skin=0.0):
    atoms = atoms.copy()
    atoms.calc = Calculator(model, skin=skin)
    return atoms.get_potential_energy(), atoms.get_forces()


@pytest.mark.parametrize("type_one_side", [True, False])
@pytest.mark.parametrize("backend", ["kernels", "table"])
def test_backends_agree(backend, type_one_side):
    atoms = water()
    energy, forces = values(potential("reference", type_one_side=type_one_side), atoms)
    found = values(potential(backend, type_one_side=type_one_side), atoms)
    tolerance = 1e-12 if backend == "kernels" else 1e-9
    assert found[0] == pytest.approx(energy, rel=tolerance)
    assert np.abs(found[1] - forces).max() < tolerance * np.abs(forces).max()


def test_nearer_than_the_table_the_network_itself_is_used():
    atoms = ase.Atoms("OHH", positions=[[0, 0, 0], [0.3, 0, 0], [-0.2, 0.9, 0]])
    energy, forces = values(potential("kernels"), atoms)
    found = values(potential("table"), atoms)
    assert found[0] == pytest.approx(energy, rel=1e-10)
    assert np.allclose(found[1], forces, rtol=1e-8, atol=1e-9)


def test_a_table_follows_its_parameters():
    model, atoms = potential("table"), water()
    with torch.no_grad():
        model.descriptors[0].embedding.bias[0] += 0.1
    energy, _ = values(model, atoms)
    model.descriptors[0].use_kernels = False
    assert values(model, atoms)[0] == pytest.approx(energy, rel=1e-10)


def test_threads_change_no_bit():
    model, atoms = potential(), water()
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(values(model, atoms))
    finally:
        torch.set_num_threads(before)
    assert all(f[0] == found[0][0] and np.array_equal(f[1], found[0][1]) for f in found)


def test_the_skin_changes_nothing_but_the_number_of_lists():
    atoms, still = water(), water()
    atoms.calc = Calculator(potential(), skin=0.6)
    still.calc = Calculator(potential(), skin=0.0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        move = 0.03 * rng.normal(size=atoms.positions.shape)
        atoms.positions += move
        still.positions += move
        assert atoms.get_potential_energy() == pytest.approx(
            still.get_potential_energy(), rel=1e-13
        )
    assert atoms.calc.neighbours.lists_made < still.calc.neighbours.lists_made
    atoms.set_cell(atoms.cell * 1.01)
    made = atoms.calc.neighbours.lists_made
    atoms.get_potential_energy()
    assert atoms.calc.neighbours.lists_made == made + 1


@pytest.mark.parametrize("skin", [-1.0, np.nan, np.inf, "1", None])
def test_a_skin_that_would_lose_neighbours_is_refused(skin):
    with pytest.raises(ConfigError, match="a skin of"):
        Calculator(potential(), skin=skin)


def test_energy_is_conserved_in_a_microcanonical_run():
    """What is not conserved is the time step's doing: halving it leaves a quarter."""
    excursions = []
    for step in (0.4, 0.2):
        atoms = water()
        atoms.calc = Calculator(potential(), skin=0.5)
        speed = np.sqrt(ase.units.kB * 300 / atoms.get_masses())[:, None]
        atoms.set_velocities(speed * np.random.default_rng(0).normal(size=(len(atoms), 3)))
        dynamics = VelocityVerlet(atoms, step * ase.units.fs)
        totals = []
        for _ in range(int(20 / step)):
            dynamics.run(1)
            totals.append(atoms.get_total_energy())
        excursions.append(np.std(totals) / len(atoms))
    assert excursions[1] < 1e-4
    assert excursions[1] < 0.35 * excursions[0]


def test_a_committee_disagrees_only_with_others():
    from scitoolkit.io.atoms_formats import from_ase

    frame = from_ase(water())
    one, two = potential(), potential(seed=1)
    assert model_deviation([one, one], frame)["force_max"] == 0
    found = model_deviation([one, two], frame)
    forces = [values(m, water())[1] for m in (one, two)]
    expected = np.linalg.norm(forces[0] - forces[1], axis=1) / 2
    assert found["force_max"] == pytest.approx(expected.max())
    with pytest.raises(ConfigError):
        model_deviation([one], frame)


def test_atoms_on_each_other_are_refused():
    with pytest.raises(DataError, match="apart"):
        values(potential(), ase.Atoms("OO", positions=[[0, 0, 0], [0, 0, 1e-9]]))


@pytest.mark.parametrize("pbc", [(True, True, False), (True, False, False), (True, True, True)])
def test_stress_of_slabs_is_the_derivative_of_the_energy_by_strain(pbc):
    atoms = water()
    atoms.pbc, atoms.calc = pbc, Calculator(potential(), skin=0.0)
    found = atoms.get_stress(voigt=False)
    for row, column in ((0, 0), (1, 1), (0, 1), (2, 2)):
        energies = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[row, column] += 0.5e-5 * sign
            strain[column, row] += 0.5e-5 * sign
            strained = atoms.copy()
            strained.set_cell(atoms.cell.array @ strain, scale_atoms=False)
            strained.positions = atoms.positions @ strain
            strained.calc = atoms.calc
            energies.append(strained.get_potential_energy())
        slope = (energies[0] - energies[1]) / 2e-5 / atoms.get_volume()
        assert found[row, column] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_a_slab_without_a_third_vector_has_no_volume_and_no_stress():
    from ase.calculators.calculator import PropertyNotImplementedError

    atoms = water()
    atoms.pbc, atoms.calc = (True, True, False), Calculator(potential())
    atoms.cell[2] = 0
    assert np.isfinite(atoms.get_forces()).all()
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_stress()


def test_a_calculator_passes_over_labels_that_atoms_carry():
    """As frames of a mace-torch training set have them."""
    atoms = water()
    atoms.calc = Calculator(potential(), skin=0.5)
    energy = atoms.get_potential_energy()
    atoms.arrays["REF_forces"] = np.full((len(atoms), 3), np.nan)
    atoms.info["REF_energy"] = 3.0
    atoms.calc = Calculator(potential(), skin=0.5)
    assert atoms.get_potential_energy() == energy
