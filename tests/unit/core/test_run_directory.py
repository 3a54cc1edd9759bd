from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
import xarray as xr
import yaml

from scitoolkit.cli.main import run_cli
from scitoolkit.core import run_directory
from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import replacing, write_atomic
from scitoolkit.core.results import Results, Table
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.fields import write_fields


class Small(Config):
    a: int = 1


def test_a_new_run_holds_its_config_and_environment(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", Small(a=2))
    assert run.path.parent == tmp_path / "demo"
    assert yaml.safe_load(run.config_path.read_text()) == {"a": 2}
    env = json.loads((run.path / "env.json").read_text())
    assert env["packages"]["torch"].startswith("2.")
    assert RunDirectory.open(run.path) == run


def test_two_runs_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory.time, "strftime", lambda *_: "20260101T000000Z")
    first, second = (RunDirectory.create(tmp_path, "demo", Small()) for _ in range(2))
    assert first.path != second.path


def test_metrics_survive_a_cut_last_line_and_a_resume(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", Small())
    run.log_metrics({"loss": 2.0, "rmse": math.nan}, step=1, units={"rmse": "K"})
    run.log_metrics({"loss": 1.0}, step=2)
    run.log_metrics({"loss": 0.5}, step=2)
    with run.metrics_path.open("a") as file:
        file.write('{"name": "lo')
    rows = list(run.read_metrics())
    assert [(r["name"], r["value"], r["step"]) for r in rows] == [
        ("loss", 2.0, 1),
        ("rmse", None, 1),
        ("loss", 0.5, 2),
    ]
    assert rows[1]["unit"] == "K"


def test_the_first_metric_after_a_cut_line_is_read(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", Small())
    run.log_metrics({"loss": 2.0}, step=1)
    run.log_metrics({"loss": 1.0}, step=2)
    os.truncate(run.metrics_path, run.metrics_path.stat().st_size - 20)
    run.log_metrics({"loss": 0.5}, step=3)
    run.log_metrics({"loss": 0.2}, step=4)
    assert [(row["value"], row["step"]) for row in run.read_metrics()] == [
        (2.0, 1),
        (0.5, 3),
        (0.2, 4),
    ]
    assert not [line for line in run.metrics_path.read_text().splitlines() if not line]


def test_an_unwritable_root_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run\.root"):
        RunDirectory.create(tmp_path / "file", "demo", Small())


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"config\.yaml"):
        RunDirectory.open(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("way", ["write_atomic", "replacing", "compress", "fields"])
def test_an_output_file_is_on_disk_before_it_has_its_name(way, tmp_path, monkeypatch):
    path, flushed, sync = tmp_path / "a.out", set(), os.fsync

    def fsync(file):
        assert not path.exists()
        flushed.add(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    if way == "write_atomic":
        write_atomic(path, "text")
    elif way == "replacing":
        with replacing(path) as temporary:
            temporary.write_text("text")
    elif way == "compress":
        np.save(tmp_path / "x.npy", np.linspace(0, 1, 1000, dtype="f4"))
        assert run_cli(["compress", str(tmp_path / "x.npy"), str(path), "--abs", "1e-3"]) == 0
    else:
        write_fields(xr.Dataset({"u": ("x", [1.0, 2.0])}), path)
    assert path.stat().st_ino in flushed


def test_results_round_trip_and_refuse_what_is_none(tmp_path):
    results = Results(title="t", tables=[Table(title="a", columns=["x"], rows=[[1.5], [None]])])
    results.write(tmp_path)
    assert Results.read(tmp_path) == results
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(DataError, match="not a results file"):
        Results.read(tmp_path)
    (tmp_path / "results.json").unlink()
    with pytest.raises(DataError, match="scitoolkit evaluate"):
        Results.read(tmp_path)


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="a device, pipe or socket"):
        write_atomic(pipe, "text")
    with pytest.raises(ConfigError, match="a device, pipe or socket"), replacing(pipe):
        pytest.fail("nothing is written")
    assert pipe.is_fifo()
