"""Energies, forces and virials of another sign or unit are refused before the training."""

import re

import ase.io
import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import LabelConfig, open_atoms
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.label_consistency import check_consistency

GPA = 160.21766208


def alloy(path, factors=(1.0, 1.0, 1.0), strain=0.03, rattle=0.1):
    """Write 24 cells of CuAu by EMT with energy, forces and stress times factors."""
    rng, frames = np.random.default_rng(0), []
    for seed in range(24):
        atoms = bulk("Cu", "fcc", a=3.7 * (1 + rng.uniform(-strain, strain)), cubic=True)
        atoms[1].symbol = "Au"
        atoms.rattle(rattle, seed=seed)
        atoms.calc = EMT()
        energy, forces, stress = (
            factor * value
            for factor, value in zip(
                factors,
                (atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()),
                strict=True,
            )
        )
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces, stress=stress)
        frames.append(atoms)
    ase.io.write(path, frames)
    return path


def check(path, cutoff=5.0, **labels):
    frames = open_atoms(path, LabelConfig(**labels))
    species = frames.species()
    graphs = GraphSet(frames, range(len(frames)), species, cutoff)
    check_consistency(graphs, len(species), cutoff, LabelConfig(**labels))


@pytest.mark.parametrize(("strain", "rattle"), [(0.03, 0.1), (0.0, 0.1), (0.08, 0.02), (0.05, 0)])
def test_labels_of_one_energy_pass(tmp_path, strain, rattle):
    check(alloy(tmp_path / "a.xyz", strain=strain, rattle=rattle))


@pytest.mark.parametrize("path", ["datasets/acac/train_300K.xyz", "datasets/acac/test_MD_300K.xyz"])
def test_labels_of_molecules_pass(path):
    check(path)


def test_labels_of_water_pass():
    check("datasets/water_deepmd/data_0", cutoff=4.0)


@pytest.mark.parametrize(
    ("places", "order"),
    [([5, 3, 4], "xy yz xz"), ([5, 4, 3], "xy xz yz"), ([3, 5, 4], "yz xy xz")],
)
def test_shears_in_the_order_of_another_program_are_refused(tmp_path, places, order):
    path = alloy(tmp_path / "a.xyz")
    frames = ase.io.read(path, ":")
    for atoms in frames:
        stress = atoms.calc.results["stress"]
        atoms.calc.results["stress"] = stress[[0, 1, 2, *places]]
    ase.io.write(path, frames)
    with pytest.raises(DataError, match=f"shears are in the order {order}"):
        check(path)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ((1, -1, 1), "energies contradict the forces: they have the opposite sign"),
        ((1, 1, -1), "virials contradict the forces: they have the opposite sign"),
        ((1 / 27.2114, 1, 1), "energies contradict the forces: they are 0.0"),
        ((23.06, 1, 1), r"energies contradict the forces: they are 2\d"),
        ((1, 1 / 51.4, 1 / 51.4), "energies contradict the forces: they are [4-6]"),
        ((1, 1, GPA), r"virials contradict the forces: they are 1\d\d times"),
        ((1, 1, 10 * GPA), r"virials contradict the forces: they are 1\.\d+e\+03 times"),
    ],
)
def test_another_sign_or_unit_is_refused(tmp_path, factors, message):
    path = alloy(tmp_path / "a.xyz", factors)
    with pytest.raises(DataError, match=message):
        check(path)


def test_a_stated_unit_of_forces_is_believed(tmp_path, caplog):
    check(alloy(tmp_path / "a.xyz", (1, -1, 1)), force_unit="eV/angstrom")
    assert re.search("opposite sign", caplog.text)


def test_gradients_of_molecules_are_refused(tmp_path):
    frames = ase.io.read("datasets/acac/train_300K.xyz", ":24")
    for atoms in frames:
        labels = dict(atoms.calc.results) | {"forces": -atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **labels)
    ase.io.write(tmp_path / "a.xyz", frames)
    with pytest.raises(DataError, match="opposite sign"):
        check(tmp_path / "a.xyz")
