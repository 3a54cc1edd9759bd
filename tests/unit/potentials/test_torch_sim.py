"""Simulations by torch-sim with our potentials: `make test-peers` has the package."""

import ase.build
import ase.units
import numpy as np
import pytest
import torch
from ase.md.verlet import VelocityVerlet

from scitoolkit.core.errors import DataError
from scitoolkit.potentials import Calculator, MaceConfig

ts = pytest.importorskip("torch_sim")

from scitoolkit.potentials.torch_sim_model import TorchSimModel  # noqa: E402


@pytest.fixture(scope="module")
def potential():
    model = MaceConfig(**{**MaceConfig.example, "cutoff": 4.0}).build(["Fe", "Si"])
    return model.double()


def crystals():
    silicon = ase.build.bulk("Si", "diamond", a=5.4).repeat((2, 1, 1))
    iron = ase.build.bulk("Fe", "bcc", a=2.9, cubic=True).repeat((2, 1, 1))
    for seed, atoms in enumerate((silicon, iron)):
        atoms.rattle(0.05, seed=seed)
        # Without symmetry, so that a transposed cell would be seen.
        atoms.set_cell(atoms.cell.array + np.triu(np.full((3, 3), 0.2), 1), scale_atoms=True)
    return [silicon, iron]


def test_torch_sim_accepts_the_model(potential):
    from torch_sim.models.interface import validate_model_outputs

    validate_model_outputs(TorchSimModel(potential), torch.device("cpu"), torch.float64)


def test_energies_forces_and_stresses_of_a_batch_are_those_of_the_calculator(potential):
    systems, model = crystals(), TorchSimModel(potential)
    for _ in range(3):  # of a new list, of a list in use, and of one that is too old
        state = ts.io.atoms_to_state(systems, torch.device("cpu"), torch.float64)
        outputs = {name: value.numpy() for name, value in model(state).items()}
        first = 0
        for number, atoms in enumerate(systems):
            atoms.calc = Calculator(potential, skin=0.0)
            last = first + len(atoms)
            assert abs(outputs["energy"][number] - atoms.get_potential_energy()) < 1e-10
            assert np.abs(outputs["forces"][first:last] - atoms.get_forces()).max() < 1e-10
            stress = atoms.get_stress(voigt=False)
            assert np.abs(outputs["stress"][number] - stress).max() < 1e-12
            first = last
            atoms.positions += np.random.default_rng(number).normal(0, 0.1, (len(atoms), 3))


def test_a_trajectory_of_torch_sim_is_that_of_ase(potential):
    systems = crystals()
    rng = np.random.default_rng(0)
    for atoms in systems:
        atoms.set_velocities(rng.normal(0, 0.01, (len(atoms), 3)))
    state = ts.io.atoms_to_state(systems, torch.device("cpu"), torch.float64)
    model = TorchSimModel(potential)
    time = 0.5 * ase.units.fs
    init, step = ts.integrators.nve(model=model, dt=torch.tensor(time), kT=torch.tensor(0.0))
    state = init(state)
    state.momenta = torch.from_numpy(np.concatenate([a.get_momenta() for a in systems]))
    for _ in range(10):
        state = step(state)
    for atoms in systems:
        atoms.calc = Calculator(potential)
        VelocityVerlet(atoms, time).run(10)
    # Positions are wrapped by torch-sim, momenta are not changed by that.
    expected = np.concatenate([atoms.get_momenta() for atoms in systems])
    assert np.abs(state.momenta.numpy() - expected).max() < 1e-7


def test_systems_in_another_order_after_a_batch_was_changed_keep_their_own_lists(potential):
    model, systems = TorchSimModel(potential), crystals()
    cpu = torch.device("cpu")
    both = model(ts.io.atoms_to_state(systems, cpu, torch.float64))
    swapped = model(ts.io.atoms_to_state(systems[::-1], cpu, torch.float64))
    alone = model(ts.io.atoms_to_state(systems[1:], cpu, torch.float64))
    assert (both["energy"] - swapped["energy"].flip(0)).abs().max() < 1e-10
    assert abs(alone["energy"][0] - both["energy"][1]) < 1e-10


def test_a_molecule_has_no_stress_and_an_unknown_species_is_refused(potential):
    model, cpu = TorchSimModel(potential), torch.device("cpu")
    pair = ase.Atoms("Si2", positions=[[0, 0, 0], [0, 0, 2.2]])
    outputs = model(ts.io.atoms_to_state([pair], cpu, torch.float64))
    assert outputs["stress"].isnan().all()
    assert outputs["forces"].isfinite().all()
    copper = ase.build.bulk("Cu")
    with pytest.raises(DataError, match="'Cu' is not known"):
        model(ts.io.atoms_to_state([copper], cpu, torch.float64))
    state = ts.io.atoms_to_state([pair], cpu, torch.float64)
    state.positions[0, 0] = torch.nan
    with pytest.raises(DataError):
        model(state)
