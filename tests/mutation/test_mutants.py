"""Tests notice a changed constant: every mutant of mutants.yaml has tests that turn red.

`python tests/mutation/test_mutants.py` prints the table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KILLED_SHARE = 0.9
# The changed copy of the package stands before the installed one.
RUN = "import pytest, sys; sys.path.insert(0, {copy!r}); sys.exit(pytest.main({arguments!r}))"


@dataclass(frozen=True)
class Mutant:
    """A change of one file, and the tests that have to fail with it."""

    file: str
    find: str
    replace: str
    tests: tuple[str, ...]


def mutants() -> list[Mutant]:
    rows = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def killed(mutant: Mutant) -> bool:
    """Return whether a test fails in a copy of the package with the change.

    Raises:
        RuntimeError: the tests could not be run at all.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "scitoolkit"
        shutil.copytree(ROOT / "scitoolkit", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for kind in ("datasets", "surrogates", "workflows", "tests", "pyproject.toml"):
            (Path(scratch) / kind).symlink_to(ROOT / kind)
        changed = copy / mutant.file
        text = changed.read_text(encoding="utf-8")
        changed.write_text(text.replace(mutant.find, mutant.replace), encoding="utf-8")
        places = [str(ROOT / "tests" / "unit" / name) for name in mutant.tests]
        arguments = ["-x", "-q", "-m", "not slow and not gpu", "-p", "no:cacheprovider", *places]
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(copy=scratch, arguments=arguments)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.file}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


@pytest.mark.parametrize("mutant", mutants(), ids=lambda m: m.file)
def test_a_mutant_changes_one_place(mutant):
    text = (ROOT / "scitoolkit" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.find) == 1
    assert mutant.find != mutant.replace
    for name in mutant.tests:
        assert (ROOT / "tests" / "unit" / name.partition("::")[0]).exists(), name


@pytest.mark.slow
def test_mutants_are_killed():
    found = {m.file: killed(m) for m in mutants()}
    share = sum(found.values()) / len(found)
    assert share >= KILLED_SHARE, [file for file, dead in found.items() if not dead]


if __name__ == "__main__":
    for each in mutants():
        print("killed  " if killed(each) else "SURVIVED", each.file, flush=True)
