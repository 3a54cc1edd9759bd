"""The NequIP model: features that rotate, the radial table, E0, training."""

from __future__ import annotations

from pathlib import Path

import ase
import ase.io
import numpy as np
import pytest
import torch

from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.ops.spherical_harmonics import spherical_harmonics
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.saved import load_model

ACAC = Path(__file__).parents[3] / "datasets" / "acac"


def potential(**more):
    settings = {
        "cutoff": 4.0,
        "channels": 4,
        "layers": 3,
        "radial_widths": [8],
        "precision": "float64",
        **more,
    }
    model = NequipConfig.model_validate(settings).build(["O", "H"]).eval()
    model.average_neighbours.fill_(8.0)
    return model


def cluster(seed=0, atoms=7):
    rng = np.random.default_rng(seed)
    grid = np.array(list(np.ndindex(2, 2, 2)))[:atoms]
    return ase.Atoms(
        "OHHOHHO"[:atoms],
        positions=4.6 * (grid / 2 + rng.uniform(-0.1, 0.1, (atoms, 3))),
        cell=4.6 * np.eye(3) + rng.uniform(-0.1, 0.1, (3, 3)),
        pbc=True,
    )


def values(model, atoms):
    atoms = atoms.copy()
    atoms.calc = Calculator(model, skin=0)
    return atoms.get_potential_energy(), atoms.get_forces()


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
            "model": {
                "name": "nequip",
                "cutoff": 4.0,
                "channels": 8,
                "lmax": 1,
                "layers": 2,
                "radial_widths": [16],
            },
            "loss": {
                "start_pref_e": 1,
                "limit_pref_e": 1,
                "start_pref_f": 100,
                "limit_pref_f": 100,
            },
            "training": {
                "steps": 80,
                "batch_size": 4,
                "progress": False,
                "optimizer": {"name": "adam", "lr": 1e-2},
            },
        }
    )
    run = RunDirectory.create(tmp_path / "runs", "nequip", settings)
    PotentialJob().train(settings, run)
    rows = [r["value"] for r in run.read_metrics() if r["name"] == "validation/forces_mse"]
    assert min(rows) < 0.45 * rows[0]
    model, _, _ = load_model(run.path)
    alone = {
        a.get_chemical_symbols()[0]: a.get_potential_energy()
        for a in ase.io.read(ACAC / "isolated_atoms.xyz", ":")
    }
    assert model.lone_energies().tolist() == pytest.approx(
        [alone[name] for name in "CHO"], abs=1e-6
    )
