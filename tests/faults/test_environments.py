"""Commands in unusual environments: terminals, locales, time zones, folders, names, and company.

Each ends as in an ordinary environment, or with one message that names what is wrong. Most start
as forks of a process that has imported the package; settings that the interpreter reads when it
starts are tested in new processes.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import warm_start
from fault_commands import FORECAST, ROOT, SEARCH, SNAPSHOT
from warm_start import WarmStart

from scitoolkit.core.config import Config
from scitoolkit.core.run_directory import RunDirectory

NODES = ("run", str(ROOT / "workflows" / "node_classification"), "training.epochs=2")
VLASOV = (
    "generate",
    str(ROOT / "workflows" / "vlasov_landau"),
    "generator.duration=1",
    "generator.frames=2",
    "draw.samples=2",
    "draw.parameters.wavenumber=[0.5,0.4]",
)
COMPRESS = ("compress", str(SNAPSHOT), "small.sci", "--rel", "1e-2", "--for", "speed")
ASCII = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
NAMES = ('it\'s "a" new\nline, Grüße_数据 %s {run} $HOME #?*[a]', "-dash", "long" * 60)


@pytest.fixture(scope="module")
def start():
    """Return a function that runs commands one after the other in a folder."""

    def run(folder: Path, *commands, **variables: str):
        done = []
        for command in commands:
            done.append(warm_start().run(folder, command, variables))
            assert "Traceback" not in done[-1].stderr, f"{command}\n{done[-1].stderr}"
        return done

    return run


@pytest.fixture(scope="module")
def together():
    """Return a function that runs a command twice at the same time, in two processes."""
    servers = [warm_start(), WarmStart({**os.environ, "OMP_NUM_THREADS": "1"})]

    def run(folder: Path, command) -> list[subprocess.CompletedProcess[str]]:
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda server: server.run(folder, command), servers))
        for each in done:
            assert "Traceback" not in each.stderr, each.stderr
        return done

    yield run
    servers[1].close()


def alone(folder: Path, command, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "scitoolkit", *command],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        timeout=120,
        encoding="utf-8",
        errors="backslashreplace",
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only message of a command that failed as it should."""
    assert "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "unexpected" not in errors[0], done.stderr
    return errors[0]


def figures(run: Path) -> dict[str, object]:
    """Return the metrics of a run without its times."""
    found = json.loads((run / "results.json").read_bytes())["metrics"]
    return {name: value for name, value in found.items() if "seconds" not in name}


def test_a_terminal_and_files_in_ascii(tmp_path):
    for command in (("show", "rb2d_emulator"), COMPRESS):
        done = alone(tmp_path, command, **ASCII)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii(), command


def test_runs_are_named_in_utc(monkeypatch, tmp_path):
    names = []
    try:
        for zone in ("UTC0", "Pacific/Kiritimati", "America/St_Johns"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            names.append(RunDirectory.create(tmp_path, "demo", Config()).path.name)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?", name) for name in names)
    assert names == sorted(names)
    assert abs(calendar.timegm(time.strptime(names[-1][:16], "%Y%m%dT%H%M%SZ")) - time.time()) < 60


@pytest.mark.parametrize("cache", ["below a file", "no home"])
def test_a_cache_that_cannot_be_written(cache, start, tmp_path):
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file" / "cache")
    variables = {"SCITOOLKIT_CACHE": home, "HOME": home, "XDG_CACHE_HOME": home}
    if cache == "no home":
        variables = {"HOME": "", "XDG_CACHE_HOME": ""}
    variables |= {"SCITOOLKIT_CFLAGS": "-O1"}  # compiled for each command
    for done in start(tmp_path, COMPRESS, VLASOV, **variables):
        assert done.returncode == 0, done.stderr


def test_no_home_at_all(tmp_path):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "scitoolkit", *COMPRESS],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_folders_of_any_name(name, start, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    target = str(folder / "small.sci")
    for done in start(folder, COMPRESS, ("cp", "sst_forecast", "mine")):
        assert done.returncode == 0, done.stderr
    for done in start(tmp_path, ("decompress", target, str(folder / "again.npy"))):
        assert done.returncode == 0, done.stderr
    assert (folder / "mine" / "README.md").is_file()


def test_a_run_in_a_folder_of_any_name(start, tmp_path):
    folder = tmp_path / NAMES[0]
    folder.mkdir()
    (made,) = start(folder, (*NODES, "--json"))
    run = folder / json.loads(made.stdout)["run"]
    for done in start(tmp_path, ("report", str(run))):
        assert done.returncode == 0, done.stderr


def test_a_name_that_is_too_long_is_refused(start, tmp_path):
    target = str(tmp_path / ("n" * 300))
    commands = (
        ("compress", str(SNAPSHOT), target, "--rel", "1e-2"),
        ("cp", "sst_forecast", target),
        ("inspect", target),
        (*NODES, f"run.root={target}"),
    )
    for done in start(tmp_path, *commands):
        assert done.returncode != 0
        refused(done)
    assert not list(tmp_path.iterdir())


def test_two_runs_and_two_evaluations_in_one_folder(together, tmp_path):
    done = together(tmp_path, (*NODES, "--json"))
    runs = {tmp_path / json.loads(each.stdout)["run"] for each in done}
    assert len(runs) == 2, [each.stderr for each in done]
    one, other = runs
    before = figures(one)
    assert figures(other) == before
    both = together(tmp_path, ("evaluate", str(one)))
    assert [each.returncode for each in both] == [0, 0], [each.stderr for each in both]
    assert figures(one) == before


def test_two_searches_in_one_folder(together, tmp_path):
    (tmp_path / "search.yaml").write_text(SEARCH, encoding="utf-8")
    done = together(tmp_path, ("search", "search.yaml"))
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    tables = [path.read_text() for path in tmp_path.glob("runs/*/*/results.csv")]
    assert [len(table.splitlines()) for table in tables] == [5, 5]


def test_two_writers_of_one_file(start, together, tmp_path):
    for command in (COMPRESS, ("export", FORECAST, "-o", "model.c")):
        done = together(tmp_path, command)
        assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    made = (tmp_path / "small.sci").read_bytes()
    assert start(tmp_path, COMPRESS)[0].returncode == 0
    assert (tmp_path / "small.sci").read_bytes() == made
    code = (tmp_path / "model.c").read_text(encoding="utf-8")
    assert code.endswith("}\n")
    assert code.count("{") == code.count("}")
    assert not list(tmp_path.glob(".*.tmp*"))


def test_two_copies_to_one_folder(together, tmp_path):
    done = together(tmp_path, ("cp", "sst_forecast", "mine"))
    codes = sorted(each.returncode for each in done)
    assert codes in ([0, 0], [0, 2]), [each.stderr for each in done]
    for each in done:
        if each.returncode:
            assert "already exists" in refused(each)
    assert (tmp_path / "mine" / "README.md").is_file()


def test_a_damaged_checkpoint_is_refused_with_the_intact_one(start, tmp_path):
    long = (*NODES[:2], "training.epochs=4", "training.checkpoint.every_epochs=1")
    (made,) = start(tmp_path, (*long, "--json"))
    run = tmp_path / json.loads(made.stdout)["run"]
    kept = sorted(run.glob("checkpoints/step-*"))
    (weights,) = kept[-1].glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    (done,) = start(tmp_path, (*long, "--resume"))
    message = refused(done)
    assert weights.name in message
    assert f"continue from {kept[-2].name}" in message
