"""`benchmarks/`: every benchmark is found by name, and the files that modules name are there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
TABLES = BENCHMARKS / "page_tables"
MODULES = sorted(path for path in BENCHMARKS.rglob("*.py") if path.parent != TABLES)
# A script or source that a module starts or compiles; what it writes has other names.
BESIDE = re.compile(r"(?:_[a-z0-9_]+|slow_filesystem)\.(?:py|c|cpp|sh)")
OF_OTHERS = {"_meta_registrations.py"}  # of torch


@pytest.fixture(scope="module")
def runner():
    """Return what a process of `run.py` tells of the benchmarks and of where it searches."""
    code = (
        f"import os, sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import run, _places;"
        "print(*(f'{name}={path}' for name, path in run.files().items()), sep='\\n');"
        "print('names', *run.names(), sep=' ');"
        "run.importable(); run.importable(); print(os.environ['PYTHONPATH'])"
    )
    environment = {**os.environ, "PYTHONPATH": "elsewhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    *files, names, path = done.stdout.splitlines()
    return dict(line.split("=", 1) for line in files), names.split()[1:], path.split(os.pathsep)


def test_no_two_modules_have_one_name():
    """Modules import each other by name alone, from whichever folder."""
    counts = Counter(path.stem for path in MODULES)
    assert not [name for name, number in counts.items() if number > 1]


def test_every_module_with_a_run_is_a_benchmark(runner):
    files, names, _ = runner
    assert names == sorted(files)
    assert len(names) > 80
    defines_run = [
        path
        for path in MODULES
        if path.parent != BENCHMARKS
        and not path.name.startswith("_")
        and re.search(r"^def run\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(files.values()) == sorted(map(str, defines_run))


def test_every_folder_with_modules_is_searched_in_front_of_what_is_inherited(runner):
    folders = {str(path.parent) for path in MODULES}
    *searched, inherited = runner[2]
    assert inherited == "elsewhere"
    assert len(searched) == len(set(searched))
    assert set(searched) == folders


def test_every_file_that_a_module_names_lies_beside_it():
    named = [
        (path, node.value)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and BESIDE.fullmatch(node.value)
        and node.value not in OF_OTHERS
    ]
    assert len(named) > 20
    missing = [f"{path.name}: {name}" for path, name in named if not (path.parent / name).exists()]
    assert not missing
