"""Commands that are killed, interrupted or run out of disk at any change of a file.

Every fault is drawn by a seed. What is asked for each: no traceback, an exit code of ours with one
message, no file that looks finished and is not, and a second start that ends like one without it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fault_commands import COMMANDS, Command

KINDS = ("kill", "term", "int", "ENOSPC", "EROFS", "EMFILE", "EIO")
CODES = {1, 2, 3, 4, 130}
FEW = 2  # faults a command in `make test`
# In `make test-slow`, of all commands together; SCITOOLKIT_FAULTS=6000 draws more.
ALL = int(os.environ.get("SCITOOLKIT_FAULTS", "1020"))
MANY = max(FEW, -(-ALL // len(COMMANDS)))


@pytest.fixture(scope="session")
def faulty(tmp_path_factory) -> Path:
    """The library that makes changes of files fail."""
    library = tmp_path_factory.mktemp("faults") / "faulty.so"
    source = Path(__file__).with_name("faulty_filesystem.c")
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def _start(
    folder: Path, arguments: tuple[str, ...], library: Path | None = None, **fault: object
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if library is not None:
        environment |= {
            "LD_PRELOAD": str(library),
            "FAULT_PREFIX": str(folder),
            **{f"FAULT_{name.upper()}": str(value) for name, value in fault.items()},
        }
    return subprocess.run(
        [sys.executable, "-m", "scitoolkit", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def _prepared(folder: Path, command: Command) -> Path:
    folder.mkdir()
    for name, text in command.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if command.prepare:
        assert _start(folder, command.prepare).returncode == 0
    return folder


@pytest.fixture(scope="session")
def undisturbed(faulty, tmp_path_factory):
    """Return what a command leaves without a fault, and how many changes it makes."""
    known: dict[str, tuple[object, int]] = {}

    def of(name: str) -> tuple[object, int]:
        if name not in known:
            command = COMMANDS[name]
            folder = _prepared(tmp_path_factory.mktemp("undisturbed") / name, command)
            count = folder.parent / f"{name}.count"
            done = _start(folder, command.arguments, faulty, count=count)
            assert done.returncode == 0, done.stderr
            changes = max(map(int, count.read_text(encoding="utf-8").split()))
            known[name] = command.outcome(folder), changes
        return known[name]

    return of


def _survives(name: str, seed: int, folder: Path, faulty: Path, undisturbed) -> None:
    command = COMMANDS[name]
    expected, changes = undisturbed(name)
    draw = random.Random(f"{name}-{seed}")
    kind, at = KINDS[(seed + sorted(COMMANDS).index(name)) % len(KINDS)], draw.randint(1, changes)
    said = f"{name}: {kind} at change {at} of {changes}"
    _prepared(folder, command)

    first = _start(folder, command.arguments, faulty, kind=kind, at=at)
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
        resumed = _start(folder, (*again, "--resume"))
        if resumed.returncode == 0:
            assert command.outcome(folder) == expected, said
            return
        assert "no run to resume" in resumed.stderr, f"{said}\n{resumed.stderr}"
    elif first.returncode == 0:
        assert command.outcome(folder) == expected, said
        return
    second = _start(folder, again)
    assert second.returncode == 0, f"{said}\n{second.stderr}"
    assert command.outcome(folder) == expected, said


@pytest.mark.parametrize("seed", range(FEW))
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_fault_loses_nothing(name, seed, tmp_path, faulty, undisturbed):
    _survives(name, seed, tmp_path / "work", faulty, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))  # varies fastest: a part is a fair sample
@pytest.mark.parametrize("seed", range(FEW, MANY))
def test_many_faults_lose_nothing(name, seed, tmp_path, faulty, undisturbed):
    _survives(name, seed, tmp_path / "work", faulty, undisturbed)
