"""Files of atomic configurations as `scitoolkit inspect` and `scitoolkit init` describe them."""

from __future__ import annotations

import json

import pytest
import yaml

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms_summary import summarize_atoms

pytest.importorskip("ase")
LINES = "H 0 0 {z} 0.3 0 -1\nO 0 0 1 -0.3 0 1\n"


def write(path, frames=12, energy="energy", forces="forces", lattice=""):
    """Write frames of a dimer with given names of the labels."""
    columns = f"Properties=species:S:1:pos:R:3:{forces}:R:3"
    text = "".join(
        f"2\n{energy}={-1.0 - 0.01 * k} {columns} {lattice}\n{LINES.format(z=-0.01 * k)}"
        for k in range(frames)
    )
    path.write_text(text)
    return path


def test_labels_are_found_under_their_usual_or_their_only_similar_name(tmp_path):
    usual = summarize_atoms([write(tmp_path / "a.xyz")])
    assert (usual.frames, usual.atoms, usual.species) == (12, (2, 2), ["H", "O"])
    assert usual.energy == pytest.approx((-0.555, -0.5))
    assert usual.forces == pytest.approx((2 * (0.09 + 1) / 6) ** 0.5)
    assert not usual.labels.model_fields_set
    other = summarize_atoms([write(tmp_path / "b.xyz", energy="REF_energy", forces="REF_forces")])
    assert (other.energy, other.forces) == (usual.energy, usual.forces)
    assert other.labels.energy_key == "REF_energy"
    assert other.labels.forces_key == "REF_forces"


def test_of_two_similar_names_the_user_chooses(tmp_path):
    path = write(tmp_path / "a.xyz", energy="dft_energy=3 mace_energy")
    with pytest.raises(DataError, match=r"Allowed: dft_energy, mace_energy\. Fix: data\.labels"):
        summarize_atoms([path])


def test_labels_that_a_frame_lacks_are_not_labels_of_the_files(tmp_path):
    path = write(tmp_path / "a.xyz", frames=3)
    path.write_text(path.read_text() + "1\npbc=F\nHe 0 0 0\n")
    found = summarize_atoms([path])
    assert (found.atoms, found.species) == ((1, 2), ["H", "He", "O"])
    assert (found.energy, found.forces, found.virial) == (None, None, False)


def test_inspect_shows_frames_and_labels(tmp_path, capsys):
    path = write(tmp_path / "a.xyz", frames=90, lattice='Lattice="5 0 0 0 5 0 0 0 5"')
    assert run_cli(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "frames: 90, atoms: 2, periodic directions: 3" in shown
    assert "species: H O (of 64 frames)" in shown
    assert run_cli(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["frames"], found["periodic"]) == ("atoms", 90, [3])
    path.write_text("2\n\nH 0 0\n")
    assert run_cli(["inspect", str(path)]) == 3
    assert f"error: {path}" in capsys.readouterr().err


@pytest.mark.parametrize(("forces", "trained"), [("REF_forces", True), ("velo", False)])
def test_init_writes_the_names_of_the_labels_and_the_job_runs(tmp_path, forces, trained):
    source = write(tmp_path / "a.xyz", energy="REF_energy", forces=forces)
    out = tmp_path / "jobs" / "my.yaml"
    out.parent.mkdir()
    assert run_cli(["init", "potential", str(source), "-o", str(out)]) == 0
    written = yaml.safe_load(out.read_text())
    assert written["data"]["labels"]["energy_key"] == "REF_energy"
    assert ("loss" not in written) is trained
    few = ["training.steps=2", "model.channels=4", f"run.root={tmp_path / 'runs'}"]
    assert run_cli(["train", str(out), *few]) == 0


def test_init_refuses_files_without_energies_and_missing_files(tmp_path, capsys):
    plain = tmp_path / "a.xyz"
    plain.write_text("1\n\nH 0 0 0\n")
    for path, message in ((plain, "frames without energy"), (tmp_path / "no.xyz", "no such file")):
        assert run_cli(["init", "potential", str(path)]) == 3
        assert message in capsys.readouterr().err
