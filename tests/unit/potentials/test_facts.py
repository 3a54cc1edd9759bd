"""A potential keeps the facts of its frames, and compares other frames with them."""

from __future__ import annotations

import logging

import ase
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.core.data_differences import compare
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.facts import NEAREST, frames_facts
from scitoolkit.potentials.job import PotentialJob


def water(number, seed=0, scale=1.0, species="OHH", labels=True):
    generator = np.random.default_rng(seed)
    for _ in range(number):
        positions = np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
        positions = scale * (positions + generator.normal(0, 0.03, (3, 3)))
        atoms = ase.Atoms(species, positions=positions)
        if labels:
            forces = generator.normal(0, 0.3, (3, 3))
            atoms.calc = SinglePointCalculator(atoms, energy=-14.0, forces=forces)
        yield atoms


def write(path, frames, **renamed):
    ase.io.write(path, list(frames), format="extxyz")
    text = path.read_text(encoding="utf-8")
    for name, other in renamed.items():
        text = text.replace(f"{name}=", f"{other}=").replace(f":{name}:", f":{other}:")
    path.write_text(text, encoding="utf-8")
    return path


def config(path, **more):
    model = {
        "name": "mace",
        "cutoff": 3.0,
        "channels": 4,
        "lmax": 1,
        "layers": 1,
        "correlation": 2,
        "radial_widths": [8],
    }
    training = {"steps": 2, "batch_size": 2, "progress": False}
    return PotentialConfig.model_validate(
        {"data": {"path": [path]}, "model": model, "training": training, **more}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("facts")
    settings = config(write(folder / "water.xyz", water(12)))
    run = RunDirectory.create(folder, "water", settings)
    PotentialJob().train(settings, run)
    return run.path


def test_facts_are_stored_and_equal_themselves(trained):
    facts = ModelFolder(trained).facts()
    assert facts.species == ("H", "O")
    assert facts.labels == {"energy": "eV", "forces": "eV/Å"}
    assert [dim.period for dim in facts.dims] == [None] * 3
    assert 0.8 < facts.parameters[NEAREST][0] <= facts.parameters[NEAREST][1] < 1.2
    assert compare(facts, facts) == []
    assert DataFacts.from_json(facts.to_json()) == facts


def use(command, trained, path, folder):
    """Hand frames to a trained model in one of four ways."""
    if command == "evaluate":
        PotentialJob().evaluate(trained, path)
    elif command == "predict":
        PotentialJob().predict(trained, path, folder / "out.nc")
    elif command == "start":
        PotentialJob().check(config(path, start={"path": str(trained)}))
    else:
        good = write(folder / "good.xyz", water(8, 2))
        PotentialJob().check(config(good, start={"path": str(trained), "replay": [str(path)]}))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ({"species": "OHF"}, "species: F|do not know F"),
        ({"scale": 1 / 0.529177}, "in bohr"),
        ({"scale": 0.1}, "in nm"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "predict", "start", "replay"])
def test_other_frames_are_refused(trained, tmp_path, command, frames, message):
    path = write(tmp_path / "other.xyz", water(8, 1, **frames))
    with pytest.raises(DataError, match=message):
        use(command, trained, path, tmp_path)
    assert not (tmp_path / "out.nc").exists()


def test_frames_of_the_same_kind_pass(trained, tmp_path):
    path = write(tmp_path / "other.xyz", water(8, 1))
    assert PotentialJob().evaluate(trained, path).metrics["configurations"] == 8
    bare = write(tmp_path / "bare.xyz", water(8, 1, labels=False))
    PotentialJob().predict(trained, bare, tmp_path / "out.nc")
    boxed = list(water(4, 3))
    for atoms in boxed:
        atoms.set_cell([9, 9, 9])
        atoms.pbc = True
    PotentialJob().evaluate(trained, write(tmp_path / "boxed.xyz", boxed))


def test_labels_under_another_name_are_read_by_evaluate(trained, tmp_path, caplog):
    """`evaluate --data` takes no names of labels: the only similar one is read, and logged."""
    path = write(tmp_path / "ref.xyz", water(6, 1), energy="REF_energy", forces="REF_forces")
    with caplog.at_level(logging.WARNING):
        assert "force_rmse" in PotentialJob().evaluate(trained, path).metrics
    assert any("REF_forces" in record.getMessage() for record in caplog.records)


def test_old_folders_still_open(trained, tmp_path, caplog):
    import shutil

    copy = tmp_path / "old"
    shutil.copytree(trained, copy)
    (copy / "model" / "facts.json").unlink()
    path = write(tmp_path / "other.xyz", water(8, 1))
    with caplog.at_level(logging.INFO):
        assert PotentialJob().evaluate(copy, path).metrics["configurations"] == 8
    assert any("no facts" in record.getMessage() for record in caplog.records)


def test_facts_of_mixed_frames(tmp_path):
    frames = [*water(3, 1, labels=False), *water(3, 2)]
    for atoms in frames[::2]:
        atoms.set_cell([9, 9, 9])
        atoms.pbc = [True, True, False]
    facts = frames_facts(open_atoms(write(tmp_path / "mixed.xyz", frames)))
    assert set(facts.labels) == {"energy", "forces"}
    assert [dim.period is not None for dim in facts.dims] == [True, True, False]
