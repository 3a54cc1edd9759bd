"""Facts about the package as a whole."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import scitoolkit

ROOT = Path(scitoolkit.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(ROOT)], "scitoolkit.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_no_file_is_longer_than_600_lines():
    long = {p.name: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 600}
    assert not long


def test_importing_the_package_imports_no_torch():
    code = "import sys, scitoolkit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_exists():
    for name in scitoolkit.__all__:
        assert getattr(scitoolkit, name) is not None
