"""The NequIP model: symmetries, derivatives, smoothness, E0, training."""

from __future__ import annotations

from pathlib import Path

import ase
import ase.io
import numpy as np
import pytest
import torch

from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.ops.spherical_harmonics import spherical_harmonics
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.graph import collate, configuration_graph
from scitoolkit.potentials.job import PotentialJob, load_model
from scitoolkit.potentials.nequip import NequipConfig

ACAC = Path(__file__).parents[3] / "datasets" / "acac"


def potential(**more):
    settings = {"cutoff": 4.0, "channels": 4, "layers": 3, "radial_widths": [8],
                "precision": "float64", **more}  # fmt: skip
    model = NequipConfig.model_validate(settings).build(["O", "H"]).eval()
    model.average_neighbours.fill_(8.0)
    return model


def cluster(seed=0, atoms=7):
    rng = np.random.default_rng(seed)
    grid = np.array(list(np.ndindex(2, 2, 2)))[:atoms]
    return ase.Atoms(
        "OHHOHHO"[:atoms], positions=4.6 * (grid / 2 + rng.uniform(-0.1, 0.1, (atoms, 3))),
        cell=4.6 * np.eye(3) + rng.uniform(-0.1, 0.1, (3, 3)), pbc=True,
    )  # fmt: skip


def values(model, atoms):
    atoms = atoms.copy()
    atoms.calc = Calculator(model, skin=0)
    return atoms.get_potential_energy(), atoms.get_forces()


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_forces_and_stress_are_the_slopes_of_the_energy(degree):
    model, atoms, step = potential(degree=degree), cluster(), 1e-4
    atoms.calc = Calculator(model, skin=0)
    forces, stress = atoms.get_forces(), atoms.get_stress()
    assert np.abs(forces).max() > 1e-2
    for atom, axis in ((0, 0), (3, 1), (5, 2)):
        energies = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += sign * step
            energies.append(values(model, moved)[0])
        slope = -(energies[0] - energies[1]) / (2 * step)
        assert slope == pytest.approx(forces[atom, axis], abs=1e-6)
    energies = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.set_cell(atoms.cell @ (np.eye(3) + sign * step * np.diag([0, 0, 1])), True)
        energies.append(values(model, moved)[0])
    slope = (energies[0] - energies[1]) / (2 * step) / atoms.get_volume()
    assert slope == pytest.approx(stress[2], abs=1e-7)


def test_rotation_inversion_translation_permutation():
    model, atoms = potential(), cluster()
    energy, forces = values(model, atoms)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0] * (-1) ** seed
        order = rng.permutation(len(atoms))
        moved = atoms[order]
        moved.set_cell(atoms.cell @ rotation)
        moved.positions = (atoms.positions[order] + rng.normal(size=3)) @ rotation
        found = values(model, moved)
        assert found[0] == pytest.approx(energy, rel=1e-12)
        assert np.allclose(found[1], forces[order] @ rotation, atol=1e-12)


def test_features_of_degree_one_turn_with_the_atoms():
    """Not only the energy: the vectors of a hidden layer are vectors."""
    model = potential(layers=2)
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    seen = []
    for turn in (np.eye(3), rotation):
        atoms = cluster()
        atoms.set_cell(atoms.cell @ turn)
        atoms.positions = atoms.positions @ turn
        kept = []
        handle = model.layers[0].register_forward_hook(
            lambda module, given, out, kept=kept: kept.append(out.detach())
        )
        values(model, atoms)
        handle.remove()
        seen.append(kept[0][:, 1:4])
    # The order of a vector's components is that of our harmonics of degree 1.
    order = spherical_harmonics([1], torch.eye(3, dtype=torch.float64), True, "component")
    axes = order / order.norm(dim=1, keepdim=True)
    turn = axes.T @ torch.from_numpy(rotation.T) @ axes
    assert torch.allclose(seen[1], torch.einsum("ij,njc->nic", turn, seen[0]), atol=1e-12)
    assert float(seen[0].abs().max()) > 1e-3


def test_an_atom_leaves_smoothly_through_the_cutoff():
    model = potential()
    energies, forces = [], []
    for distance in 4.0 + np.linspace(-2e-3, 2e-3, 9):
        atoms = ase.Atoms("OHO", positions=[[0, 0, 0], [distance, 0, 0], [0, 1.5, 0]])
        energy, force = values(model, atoms)
        energies.append(energy)
        forces.append(force[1, 0])
    assert np.abs(np.diff(energies)).max() < 1e-8
    assert np.abs(np.diff(forces)).max() < 1e-5


def test_batches_copies_and_lone_atoms():
    model, one, two = potential(), cluster(), cluster(1, 5)
    graphs = [configuration_graph(from_ase(a), ["O", "H"], 4.0) for a in (one, two)]
    with torch.no_grad():
        both = model(collate(graphs))["energy"].tolist()
    assert both == pytest.approx([values(model, a)[0] for a in (one, two)], rel=1e-12)
    energy, forces = values(model, one)
    many = values(model, one.repeat((2, 1, 1)))
    assert many[0] == pytest.approx(2 * energy, rel=1e-11)
    assert np.allclose(many[1], np.tile(forces, (2, 1)), atol=1e-10)
    assert np.abs(values(model, ase.Atoms("O"))[1]).max() == 0


def test_float32_with_the_radial_table_is_near_float64():
    energy, forces = values(potential(), cluster())
    found = values(potential(precision="float32"), cluster())
    assert found[0] == pytest.approx(energy, abs=1e-4 * abs(energy) + 1e-4)
    assert np.abs(found[1] - forces).max() < 1e-4 * np.abs(forces).max()


def test_it_learns_acetylacetone_a_little(tmp_path):
    path = tmp_path / "small.xyz"
    ase.io.write(path, ase.io.read(ACAC / "train_300K.xyz", "::20"), format="extxyz")
    settings = PotentialConfig.model_validate(
        {
            "data": {"path": [path, ACAC / "isolated_atoms.xyz"], "validation": 0.2},
            "model": {"name": "nequip", "cutoff": 4.0, "channels": 8, "degree": 1, "layers": 2,
                      "radial_widths": [16]},
            "loss": {"start_pref_e": 1, "limit_pref_e": 1, "start_pref_f": 100,
                     "limit_pref_f": 100},
            "training": {"steps": 80, "batch_size": 4, "progress": False,
                         "optimizer": {"name": "adam", "lr": 1e-2}},
        }
    )  # fmt: skip
    run = RunDirectory.create(tmp_path / "runs", "nequip", settings)
    PotentialJob().train(settings, run)
    rows = [r["value"] for r in run.read_metrics() if r["name"] == "validation/forces_mse"]
    assert min(rows) < 0.45 * rows[0]
    model, _, _ = load_model(run.path)
    alone = {a.get_chemical_symbols()[0]: a.get_potential_energy()
             for a in ase.io.read(ACAC / "isolated_atoms.xyz", ":")}  # fmt: skip
    assert model.shift.tolist() == [alone[name] for name in "CHO"]
