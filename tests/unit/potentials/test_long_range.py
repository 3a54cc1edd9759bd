"""Charges beyond the cutoff: Madelung constants, derivatives, and a dimer that needs them."""

from __future__ import annotations

import math

import ase
import ase.build
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import (
    Calculator,
    MaceConfig,
    NequipConfig,
    SeE2AConfig,
    write_deepmd,
    write_mace,
)
from scitoolkit.potentials.ewald import open_energies, periodic_energies
from scitoolkit.potentials.export.write import library_source
from scitoolkit.potentials.graph import collate, configuration_graph
from scitoolkit.potentials.long_range import LongRange
from scitoolkit.potentials.long_range_config import LongRangeConfig
from scitoolkit.potentials.zbl import COULOMB

FIXED = {"charges": "fixed", "values": {"Na": 1.0, "Cl": -1.0}}
MADELUNG = {  # Crandall and Delord, Am. J. Phys. 55, 1066 (1987); in units of the nearest distance
    "rocksalt": 1.747564594633182,
    "cesiumchloride": 1.762674773070991,
    "zincblende": 1.638055053388789,
}


def double(values):
    return torch.tensor(np.array(values), dtype=torch.float64)


@pytest.mark.parametrize("structure", sorted(MADELUNG))
@pytest.mark.parametrize("repeat", [(1, 1, 1), (2, 1, 1)])
def test_point_charges_have_the_madelung_energy(structure, repeat):
    """Gaussians far narrower than the nearest distance are point charges to all digits."""
    crystal = ase.build.bulk("NaCl", structure, a=4.0) * repeat
    charges = double([1.0 if s == "Na" else -1.0 for s in crystal.get_chemical_symbols()])
    distances = crystal.get_all_distances(mic=True)
    nearest = distances[distances > 0.1].min()
    energies = periodic_energies(
        double(crystal.positions), charges, double(crystal.cell.array), 0.11 * nearest, 1e-14
    )
    wanted = -0.5 * COULOMB * MADELUNG[structure] / nearest
    assert torch.allclose(energies, torch.full_like(energies, wanted), rtol=1e-11, atol=0)


def test_the_sum_does_not_depend_on_the_cell_that_describes_a_crystal():
    rng = np.random.default_rng(0)
    atoms = ase.Atoms(
        "Na2Cl3", rng.uniform(0, 5, (5, 3)), cell=rng.normal(size=(3, 3)) + 5 * np.eye(3)
    )
    charges = rng.normal(size=5)
    whole = np.array([[1, 1, 0], [0, 1, 0], [0, -2, 1]])
    first, other = atoms.cell.array, whole @ atoms.cell.array
    energies = [
        periodic_energies(double(atoms.positions + 3.1), double(charges), double(cell), 0.9, 1e-12)
        for cell in (first, other)
    ]
    assert torch.allclose(*energies, rtol=1e-9, atol=1e-9)


def test_a_periodic_cluster_in_a_large_cell_is_the_sum_over_pairs():
    """Of no net charge, dipole or quadrupole, so that its images are felt as the seventh power."""
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) / math.sqrt(
        3
    )
    positions = double(np.concatenate([1.5 * axes, 2.0 * corners]))
    charges = double([1.0] * 6 + [-0.75] * 8)
    wanted = open_energies(positions, charges, 0.7)
    energies = periodic_energies(positions, charges, 24.0 * torch.eye(3).double(), 0.7, 1e-10)
    assert torch.allclose(energies.sum(), wanted.sum(), rtol=1e-6, atol=0)
    one = positions[0] - positions[1]
    pair = open_energies(positions[:2], charges[:2], 0.7).sum()
    distance = float(one.norm())
    by_hand = COULOMB * math.erf(distance / 0.7 / math.sqrt(2)) / distance
    assert float(pair) == pytest.approx(by_hand, rel=1e-13)


MODELS = {
    "mace": MaceConfig(
        cutoff=3.5,
        channels=4,
        lmax=1,
        lmax_hidden=1,
        correlation=2,
        radial_widths=[8],
        precision="float64",
        long_range={},
    ),
    "nequip": NequipConfig(**{**NequipConfig.example, "layers": 2, "lmax": 1}, long_range={}),
    "deep_potential": SeE2AConfig(
        cutoff=3.5,
        cutoff_smooth=1.0,
        sel=[20, 20],
        embedding=[4, 8],
        axis_neurons=3,
        fitting=[8],
        precision="float64",
        long_range={},
    ),
}


def rocksalt(seed=0):
    rng = np.random.default_rng(seed)
    atoms = ase.build.bulk("NaCl", "rocksalt", a=5.2, cubic=True)
    atoms.set_cell(atoms.cell.array + rng.uniform(-0.2, 0.2, (3, 3)), scale_atoms=True)
    atoms.positions += rng.uniform(-0.3, 0.3, atoms.positions.shape)
    return atoms


def built(config, **long_range):
    config = config.model_copy(update={"long_range": LongRangeConfig(**long_range)})
    return config.build(["Na", "Cl"]).eval()


@pytest.mark.parametrize("charges", [{}, FIXED])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_forces_and_stress_are_derivatives_of_the_energy(name, charges):
    atoms = rocksalt()
    atoms.calc = Calculator(built(MODELS[name], accuracy=1e-10, **charges), skin=0)
    forces, stress, step = atoms.get_forces(), atoms.get_stress(voigt=False), 1e-4
    for atom, axis in ((0, 0), (3, 2)):
        energies = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += sign * step
            moved.calc = atoms.calc
            energies.append(moved.get_potential_energy())
        assert forces[atom, axis] == pytest.approx(-np.diff(energies[::-1])[0] / 2 / step, abs=2e-6)
    for one, other in ((0, 0), (0, 1)):
        energies = []
        for sign in (1, -1):
            strain = np.zeros((3, 3))
            strain[one, other] += sign * step / 2
            strain[other, one] += sign * step / 2
            moved = atoms.copy()
            moved.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
            moved.calc = atoms.calc
            energies.append(moved.get_potential_energy())
        slope = -np.diff(energies[::-1])[0] / 2 / step / atoms.get_volume()
        assert -stress[one, other] == pytest.approx(slope, abs=1e-7)


def configuration(atoms, **labels):
    return Configuration(
        np.array(atoms.get_chemical_symbols()),
        atoms.positions,
        atoms.cell.array,
        np.array(atoms.pbc),
        **labels,
    )


def test_frames_of_a_batch_do_not_see_each_other():
    model = built(MODELS["mace"])
    molecule = ase.Atoms("NaCl", [[0, 0, 0], [6.0, 0, 0]])
    graphs = [
        configuration_graph(configuration(atoms), model.type_map, model.cutoff)
        for atoms in (rocksalt(0), molecule, rocksalt(1))
    ]
    whole, parts = model(collate(graphs)), [model(graph) for graph in graphs]
    for name, value in whole.items():
        assert torch.allclose(value, torch.cat([part[name] for part in parts]), rtol=1e-11)


def test_lone_atoms_keep_their_energy_and_fixed_charges_leave_the_labels():
    model = built(MODELS["mace"], **FIXED)
    lone = ase.Atoms("Na", [[0, 0, 0]], calculator=Calculator(model))
    assert lone.get_potential_energy() == pytest.approx(float(model.lone_energies()[0]), abs=1e-12)
    atoms = rocksalt()
    labels = {"energy": 3.0, "forces": np.ones((8, 3)), "virial": np.eye(3)}
    graph = configuration_graph(configuration(atoms, **labels), model.type_map, model.cutoff)
    far, residual = model.long_range(graph), model.residual_labels(graph)
    for name in labels:
        assert torch.allclose(residual[name] + far[name], graph[name])
    assert built(MODELS["mace"]).residual_labels(graph) is graph


def dimer_frames(distances):
    """Two ions of charges +-0.8 at distances beyond the cutoff too."""
    frames = []
    for distance in distances:
        charge = COULOMB * 0.64
        force = charge / distance**2  # attraction, along the axis
        forces = np.array([[force, 0, 0], [-force, 0, 0]])
        atoms = ase.Atoms("NaCl", [[0, 0, 0], [distance, 0, 0]])
        frames.append(configuration(atoms, energy=-charge / distance, forces=forces))
    return frames


def trained_errors(config, steps=80):
    """Train on a dissociation curve; return errors of energies between its distances, eV."""
    torch.manual_seed(0)
    model = config.build(["Na", "Cl"])
    frames = dimer_frames(np.linspace(4.0, 12.0, 17))
    graphs = [configuration_graph(frame, model.type_map, model.cutoff) for frame in frames]
    batch = collate(graphs)
    model.fit_statistics([model.residual_labels(batch)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(batch)
        loss = (out["energy"] - batch["energy"]).square().mean()
        loss = loss + (out["forces"] - batch["forces"]).square().mean()
        loss.backward()
        optimizer.step()
    model.eval()
    errors = []
    for frame in dimer_frames(np.linspace(4.25, 11.75, 16)):
        graph = configuration_graph(frame, model.type_map, model.cutoff)
        errors.append(float(model(graph)["energy"][0] - frame.energy))
    return np.array(errors)


def test_only_a_long_range_follows_the_dissociation_of_a_charged_dimer():
    short = SeE2AConfig(
        cutoff=4.5,
        cutoff_smooth=1.0,
        sel=[2, 2],
        embedding=[4, 8],
        axis_neurons=3,
        fitting=[8],
        precision="float64",
    )
    far = short.model_copy(update={"long_range": LongRangeConfig(neurons=8)})
    without, latent = trained_errors(short), trained_errors(far)
    assert np.abs(latent).max() < 0.1 * np.abs(without).max()
    assert np.abs(latent).max() < 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"charges": "fixed"}, "fixed charges have values"),
        ({"values": {"Na": 1.0}}, "latent charges are learned"),
        ({"charges": "fixed", "values": {"Na": float("nan")}}, "finite number"),
        ({"width": float("inf")}, "finite number"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LongRangeConfig(**settings)


def test_charges_that_are_missing_and_odd_boundaries_are_refused():
    with pytest.raises(ConfigError, match="no charge of 'Cl'"):
        LongRange(LongRangeConfig(charges="fixed", values={"Na": 1.0}), ["Na", "Cl"], 4.0, 0)
    with pytest.raises(ConfigError, match="a charge of 'K'"):
        LongRange(LongRangeConfig(charges="fixed", values={"Na": 1.0, "K": 1.0}), ["Na"], 4.0, 0)
    model, atoms = built(MODELS["mace"], **FIXED), rocksalt()
    atoms.calc = Calculator(model)
    del atoms[0]
    with pytest.raises(DataError, match=r"charges of a periodic frame add up to -1\."):
        atoms.get_potential_energy()
    atoms.pbc = [True, True, False]
    with pytest.raises(DataError, match="periodic in three directions, or in none"):
        atoms.get_potential_energy()


def test_files_of_other_codes_and_the_library_refuse_it(tmp_path):
    for name, config in MODELS.items():
        with pytest.raises(ConfigError, match=f"a potential {config.name} with long_range"):
            library_source(built(config), config)
        if name == "mace":
            with pytest.raises(DataError, match=r"does not support model\.long_range"):
                write_mace(built(config), tmp_path / "mace.pt")
        if name == "deep_potential":
            with pytest.raises(DataError, match=r"cannot store model\.long_range"):
                write_deepmd(built(config), tmp_path / "model.dp")
