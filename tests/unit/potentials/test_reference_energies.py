from __future__ import annotations

import logging
from pathlib import Path

import ase
import ase.io
import numpy as np
import pytest
import torch
from prepared_potentials import prepare

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import LabelConfig, open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.reference_energies import training_frames
from scitoolkit.potentials.saved import load_model

ACAC = Path(__file__).parents[3] / "datasets" / "acac"
MOLECULES = ACAC / "train_300K.xyz"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("acac") / "small.xyz"
    ase.io.write(path, ase.io.read(MOLECULES, "::50"), format="extxyz")
    return path


@pytest.fixture(scope="module")
def alone():
    return {
        a.get_chemical_symbols()[0]: a.get_potential_energy()
        for a in ase.io.read(ACAC / "isolated_atoms.xyz", ":")
    }


def config(*files, **more):
    return PotentialConfig.model_validate(
        {
            "data": {"path": list(files)},
            "split": {"validation": 0.2},
            "model": {
                "name": "mace",
                "channels": 4,
                "lmax": 1,
                "layers": 1,
                "correlation": 2,
                "radial_widths": [8],
            },
            **more,
        }
    )


def test_isolated_atoms_among_the_files_are_e0_and_are_not_trained_on(small, alone, caplog):
    with caplog.at_level(logging.INFO):
        ready = prepare(config(small, ACAC / "isolated_atoms.xyz"))
    assert ready.model.type_map == ("C", "H", "O")
    assert ready.model.shift.tolist() == [alone[name] for name in "CHO"]
    assert (len(ready.train), len(ready.validation)) == (8, 2)
    assert "isolated atoms" in ready.e0_source
    assert any("E0 in eV from isolated" in r.getMessage() for r in caplog.records)


def test_without_them_it_is_least_squares(small):
    ready = prepare(config(small))
    assert "least squares" in ready.e0_source
    counts = torch.tensor([5.0, 8.0, 2.0], dtype=torch.float64)
    mean = np.mean([float(ready.train[i]["energy"]) for i in range(len(ready.train))])
    assert float(counts @ ready.model.shift) == pytest.approx(mean, rel=1e-9)


def test_one_species_short(small, tmp_path):
    ase.io.write(tmp_path / "two.xyz", ase.io.read(ACAC / "isolated_atoms.xyz", ":2"))
    ready = prepare(
        config(small, tmp_path / "two.xyz", loss={"start_pref_f": 0, "limit_pref_f": 0})
    )
    assert "least squares" in ready.e0_source
    with pytest.raises(DataError, match="no frame of an isolated atom of"):
        prepare(config(small, tmp_path / "two.xyz", e0="isolated"))


def test_given_energies(small):
    ready = prepare(config(small, e0={"C": -1.0, "H": -2.0, "O": -3.5}))
    assert ready.model.shift.tolist() == [-1.0, -2.0, -3.5]
    with pytest.raises(ConfigError, match="lacks O"):
        prepare(config(small, e0={"C": -1.0, "H": -2.0}))
    with pytest.raises(ConfigError, match="names Q"):
        prepare(config(small, e0={"C": -1.0, "H": -2.0, "O": -3.5, "Q": 0.0}))


def test_what_training_held_out_is_what_evaluate_tests(small, tmp_path):
    """The held-out share is drawn again by `evaluate`, from the same frames."""
    from scitoolkit.core.run_directory import RunDirectory

    settings = config(small, ACAC / "isolated_atoms.xyz", training={"steps": 2, "progress": False})
    run = RunDirectory.create(tmp_path, "e0", settings)
    PotentialJob().train(settings, run)
    assert PotentialJob().evaluate(run.path).metrics["configurations"] == 2


def test_units_are_questioned_after_lone_atoms_are_taken_out(tmp_path, small):
    frames = ase.io.read(small, ":")
    for atoms in frames:
        atoms.positions *= 0.1
    ase.io.write(tmp_path / "nm.xyz", [*frames, *ase.io.read(ACAC / "isolated_atoms.xyz", ":")])
    found = training_frames(open_atoms(tmp_path / "nm.xyz"), "auto", None)
    with pytest.raises(DataError, match="nm"):
        found.frames.check()
    stated = open_atoms(tmp_path / "nm.xyz", LabelConfig(length_unit="nm"))
    frames = training_frames(stated, "auto", None).frames
    frames.check()
    assert np.allclose(frames[0].positions, ase.io.read(small, 0).positions, atol=1e-6)


def test_numbers_of_atoms_are_known_without_reading(tmp_path, small):
    ase.io.write(tmp_path / "some.db", ase.io.read(small, ":2"))
    for path in (small, tmp_path / "some.db", ACAC.parent / "water_deepmd" / "data_3"):
        frames = open_atoms(path)
        assert frames.num_atoms(1) == len(frames[1].species)


def test_energies_that_the_compositions_do_not_determine_are_said_to_be_so(small, caplog):
    """All frames are C5H8O2: one number for three species."""
    with caplog.at_level(logging.WARNING):
        ready = prepare(config(small))
    assert "determine 1 of 3" in ready.e0_source
    assert any("determine 1 of 3 energies E0" in r.getMessage() for r in caplog.records)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ready = prepare(config(small, e0={"C": -1.0, "H": -2.0, "O": -3.0}))
    assert "determine" not in ready.e0_source
    assert not caplog.records


@pytest.mark.parametrize("refit", [True, False])
def test_a_short_training_leaves_no_constant_error_of_energies(small, refit, tmp_path):
    training = {
        "epochs": 1,
        "batch_size": 2,
        "progress": False,
        "optimizer": {"name": "adam", "lr": 0.05},
    }
    settings = config(small, refit_e0=refit, training=training)
    run = RunDirectory.create(tmp_path, "test", settings)
    PotentialJob().train(settings, run)
    model = load_model(run.path)[0]
    graphs = prepare(settings).train
    errors = [
        float(graphs[i]["energy"] - model(graphs[i])["energy"].detach()) for i in range(len(graphs))
    ]
    constant = abs(np.mean(errors))
    assert constant < 1e-6 if refit else constant > 1e-3


def test_a_force_on_a_lone_atom_is_refused(small, tmp_path):
    atoms = ase.Atoms("H", info={"energy": -13.6})
    for pull in (0.01, 0.5):
        atoms.arrays["forces"] = np.array([[0.0, 0.0, pull]])
        ase.io.write(tmp_path / "alone.xyz", atoms)
        frames = open_atoms([small, tmp_path / "alone.xyz"])
        if pull < 0.05:
            training_frames(frames, "auto", None)
            continue
        with pytest.raises(DataError, match=r"alone.xyz: frame 0: a lone atom of H with a force"):
            training_frames(frames, "auto", None)
