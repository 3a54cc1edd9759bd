"""A lone atom has the energy E0 of isolated atoms in every model, before and after training."""

from __future__ import annotations

import ase
import ase.io
import numpy as np
import pytest
import torch
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from prepared_potentials import prepare

from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.potentials import Calculator
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.saved import load_model

E0 = {"Cu": 3.5, "Au": -1203.8}
MODELS = {
    "mace": {
        "name": "mace",
        "cutoff": 4.0,
        "channels": 4,
        "lmax": 1,
        "lmax_hidden": 1,
        "correlation": 2,
        "layers": 2,
        "radial_widths": [8],
    },
    "mace_double": {
        "name": "mace",
        "cutoff": 4.0,
        "channels": 4,
        "lmax": 1,
        "layers": 1,
        "first_residual": False,
        "correlation": 2,
        "radial_widths": [8],
        "precision": "float64",
    },
    "nequip": {"name": "nequip", "cutoff": 4.0, "channels": 4, "lmax": 1, "layers": 2},
    "se_e2_a": {
        "name": "se_e2_a",
        "cutoff": 4.0,
        "sel": [30, 30],
        "embedding": [4, 8],
        "axis_neurons": 4,
        "fitting": [8],
    },
    "se_atten": {
        "name": "deep_potential",
        "descriptors": [
            {
                "name": "se_atten",
                "cutoff": 4.0,
                "sel": 60,
                "embedding": [4, 8],
                "axis_neurons": 4,
            }
        ],
        "fitting": [8],
    },
}
QUICK = {"steps": 30, "batch_size": 4, "progress": False}


def labelled(atoms):
    atoms.calc = EMT()
    energy = atoms.get_potential_energy() + sum(
        E0[name] for name in atoms.get_chemical_symbols() if len(atoms) > 1
    )
    labels = {"energy": energy, "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **labels)
    return atoms


def crystals(number):
    for seed in range(number):
        atoms = bulk("Cu", "fcc", a=3.7, cubic=True)
        for index in range(seed % 3):
            atoms[index].symbol = "Au"
        atoms.rattle(0.1, seed=seed)
        yield labelled(atoms)


def lone(name, energy):
    atoms = ase.Atoms(name)
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=np.zeros((1, 3)))
    return atoms


@pytest.fixture(scope="module")
def alloy(tmp_path_factory):
    path = tmp_path_factory.mktemp("alloy") / "alloy.xyz"
    ase.io.write(path, [*crystals(16), *(lone(*pair) for pair in E0.items())])
    return path


def settings(path, name, **more):
    return PotentialConfig.model_validate(
        {"data": {"path": [path]}, "model": MODELS[name], "training": QUICK} | more
    )


def lone_energies(potential):
    out = {}
    for name in E0:
        atoms = ase.Atoms(name, calculator=Calculator(potential))
        out[name] = atoms.get_potential_energy()
        assert np.abs(atoms.get_forces()).max() == 0
    return out


def trained(tmp_path, config, name="run"):
    run = RunDirectory.create(tmp_path, name, config)
    PotentialJob().train(config, run)
    return run


@pytest.mark.parametrize("model", MODELS)
def test_a_lone_atom_has_e0_before_and_after_training(model, alloy, tmp_path):
    config = settings(alloy, model)
    ready = prepare(config)
    assert lone_energies(ready.model) == pytest.approx(E0, abs=1e-6)
    run = trained(tmp_path, config)
    assert lone_energies(run.path) == pytest.approx(E0, abs=1e-6)
    results = PotentialJob().evaluate(run.path).metrics
    mean = results["energy_per_atom_rmse_of_zero_force"]
    assert results["energy_per_atom_rmse"] < max(2 * mean, 200)


def test_energies_given_in_the_configuration_are_those_of_lone_atoms(alloy, tmp_path):
    run = trained(tmp_path, settings(alloy, "mace", e0={"Cu": 1.0, "Au": -1200.0}))
    expected = {"Cu": 1.0, "Au": -1200.0}
    assert lone_energies(run.path) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("model", ["mace", "se_e2_a"])
def test_the_first_validation_is_near_the_element_mean(model, alloy):
    def error(e0):
        ready = prepare(settings(alloy, model, e0=e0))
        ready.model.eval()
        graphs = [ready.train[index] for index in range(len(ready.train))]
        graphs = [graph for graph in graphs if len(graph["types"]) > 1]
        errors = [
            float(graph["energy"] - ready.model(graph)["energy"]) / len(graph["types"])
            for graph in graphs
        ]
        return np.sqrt(np.mean(np.square(errors)))

    assert error("isolated") < 1.2 * error("least_squares") + 0.01


def test_a_short_training_learns_the_cohesive_energy(tmp_path):
    """24 cells of 4 atoms, E0 of isolated atoms about 4 eV above; the element mean has 130."""
    frames = []
    for seed in range(24):
        atoms = bulk("Cu", "fcc", a=3.61, cubic=True)
        atoms[1].symbol = "Au"
        atoms.rattle(0.1, seed=seed)
        atoms.calc = EMT()
        labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        frames.append(atoms)
    ase.io.write(tmp_path / "a.xyz", [*frames, lone("Cu", 3.5), lone("Au", 3.8)])
    model = {
        "name": "mace",
        "cutoff": 4.0,
        "channels": 8,
        "lmax": 2,
        "lmax_hidden": 1,
        "correlation": 2,
        "layers": 2,
    }
    training = {"steps": 400, "batch_size": 4, "progress": False}
    run = trained(tmp_path, settings(tmp_path / "a.xyz", "mace", model=model, training=training))
    metrics = PotentialJob().evaluate(run.path).metrics
    assert metrics["energy_per_atom_rmse"] < 40
    assert metrics["force_rmse"] < 400
    assert lone_energies(run.path) == pytest.approx({"Cu": 3.5, "Au": 3.8}, abs=1e-6)


@pytest.mark.parametrize("model", ["mace", "nequip", "se_e2_a"])
def test_forces_are_the_gradient_and_energy_is_smooth_at_the_cutoff(model, alloy):
    potential = prepare(
        settings(alloy, model, model={**MODELS[model], "precision": "float64"})
    ).model
    atoms = ase.Atoms("CuAu", positions=[[0, 0, 0], [0, 0, 2.5]], calculator=Calculator(potential))
    distances = np.linspace(2.5, 4.2, 69)
    energies, forces = [], []
    for distance in distances:
        atoms.positions[1, 2] = distance
        energies.append(atoms.get_potential_energy())
        forces.append(atoms.get_forces()[1, 2])
    h = distances[1] - distances[0]
    slopes = -np.gradient(np.array(energies), h)
    assert np.abs(slopes - forces)[1:-1].max() < 0.02 * max(1.0, np.abs(forces).max())
    assert energies[-1] == pytest.approx(sum(E0.values()), abs=1e-6)
    assert np.abs(np.diff(energies)).max() < 0.2 * (np.ptp(energies) + 0.1)
    atoms.positions[1] = [0.3, 0.2, 2.6]
    analytic, step = atoms.get_forces()[1], 1e-5
    for axis in range(3):
        sides = []
        for sign in (1, -1):
            atoms.positions[1, axis] += sign * step
            sides.append(atoms.get_potential_energy())
            atoms.positions[1, axis] -= sign * step
        assert (sides[1] - sides[0]) / (2 * step) == pytest.approx(analytic[axis], abs=1e-6)


def test_fine_tuning_keeps_e0_of_elements_that_the_data_lack(alloy, tmp_path):
    first = trained(tmp_path, settings(alloy, "mace"), "first")
    frames = [a for a in crystals(16) if "Au" not in a.get_chemical_symbols()]
    path = tmp_path / "copper.xyz"
    for extra, e0 in (([lone("Cu", 7.0)], "auto"), ([], {"Cu": 7.0})):
        ase.io.write(path, [*frames, *extra])
        again = settings(path, "mace", start={"path": str(first.path)}, e0=e0)
        run = trained(tmp_path, again, f"again{len(extra)}")
        assert lone_energies(run.path) == pytest.approx({**E0, "Cu": 7.0}, abs=1e-6)


def test_replayed_frames_keep_their_mean_energy(alloy, tmp_path):
    first = trained(tmp_path, settings(alloy, "mace"), "first")
    again = settings(
        alloy, "mace", start={"path": str(first.path), "replay": [str(alloy)]}, e0="auto"
    )
    ready = prepare(again)
    number = len(ready.train) - 1
    replayed = ready.train[number - 2]
    error = float(replayed["energy"] - ready.model(replayed)["energy"].detach())
    assert abs(error) < 0.5 * float(replayed["num_atoms"])


@pytest.mark.parametrize("model", ["mace", "se_e2_a"])
def test_the_c_library_has_the_energies_of_the_model(model, alloy, tmp_path):
    from scitoolkit.potentials.export.calculator import LibraryCalculator
    from scitoolkit.potentials.export.options import LibraryOptions

    run = trained(tmp_path, settings(alloy, model))
    PotentialJob().export(run.path, tmp_path / "library", LibraryOptions(precision="float64"))
    for name, energy in E0.items():
        atoms = ase.Atoms(name, calculator=LibraryCalculator(tmp_path / "library"))
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-5)


def test_files_of_other_programs_refuse_the_term_by_name(alloy, tmp_path):
    from scitoolkit.potentials.equivariant.mace_writing import write_mace

    model = load_model(trained(tmp_path, settings(alloy, "mace")).path)[0]
    with pytest.raises(DataError, match="mean interaction energy"):
        write_mace(model, tmp_path / "a.pt")


def test_gradients_of_a_pinned_loss(alloy):
    """The loss of a pinned model does not depend on a constant of its network."""
    model = prepare(settings(alloy, "se_e2_a")).model.train()
    graph = prepare(settings(alloy, "se_e2_a")).train[0]
    energy = model(graph)["energy"]
    bias = [p for n, p in model.fitting.named_parameters() if "bias" in n][-1]
    (slope,) = torch.autograd.grad(energy.sum(), bias)
    assert float(slope.abs().max()) < 1e-9
