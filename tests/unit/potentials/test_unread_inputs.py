"""Inputs that a model does not read, sees nothing of, or that are no numbers."""

import logging

import ase.io
import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.db import connect
from pydantic import ValidationError

from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, NumericalError
from scitoolkit.io.atoms import open_atoms
from scitoolkit.potentials import Calculator, PotentialConfig, PotentialJob


def system(path, **arrays):
    """Write a deepmd system of eight water molecules; arrays replace or add files."""
    rng = np.random.default_rng(0)
    water = np.array([[0, 0, 0.12], [0, 0.76, -0.48], [0, -0.76, -0.48]])
    (path / "set.000").mkdir(parents=True)
    (path / "type.raw").write_text("0 1 1\n", encoding="utf-8")
    (path / "type_map.raw").write_text("O H\n", encoding="utf-8")
    held = {
        "coord": (water + rng.normal(size=(8, 3, 3)) * 0.05).reshape(8, 9),
        "box": np.tile(np.eye(3).ravel() * 8, (8, 1)),
        "energy": rng.normal(size=8) - 10,
        "force": rng.normal(size=(8, 9)),
    }
    for name, values in (held | arrays).items():
        np.save(path / "set.000" / f"{name}.npy", values)
    return path


def job(path, model=None, **settings):
    return PotentialConfig.model_validate(
        {
            "data": {"path": [path]},
            "model": {
                "name": "se_e2_a",
                "cutoff": 4.0,
                "cutoff_smooth": 0.5,
                "embedding": [3],
                "axis_neurons": 2,
                "fitting": [4],
                **(model or {}),
            },
            "training": {"steps": 2, "batch_size": 2, "progress": False},
            **settings,
        }
    )


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("spin", (8, 9), "not read: spin.npy"),
        ("atom_pref", (8, 3), "not read: atom_pref.npy"),
        ("fparam", (8, 2), "Fix: model.frame_parameters=2"),
        ("aparam", (8, 3), "Fix: model.atom_parameters=1"),
    ],
)
def test_inputs_that_no_model_reads_are_told(tmp_path, caplog, name, shape, message):
    path = system(tmp_path / "a", **{name: np.ones(shape)})
    with caplog.at_level(logging.WARNING):
        PotentialJob().check(job(path))
    assert message in caplog.text


@pytest.mark.parametrize("suffix", ["xyz", "db"])
def test_charges_and_magnetic_moments_that_no_model_reads_are_told(tmp_path, caplog, suffix):
    frames = [bulk("Fe", "bcc", a=2.9, cubic=True) for _ in range(4)]
    for number, atoms in enumerate(frames):
        atoms.rattle(0.1, seed=number)
        atoms.set_initial_magnetic_moments([2.0, -2.0])
        atoms.info.update(total_charge=float(number), spin=0.0, name=f"charge {number}")
        results = {"energy": -8.0 - number, "forces": np.full((2, 3), 0.1), "charges": [0.1, -0.1]}
        atoms.calc = SinglePointCalculator(atoms, **results)
    path = tmp_path / f"iron.{suffix}"
    if suffix == "db":
        with connect(path) as database:
            for atoms in frames:
                database.write(atoms, total_charge=atoms.info["total_charge"])
    else:
        ase.io.write(path, frames)
    with caplog.at_level(logging.WARNING):
        open_atoms(path).check()
    (line,) = [line for line in caplog.messages if "not read" in line]
    names = line.partition("not read: ")[2].partition(";")[0].split(", ")
    assert {"initial_magmoms", "total_charge"} < set(names)
    assert any(name in names for name in ("charge", "charges"))
    assert not {"spin", "name"} & set(names)


def test_a_cutoff_without_neighbours_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no atom has a neighbour within the cutoff of 0\.6 Å"):
        PotentialJob().check(job(system(tmp_path / "a"), {"cutoff": 0.6}))


def test_two_types_of_one_name_are_refused(tmp_path):
    path = system(tmp_path / "a")
    (path / "type_map.raw").write_text("O H O\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"type_map\.raw: a name is there twice: O H O"):
        open_atoms(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_energies_and_weights_that_are_no_numbers_are_refused(tmp_path, value):
    path = system(tmp_path / "a")
    with pytest.raises(ValidationError, match="finite number"):
        job(path, e0={"O": -5.0, "H": value})
    with pytest.raises(ValidationError, match="finite number"):
        job(path, data={"path": [path], "weights": {"files": {"a": value}}})
    with pytest.raises(ValidationError, match=r"finite number|greater than"):
        job(path, loss={"start_pref_e": value})


def test_a_loss_that_is_infinite_ends_the_dry_run(tmp_path):
    settings = job(system(tmp_path / "a"), loss={"start_pref_e": 1e308, "start_pref_f": 1e308})
    with pytest.raises(NumericalError, match="the loss of the first batch is inf"):
        PotentialJob().check(settings)


def test_a_missing_energy_of_an_element_names_the_entry(tmp_path):
    with pytest.raises(ConfigError, match=r"Fix: e0: \{H: \.\.\.\}"):
        PotentialJob().check(job(system(tmp_path / "a"), e0={"O": -5.0}))
    energies = {"O": -5.0, "H": -1.0, "Ag": -2.0}
    with pytest.raises(ConfigError, match=r"e0 names Ag.* Fix: leave Ag out"):
        PotentialJob().check(job(system(tmp_path / "b"), e0=energies))


def test_a_file_is_no_folder_of_a_potential(tmp_path):
    (tmp_path / "mace.model").write_bytes(b"pickled")
    message = r"mace\.model: a file, .*convert_mace mace\.model mace\.pt"
    with pytest.raises(CheckpointError, match=message):
        Calculator(tmp_path / "mace.model")


def crystal(path, element="Cu", labelled=True, seed=0):
    """Write ten moved cells of a metal, labelled by EMT."""
    frames = []
    for number in range(10):
        atoms = bulk(element, "fcc", cubic=True)
        atoms.rattle(0.1, seed=seed + number)
        atoms.calc = EMT()
        labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **labels) if labelled else None
        frames.append(atoms)
    ase.io.write(path, frames, format="extxyz")
    return path


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labelled": False}, "b.xyz: frame 0: no frame has energies or forces"),
        ({"element": "Au"}, "b.xyz: frame 0: species 'Au' is not known to the model"),
    ],
)
def test_held_out_files_are_read_before_the_training(tmp_path, part, settings, message):
    held_out = crystal(tmp_path / "b.xyz", seed=50, **settings)
    data = {"path": [crystal(tmp_path / "a.xyz")], part: [held_out]}
    with pytest.raises(DataError, match=message):
        PotentialJob().check(job(tmp_path / "a.xyz", data=data))


def test_test_frames_of_the_training_files_are_told_before(tmp_path, caplog):
    path = crystal(tmp_path / "a.xyz")
    with caplog.at_level(logging.WARNING):
        PotentialJob().check(job(path, data={"path": [path], "test": [path]}))
    assert "10 of 10 held-out configurations are also in the training files" in caplog.text


def test_a_loss_of_nothing_is_refused(tmp_path):
    nothing = {f"{when}_pref_{part}": 0 for when in ("start", "limit") for part in "ef"}
    with pytest.raises(ValidationError, match="all weights are 0: nothing to train on"):
        job(crystal(tmp_path / "a.xyz"), loss=nothing)
