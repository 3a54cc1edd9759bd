"""Bad input ends in one message with the right exit code, and leaves no half-written run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from scitoolkit.io.fields import open_fields, write_fields

WORKFLOW = Path(__file__).resolve().parents[2] / "workflows" / "sst_forecast"


@pytest.fixture
def spoiled(small_sst, tmp_path):
    """Return a function that writes a changed copy of the small series."""

    def write(change) -> Path:
        with open_fields(small_sst, "sst") as dataset:
            changed = change(dataset.load())
        return write_fields(changed, tmp_path / "spoiled.nc")

    return write


def check(outcome, code: int, *words: str) -> None:
    assert outcome.code == code, outcome.err
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, outcome.err
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


def test_truncated_file(cli, small_sst, tmp_path):
    path = tmp_path / "cut.nc"
    data = small_sst.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    check(cli("run", WORKFLOW, f"data.path={path}"), 3, "cut.nc")


def test_missing_file_and_variable(command, small_sst):
    check(command("run", WORKFLOW, "data.path=nope.nc"), 3, "nope.nc")
    outcome = command("run", WORKFLOW, f"data.path={small_sst}", "data.variable=sts")
    check(outcome, 3, "sts", "sst")


def test_packed_integers_are_not_taken_for_compressed(command, small_sst, tmp_path):
    with open_fields(small_sst, "sst") as dataset:
        dataset["time"].encoding |= {"units": "days since 1950-01-01", "calendar": "standard"}
        packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": -32768}
        dataset.to_netcdf("packed.nc", engine="h5netcdf", encoding={"sst": packing})
    outcome = command("compress", "packed.nc", "small.nc", "--rel", "1e-3")
    check(outcome, 3, "packed.nc: no float variable; sst is packed in int16", "Fix: unpack first")
    assert not (tmp_path / "small.nc").exists()
    unpack = outcome.err.partition("unpack first: ")[2].strip()
    subprocess.run(unpack.replace("python", sys.executable, 1), shell=True, check=True)
    with h5py.File("unpacked.nc") as file:
        assert file["time"].attrs["units"] == "days since 1950-01-01"
    assert command("compress", "unpacked.nc", "small.nc", "--rel", "1e-3").code == 0


def test_a_grid_is_no_graph_and_no_content_to_copy(command, small_sst):
    check(command("init", "graph", small_sst), 3, "no graph in the file", "edge_index")
    check(command("cp", small_sst, "copy.nc"), 2, "Zarr", f"Fix: scitoolkit cp {small_sst} copy")


def test_init_makes_folders_and_quotes_what_to_paste(command, small_sst, tmp_path):
    outcome = command("init", "forecast", small_sst, "-o", "new folder/my.yaml")
    assert outcome.out.endswith("next: scitoolkit run 'new folder/my.yaml' --dry-run\n")
    assert (tmp_path / "new folder" / "my.yaml").exists()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_error(closed, small_sst):
    command = f"{shlex.quote(sys.executable)} -m scitoolkit inspect {small_sst} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_empty_folder_instead_of_a_file(command, tmp_path):
    (tmp_path / "empty").mkdir()
    check(command("run", WORKFLOW, f"data.path={tmp_path / 'empty'}"), 3, "empty")


def test_data_instead_of_a_configuration(command, small_sst, tmp_path):
    outcome = command("run", small_sst)
    check(outcome, 2, "not a configuration", f"Fix: scitoolkit init TASK {small_sst}")
    (tmp_path / "old.yaml").write_bytes("domain: forecasting\n# à\n".encode("latin-1"))
    check(command("run", "old.yaml"), 2, "old.yaml:2", "0xe0", "Fix: iconv")


def test_a_missing_gpu_is_told_before_the_data_are_read(command):
    outcome = command("run", WORKFLOW, "training.device=cuda", "data.path=nope.nc")
    check(outcome, 1, "training.device=cuda", "Fix: training.device=cpu")


def test_all_nan_field(command, spoiled):
    path = spoiled(lambda d: d.assign(sst=d.sst * np.nan))
    check(command("run", WORKFLOW, f"data.path={path}"), 3, "sst")


def test_constant_field(command, spoiled):
    path = spoiled(lambda d: d.assign(sst=d.sst * 0 + 15))
    check(command("run", WORKFLOW, f"data.path={path}"), 3, "constant")


def test_one_time_step(command, spoiled):
    path = spoiled(lambda d: d.isel(time=slice(1)))
    check(command("run", WORKFLOW, f"data.path={path}"), 3, "time")


def test_wrong_units(command, spoiled):
    def kelvin(dataset):
        dataset.sst.attrs["units"] = "K"
        return dataset

    outcome = command("run", WORKFLOW, f"data.path={spoiled(kelvin)}", "data.units=degC")
    check(outcome, 3, "'K'", "'degC'")


def test_unknown_keys_are_all_named_at_once(command, tmp_path):
    outcome = command("run", WORKFLOW, "training.learning_rate=1", "data.variabel=sst")
    check(outcome, 2, "training.optimizer.lr", "data.variable")
    assert not (tmp_path / "runs").exists()


def test_unwritable_run_directory(command, tmp_path):
    (tmp_path / "file").write_text("")
    check(command("run", WORKFLOW, "run.root=file/runs"), 2, "run.root")


@pytest.mark.multiproc
def test_world_size_that_does_not_divide_the_batch(cli, tmp_path):
    outcome = cli("run", WORKFLOW, "training.batch_size=5", "training.strategy=ddp", "--nproc", "2")
    assert outcome.code == 2, outcome.err
    assert "batch_size" in outcome.err
    assert "Traceback" not in outcome.err


def test_resume_without_a_run(command):
    check(command("run", WORKFLOW, "--resume"), 2, "no run to resume")


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 256 KiB; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount a small tmpfs: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_disk_full_while_saving(cli, small_sst, tiny_disk):
    outcome = cli("run", WORKFLOW, f"data.path={small_sst}", f"run.root={tiny_disk}")
    assert outcome.code in (1, 2), outcome.err
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, outcome.err
    assert "No space left" in outcome.err
    assert not list(tiny_disk.rglob("*.tmp*"))


@pytest.mark.parametrize("name", ["again.npy", "again.f32"])
def test_disk_full_while_decompressing(command, name, tmp_path, tiny_disk):
    np.save(tmp_path / "x.npy", np.linspace(0, 1, 100_000, dtype="f4"))
    assert command("compress", tmp_path / "x.npy", tmp_path / "x.sci", "--abs", "1e-3").code == 0
    check(command("decompress", tmp_path / "x.sci", tiny_disk / name), 1, name, "No space left")
    assert not list(tiny_disk.iterdir())
