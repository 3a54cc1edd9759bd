"""Copies of a configuration are in one part of a split, or are told."""

import logging

import ase
import ase.io
import numpy as np
import pytest
from ase.build import bulk, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.io.atoms import open_atoms
from scitoolkit.potentials import PotentialConfig, PotentialJob
from scitoolkit.potentials.copies import fingerprint, originals
from scitoolkit.potentials.frames import frames_of_job, held_out_share

MODEL = {"name": "se_e2_a", "cutoff": 4.0, "cutoff_smooth": 2.0, "embedding": [2]}
MODEL |= {"axis_neurons": 2, "fitting": [2]}


def labelled(atoms: ase.Atoms, energy: float | None = None) -> ase.Atoms:
    atoms = atoms.copy()
    atoms.calc = EMT()
    energy = atoms.get_potential_energy() if energy is None else energy
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=atoms.get_forces())
    return atoms


def moved(number: int) -> list[ase.Atoms]:
    frames = []
    for seed in range(number):
        atoms = bulk("Cu", "fcc", a=3.61, cubic=True)
        atoms.rattle(0.1, seed=seed)
        frames.append(labelled(atoms))
    return frames


def config(path, **data) -> PotentialConfig:
    return PotentialConfig.model_validate(
        {
            "data": {"path": [path], **data},
            "model": MODEL,
            **({} if "validation" in data else {"split": {"validation": 0.2}}),
            "training": {"steps": 2, "batch_size": 2, "progress": False},
        }
    )


def written(path, frames):
    ase.io.write(path, frames, format="extxyz")
    return path


@pytest.mark.parametrize("seed", range(5))
def test_all_copies_are_in_one_part(tmp_path, seed, caplog):
    frames = moved(20)
    path = written(tmp_path / "a.xyz", [*frames, *frames[3:9], frames[0][[2, 0, 3, 1]], frames[0]])
    settings = config(path).model_copy(update={"seed": seed})
    with caplog.at_level(logging.WARNING):
        train, held_out = held_out_share(settings, open_atoms(path))
    assert "8 of 28 configurations are copies" in caplog.text
    assert sorted([*train, *held_out]) == list(range(28))
    data = open_atoms(path)
    seen = {fingerprint(data[int(i)]) for i in train}
    assert not seen & {fingerprint(data[int(i)]) for i in held_out}
    assert len({fingerprint(data[int(i)]) for i in held_out}) == 4


def test_without_copies_the_drawn_share_is_held_out(tmp_path):
    path = written(tmp_path / "a.xyz", moved(20))
    _, held_out = held_out_share(config(path), open_atoms(path))
    order = np.random.default_rng(config(path).seed).permutation(20)
    assert held_out.tolist() == sorted(order[:4].tolist())


def test_copies_of_one_configuration_are_divided(tmp_path):
    path = written(tmp_path / "a.xyz", moved(1) * 10)
    assert [len(part) for part in held_out_share(config(path), open_atoms(path))] == [8, 2]


def test_cells_of_one_atom_are_no_copies_of_each_other(tmp_path):
    frames = [labelled(bulk("Cu", "fcc", a=a)) for a in np.linspace(3.4, 3.9, 9)]
    assert originals(open_atoms(written(tmp_path / "a.xyz", frames))).tolist() == list(range(9))


def test_a_molecule_in_another_box_is_a_copy_and_zero_has_no_sign(tmp_path):
    boxed, other = molecule("H2O"), molecule("H2O")
    boxed.cell, other.positions = np.eye(3) * 9, other.positions * np.array([-1e-9, 1, 1])
    path = written(tmp_path / "a.xyz", [labelled(boxed), labelled(other)])
    assert originals(open_atoms(path)).tolist() == [0, 0]


def test_copies_with_different_energies_are_told(tmp_path, caplog):
    frames = moved(12)
    path = written(tmp_path / "a.xyz", [*frames, labelled(frames[4], -7.0)])
    with caplog.at_level(logging.WARNING):
        frames_of_job(config(path), generated=False)
    assert "frame 4 and " in caplog.text
    assert "energies" in caplog.text
    assert "-7 eV (1 such pairs)" in caplog.text


def test_validation_frames_of_the_training_files_are_told_before_and_after(tmp_path, caplog):
    frames = moved(14)
    train = written(tmp_path / "a.xyz", frames[:11])
    validation = written(tmp_path / "b.xyz", frames[9:])
    settings = config(train, validation=[validation])
    with caplog.at_level(logging.WARNING):
        PotentialJob().check(settings)
    assert "2 of 5 held-out configurations are also in the training files" in caplog.text
