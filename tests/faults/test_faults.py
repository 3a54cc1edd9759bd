"""Commands that are killed, interrupted or run out of disk at any change of a file.

Every fault is drawn by a seed. What is asked for each: no traceback, an exit code of ours with one
message, no file that looks finished and is not, and a second start that ends like one without it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from fault_commands import COMMANDS, Command
from warm_start import WarmStart

KINDS = ("kill", "term", "int", "ENOSPC", "EROFS", "EMFILE", "EIO")
CODES = {1, 2, 3, 4, 130}
# One fault each in `make test`: commands that write a file, a folder, a run that resumes, metrics.
QUICK = ("compress", "evaluate", "partition", "predict", "train")
# In `make test-slow`, of all commands together; SCITOOLKIT_FAULTS=6000 draws more.
ALL = int(os.environ.get("SCITOOLKIT_FAULTS", "1020"))
MANY = -(-ALL // len(COMMANDS))


@pytest.fixture(scope="session")
def faulty(tmp_path_factory) -> Path:
    """The library that makes changes of files fail."""
    library = tmp_path_factory.mktemp("faults") / "faulty.so"
    source = Path(__file__).with_name("faulty_filesystem.c")
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="session")
def start(faulty, tmp_path_factory):
    """Return a function that runs a command in a folder, with a fault if one is stated."""
    server = WarmStart(
        {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(faulty)},
        prepare="fault_begin",
        finish="fault_end",
    )

    def run(folder: Path, arguments: tuple[str, ...], **fault: object):
        runs = [str(path) for path in folder.glob("runs/*/*")]
        words = [runs[0] if word == "RUN" else word for word in arguments]
        variables = {f"FAULT_{name.upper()}": str(value) for name, value in fault.items()}
        return server.run(folder, words, {"FAULT_PREFIX": str(folder), **variables})

    yield run
    server.close()


@pytest.fixture(scope="session")
def prepared(start, tmp_path_factory):
    """Return a function that makes a folder with the input of a command."""
    templates: dict[tuple[str, ...], Path] = {}

    def make(folder: Path, command: Command) -> Path:
        if command.prepare and command.prepare not in templates:
            template = tmp_path_factory.mktemp("prepared")
            done = start(template, command.prepare)
            assert done.returncode == 0, done.stderr
            templates[command.prepare] = template
        if command.prepare:
            shutil.copytree(templates[command.prepare], folder, symlinks=True)
        else:
            folder.mkdir()
        for name, text in command.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def undisturbed(start, prepared, tmp_path_factory):
    """Return what a command leaves without a fault, and how many changes it makes."""
    known: dict[str, tuple[object, int]] = {}

    def of(name: str) -> tuple[object, int]:
        if name not in known:
            command = COMMANDS[name]
            folder = prepared(tmp_path_factory.mktemp("undisturbed") / "work", command)
            count = folder.parent / f"{name}.count"
            done = start(folder, command.arguments, count=count)
            assert done.returncode == 0, done.stderr
            changes = max(map(int, count.read_text(encoding="utf-8").split()))
            known[name] = command.outcome(folder), changes
        return known[name]

    return of


def _survives(name: str, seed: int, folder: Path, start, prepared, undisturbed) -> None:
    command = COMMANDS[name]
    expected, changes = undisturbed(name)
    draw = random.Random(f"{name}-{seed}")
    kind, at = KINDS[(seed + sorted(COMMANDS).index(name)) % len(KINDS)], draw.randint(1, changes)
    said = f"{name}: {kind} at change {at} of {changes}"
    prepared(folder, command)

    first = start(folder, command.arguments, kind=kind, at=at)
    assert "Traceback" not in first.stderr, f"{said}\n{first.stderr}"
    if kind == "kill":
        assert first.returncode != 0, said
    elif first.returncode != 0:
        assert first.returncode in CODES, f"{said}: exit code {first.returncode}\n{first.stderr}"
        errors = [line for line in first.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, f"{said}\n{first.stderr}"
        assert "unexpected" not in errors[0], f"{said}\n{first.stderr}"

    again = command.arguments
    if command.resumes:
        resumed = start(folder, (*again, "--resume"))
        if resumed.returncode == 0:
            assert command.outcome(folder) == expected, said
            return
        assert "no run to resume" in resumed.stderr, f"{said}\n{resumed.stderr}"
    elif first.returncode == 0:
        assert command.outcome(folder) == expected, said
        return
    second = start(folder, again)
    if not (command.once and "already exists" in second.stderr):
        assert second.returncode == 0, f"{said}\n{second.stderr}"
    assert command.outcome(folder) == expected, said


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_loses_nothing(name, tmp_path, start, prepared, undisturbed):
    _survives(name, 0, tmp_path / "work", start, prepared, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))  # varies fastest: a part is a fair sample
@pytest.mark.parametrize("seed", range(MANY))
def test_many_faults_lose_nothing(name, seed, tmp_path, start, prepared, undisturbed):
    _survives(name, seed, tmp_path / "work", start, prepared, undisturbed)
