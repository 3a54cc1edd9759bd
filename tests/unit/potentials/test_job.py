from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import ase.io
import numpy as np
import pytest
import xarray as xr
from killed_prediction import leftovers, predict

from scitoolkit import api
from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io import open_atoms
from scitoolkit.potentials import Calculator, prediction
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.saved import load_model

ACAC = Path(__file__).parents[3] / "datasets" / "acac"


def config(path, **more):
    settings = {
        "data": {"path": [path], "validation": 0.2},
        "model": {
            "name": "se_e2_a",
            "cutoff": 4.0,
            "cutoff_smooth": 2.0,
            "embedding": [4, 8],
            "axis_neurons": 4,
            "fitting": [16, 16],
        },
        "training": {
            "epochs": 6,
            "batch_size": 4,
            "progress": False,
            "optimizer": {"name": "adam", "lr": 5e-3},
        },
        **more,
    }
    return PotentialConfig.model_validate(settings)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("acac") / "small.xyz"
    ase.io.write(path, ase.io.read(ACAC / "train_300K.xyz", "::20"), format="extxyz")
    return path


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    settings = config(small)
    run = RunDirectory.create(tmp_path_factory.mktemp("runs"), "test", settings)
    PotentialJob().train(settings, run)
    return run


def test_training_lowers_the_force_error_and_evaluate_says_units(trained, small):
    results = PotentialJob().evaluate(trained.path)
    assert results.units["force_rmse"] == "meV/Å"
    assert results.units["energy_per_atom_rmse"] == "meV/atom"
    frames = ase.io.read(small, ":")
    spread = 1e3 * np.sqrt(np.mean([f.get_forces() ** 2 for f in frames]))
    assert results.metrics["force_rmse"] < 0.95 * spread
    rows = [r for r in trained.read_metrics() if r["name"] == "validation/forces_mse"]
    assert rows[-1]["value"] < rows[0]["value"]


def test_the_errors_are_compared_with_a_pair_potential_and_zero_force(trained, tmp_path):
    """A pair potential of 20 molecules, and of frames that were not trained on."""
    results = PotentialJob().evaluate(trained.path)
    metrics = results.metrics
    assert metrics["force_rmse_of_pair_potential"] < 0.7 * metrics["force_rmse_of_zero_force"]
    assert results.units["force_rmse_of_zero_force"] == "meV/Å"
    assert results.units["energy_per_atom_rmse_of_pair_potential"] == "meV/atom"
    assert results.verdict.ours == metrics["force_rmse"]
    assert results.verdict.rival == metrics["force_rmse_of_pair_potential"]
    assert results.verdict.rival_name == "pair potential"
    (table,) = [t for t in results.tables if t.title == "RMSE against baselines"]
    assert table.columns[2:] == ["model", "pair potential", "zero force"]
    assert [row[0] for row in table.rows] == [
        "energy per atom",
        "force",
        "force on C",
        "force on H",
        "force on O",
    ]
    (forces,) = [t for t in results.tables if t.title == "Forces by element"]
    for row, by_element in zip(table.rows[2:], forces.rows, strict=True):
        assert [row[2], row[4]] == pytest.approx([by_element[2], by_element[4]])
    unseen = tmp_path / "unseen.xyz"
    ase.io.write(unseen, ase.io.read(ACAC / "test_MD_300K.xyz", ":12"), format="extxyz")
    found = PotentialJob().evaluate(trained.path, unseen).metrics
    assert found["force_rmse_of_pair_potential"] < 0.8 * found["force_rmse_of_zero_force"]


def test_a_resumed_training_saves_the_same_pair_potential(trained, small):
    path = trained.path / "model" / "pair_potential.json"
    expected = path.read_bytes()
    path.unlink()
    PotentialJob().train(config(small), trained, resume=True)
    assert path.read_bytes() == expected


def test_a_model_without_a_saved_pair_potential_has_no_baseline(trained, tmp_path):
    surrogate = tmp_path / "surrogate"
    shutil.copytree(trained.path / "model", surrogate)
    (surrogate / "pair_potential.json").unlink()
    results = PotentialJob().evaluate(surrogate)
    assert results.verdict.rival is None
    titles = [t.title for t in results.tables]
    assert titles == ["Errors", "Forces by element", "RMSE by config_type"]
    assert not any("zero_force" in name for name in results.metrics)


def test_repulsion_and_given_energies_do_not_change_the_pair_potential(trained, small, tmp_path):
    """They change the labels that the model is fitted to, not those of the baseline."""
    model = config(small).model.model_dump() | {"zbl": {}}
    settings = config(
        small,
        model=model,
        e0={"C": -1000.0, "H": -13.0, "O": -2000.0},
        training={"steps": 1, "batch_size": 4, "progress": False},
    )
    run = RunDirectory.create(tmp_path, "test", settings)
    PotentialJob().train(settings, run)
    found = PairPotential.load(run.path / "model", 3)
    assert found == PairPotential.load(trained.path / "model", 3)
    assert load_model(run.path)[0].zbl is not None
    metrics = PotentialJob().evaluate(run.path).metrics
    assert np.isfinite(metrics["force_rmse_of_pair_potential"])


def test_evaluate_on_any_extxyz_prints_the_errors(trained, capsys, tmp_path):
    from scitoolkit.cli.main import main

    data = str(tmp_path / "test.xyz")
    ase.io.write(data, ase.io.read(ACAC / "test_MD_300K.xyz", ":12"), format="extxyz")
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", str(trained.path), "--data", data, "--json"])
    assert not stopped.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["configurations"] == 12
    assert found["metrics"]["energy_rmse"] > 0


def test_predictions_open_in_xarray_and_ase(trained, small, tmp_path):
    PotentialJob().predict(trained.path, small, tmp_path / "out.nc")
    PotentialJob().predict(trained.path, small, tmp_path / "out.xyz")
    images = ase.io.read(tmp_path / "out.xyz", ":")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as found:
        assert found.energy.attrs["units"] == "eV"
        first = found.forces.values[found.atom_configuration.values == 0]
        assert np.allclose(first, images[0].get_forces(), atol=1e-6)


def test_extxyz_predictions_have_the_stress_of_periodic_frames(trained, small, tmp_path):
    molecule = ase.io.read(small)
    molecule = ase.Atoms(molecule.numbers, molecule.positions)
    crystal, slab = molecule.copy(), molecule.copy()
    crystal.set_cell([[6.0, 0, 0], [1.0, 6.5, 0], [0, 0.5, 7.0]])
    slab.set_cell([6.0, 6.5, 20.0])
    crystal.pbc, slab.pbc = True, (True, True, False)
    ase.io.write(tmp_path / "in.xyz", [molecule, crystal, slab], format="extxyz")
    PotentialJob().predict(trained.path, tmp_path / "in.xyz", tmp_path / "out.xyz")
    alone, *periodic = ase.io.read(tmp_path / "out.xyz", ":")
    assert "stress" not in alone.calc.results
    calculator = Calculator(load_model(trained.path)[0], skin=0)
    for given, found in zip((crystal, slab), periodic, strict=True):
        given.calc = calculator
        assert np.abs(given.get_stress()).max() > 1e-6
        assert np.allclose(found.get_stress(), given.get_stress(), rtol=0, atol=1e-7)
    PotentialJob().predict(trained.path, tmp_path / "in.xyz", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as file:
        virial = file.virial.values[1]
    read = open_atoms(tmp_path / "out.xyz")[1].virial
    assert np.allclose(read, 0.5 * (virial + virial.T), atol=1e-6 * np.abs(virial).max() + 1e-6)


def test_predictions_need_no_labels_and_pass_over_others(trained, small, tmp_path):
    """Structures of other programs: labels under their names, in another file none."""
    plain = [ase.Atoms(a.numbers, a.positions) for a in ase.io.read(small, ":3")]
    named = [each.copy() for each in plain]
    for each in named:
        each.info["REF_energy"] = -1.0
        each.arrays["REF_forces"] = np.full((len(each), 3), np.nan)
    found = []
    for number, images in enumerate((plain, named)):
        ase.io.write(tmp_path / f"{number}.xyz", images, format="extxyz")
        target = tmp_path / f"{number}.nc"
        PotentialJob().predict(trained.path, tmp_path / f"{number}.xyz", target)
        with xr.open_dataset(target, engine="h5netcdf") as file:
            found.append(file.energy.values)
    assert np.array_equal(*found)


def test_report_has_the_parity_plots(trained):
    PotentialJob().evaluate(trained.path)
    assert api.report(trained.path).stat().st_size > 50_000


def test_a_saved_model_is_the_trained_one(trained):
    model, settings, _ = load_model(trained.path)
    assert settings.type_map == ["C", "H", "O"]
    assert isinstance(settings.model.sel, list)
    assert not model.training


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_file_without_frames(trained, tmp_path, command):
    (tmp_path / "empty.xyz").write_text("", encoding="utf-8")
    output = (tmp_path / "out.xyz",) if command == "predict" else ()
    with pytest.raises(DataError, match=r"empty\.xyz: no frame found"):
        getattr(PotentialJob(), command)(trained.path, tmp_path / "empty.xyz", *output)


def test_a_species_the_model_does_not_know(trained, tmp_path):
    ase.io.write(tmp_path / "n.xyz", ase.Atoms("N2", positions=[[0, 0, 0], [0, 0, 1.1]]))
    with pytest.raises(DataError, match="species: N"):
        PotentialJob().predict(trained.path, tmp_path / "n.xyz", tmp_path / "out.nc")


def test_check_writes_nothing_and_tells_the_neighbours(small):
    told = PotentialJob().check(config(small))
    assert told["samples"] == {"train": 20, "validation": 5}
    assert 5 < told["edges_per_atom"] < 14
    assert np.isfinite(told["first_loss"])


def test_evaluate_on_energies_alone(trained):
    """Isolated atoms: no forces, no edges."""
    results = PotentialJob().evaluate(trained.path, ACAC / "isolated_atoms.xyz")
    assert results.metrics["configurations"] == 3
    assert "force_rmse" not in results.metrics
    assert results.units["energy_rmse"] == "meV"


def test_test_frames_that_were_trained_on_are_counted(trained, small, tmp_path):
    seen = ase.io.read(small, ":3")
    ase.io.write(
        tmp_path / "mixed.xyz",
        [*seen, *ase.io.read(ACAC / "test_MD_300K.xyz", ":2")],
        format="extxyz",
    )
    results = PotentialJob().evaluate(trained.path, tmp_path / "mixed.xyz")
    assert "3 of these configurations" in " ".join(results.summary)


def test_a_published_run_is_a_surrogate(trained, small, tmp_path):
    from scitoolkit.potentials import Calculator

    wanted = PotentialJob().evaluate(trained.path).metrics
    published = api.publish(trained.path, tmp_path / "surrogate")
    found = PotentialJob().evaluate(published, None).metrics
    assert found == wanted
    atoms = ase.io.read(small, 0)
    energies = []
    for precision in (None, "float64", "float32"):
        atoms.calc = Calculator(published, precision=precision)
        energies.append(atoms.get_potential_energy())
    assert energies[0] == energies[1]
    assert energies[2] != energies[1]
    assert energies[2] == pytest.approx(energies[1], abs=1e-2)


def test_a_killed_prediction_keeps_its_parts_and_goes_on(trained, small, tmp_path, monkeypatch):
    PotentialJob().predict(trained.path, small, tmp_path / "whole.nc")
    cut = tmp_path / "cut.nc"  # in parts of 4 molecules of 15 atoms
    place = "scitoolkit.potentials.prediction:ATOMS=60"
    assert predict(3, place, trained.path, small, "-o", cut) == -9
    assert leftovers(tmp_path) == ["cut.nc.parts"]
    assert len(list((tmp_path / "cut.nc.parts").glob("*.npz"))) == 3
    monkeypatch.setattr(prediction, "ATOMS", 60)
    calls, predict_frame = [], prediction.predict_frame
    monkeypatch.setattr(
        prediction, "predict_frame", lambda *given: (calls.append(1), predict_frame(*given))[1]
    )
    PotentialJob().predict(trained.path, small, cut)
    assert leftovers(tmp_path) == []
    with (
        xr.open_dataset(cut, engine="h5netcdf") as found,
        xr.open_dataset(tmp_path / "whole.nc", engine="h5netcdf") as whole,
    ):
        xr.testing.assert_identical(found.load(), whole.load())
        assert set(found.coords) == {"atom_configuration", "species", "direction"}
        assert found.species.values[:3].tolist() == ase.io.read(small).get_chemical_symbols()[:3]
        assert len(calls) == found.sizes["configuration"] - 12


def test_parts_of_extxyz_are_joined_as_they_would_be_written_at_once(
    trained, small, tmp_path, monkeypatch
):
    PotentialJob().predict(trained.path, small, tmp_path / "whole.xyz")
    monkeypatch.setattr(prediction, "ATOMS", 60)
    PotentialJob().predict(trained.path, small, tmp_path / "parts.xyz")
    assert (tmp_path / "parts.xyz").read_bytes() == (tmp_path / "whole.xyz").read_bytes()


@pytest.mark.slow
@pytest.mark.multiproc
def test_two_processes_predict_the_same_bits(trained, small, tmp_path):
    PotentialJob().predict(trained.path, small, tmp_path / "one.nc")
    command = [
        sys.executable,
        "-m",
        "scitoolkit",
        "predict",
        str(trained.path),
        str(small),
        "-o",
        str(tmp_path / "two.nc"),
        "--nproc",
        "2",
    ]
    subprocess.run(command, check=True, capture_output=True)
    with (
        xr.open_dataset(tmp_path / "one.nc", engine="h5netcdf") as one,
        xr.open_dataset(tmp_path / "two.nc", engine="h5netcdf") as two,
    ):
        xr.testing.assert_identical(one.load(), two.load())
