from __future__ import annotations

import shutil
import sys
from pathlib import Path

import ase
import ase.data
import ase.db
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration, LabelConfig, checked, open_atoms, packages_for
from scitoolkit.io.bond_lengths import bond_ratio
from scitoolkit.io.elements import COVALENT_RADII

DATASETS = Path(__file__).parents[3] / "datasets"


def molecule(seed=0, forces=True, energy=-2.0):
    rng = np.random.default_rng(seed)
    atoms = ase.Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    atoms.positions += 0.01 * rng.normal(size=(3, 3))
    results = {"energy": energy}
    if forces:
        results["forces"] = rng.normal(size=(3, 3))
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def test_deepmd_frames_are_those_of_the_npy_files():
    source = open_atoms(DATASETS / "water_deepmd")
    assert len(source) == 400
    folder = DATASETS / "water_deepmd" / "data_1" / "set.001"
    frame = source[80 + 80 + 5]
    assert frame.energy == pytest.approx(float(np.load(folder / "energy.npy")[5]))
    assert np.array_equal(frame.forces.ravel(), np.load(folder / "force.npy")[5].astype(float))
    assert frame.species.tolist() == ["O"] * 64 + ["H"] * 128
    assert frame.pbc.all()
    source.check()


def test_ase_database_and_folder_together(tmp_path):
    with ase.db.connect(tmp_path / "a.db") as database:
        for seed in range(3):
            database.write(molecule(seed))
    ase.io.write(tmp_path / "b.xyz", [molecule(9)], format="extxyz")
    source = open_atoms([tmp_path / "a.db", tmp_path / "b.xyz"])
    assert len(source) == 4
    assert np.allclose(source[1].forces, molecule(1).get_forces())
    assert np.allclose(source[3].forces, molecule(9).get_forces(), atol=1e-7)


def test_mixed_type_frames_drop_their_padding(tmp_path):
    folder = tmp_path / "set.000"
    folder.mkdir()
    np.savetxt(tmp_path / "type.raw", np.zeros(3, int), fmt="%d")
    (tmp_path / "type_map.raw").write_text("H\nO\n")
    (tmp_path / "nopbc").write_text("")
    np.save(folder / "real_atom_types.npy", np.array([[1, 0, 0], [0, 0, -1]]))
    np.save(folder / "coord.npy", np.arange(18.0).reshape(2, 9))
    np.save(folder / "energy.npy", np.array([-1.0, -2.0]))
    np.save(folder / "force.npy", np.ones((2, 9)))
    source = open_atoms(tmp_path)
    assert source[0].species.tolist() == ["O", "H", "H"]
    assert source[1].species.tolist() == ["H", "H"]
    assert source[1].forces.shape == (2, 3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"forces": np.zeros((3, 3))}, "all forces are zero"),
        ({"forces": None}, "without forces"),
        ({"energy": None}, "without energy"),
    ],
)
def test_labels_that_teach_nothing_are_refused(change, match):
    from dataclasses import replace

    from scitoolkit.io.atoms import AtomsCollection

    frame = Configuration(
        np.array(["O", "H", "H"]),
        molecule().positions,
        np.zeros((3, 3)),
        np.zeros(3, bool),
        -1.0,
        np.ones((3, 3)),
        where="here",
    )
    with pytest.raises(DataError, match=match):
        AtomsCollection([[replace(frame, **change)] * 2]).check()


@pytest.mark.parametrize(("scale", "unit"), [(1 / 0.529177, "bohr"), (0.1, "nm")])
def test_positions_in_another_unit_are_refused_and_converted(tmp_path, scale, unit):
    atoms = molecule()
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.positions *= scale
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    ase.io.write(tmp_path / "a.xyz", atoms, format="extxyz")
    with pytest.raises(DataError, match=f"length_unit={unit}"):
        open_atoms(tmp_path / "a.xyz").check()
    source = open_atoms(tmp_path / "a.xyz", LabelConfig(length_unit=unit))
    source.check()
    assert np.allclose(source[0].positions, molecule().positions, atol=1e-4)


def test_nan_and_periodic_without_cell_are_refused():
    species, positions = np.array(["H", "H"]), np.array([[0.0, 0, 0], [0, 0, 1]])
    bad = Configuration(species, positions * np.nan, np.zeros((3, 3)), np.zeros(3, bool), 0.0)
    with pytest.raises(DataError, match="NaN"):
        checked(bad)
    bad = Configuration(species, positions, np.zeros((3, 3)), np.array([True, True, False]), 0.0)
    with pytest.raises(DataError, match="no such lattice vectors"):
        checked(bad)


def test_shipped_data_opens_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(open_atoms("datasets/water_deepmd/data_3")) == 80
    with pytest.raises(DataError, match="no such file"):
        open_atoms("datasets/water_deepmd/data_9")


def test_deepmd_systems_are_checked_without_ase(tmp_path, monkeypatch):
    water = DATASETS / "water_deepmd" / "data_1"
    copy = tmp_path / "nm"
    shutil.copytree(water, copy)
    for name in ("coord", "box"):
        for file in copy.glob(f"set.*/{name}.npy"):
            np.save(file, np.load(file) / 10)
    for module in [name for name in sys.modules if name.partition(".")[0] == "ase"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert packages_for([water, copy]) == ()
    open_atoms(water).check()
    with pytest.raises(DataError, match="length_unit=nm"):
        open_atoms(copy).check()


def test_the_covalent_radii_are_those_of_ase():
    numbers = [ase.data.atomic_numbers[name] for name in COVALENT_RADII]
    assert numbers == [*range(1, 97)]
    assert ase.data.covalent_radii[numbers].tolist() == [*COVALENT_RADII.values()]


def test_the_nearest_images_of_skewed_cells_are_those_of_the_lattice():
    species, positions = np.array(["Fe", "H"]), np.array([[0.0, 0, 0], [0.2, 1.2, 2.0]])
    a, b, c = np.diag([3.0, 3.0, 9.0])
    for periodic in ([True, True, True], [True, True, False]):
        ratios = [
            bond_ratio(Configuration(species, positions, np.array(cell), np.array(periodic)))
            for cell in ([a, b, c], [a, b + 4 * a, c], [a - 2 * (b + 4 * a), b + 4 * a, c])
        ]
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-12)
