"""Skips for packages of other environments stay skips; those for packages of this one do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[2] / "helpers"
TEST = """import hidden_skips, pytest
def test_installed():
    pytest.importorskip("broken_here", exc_type=ImportError)
def test_lost():
    pytest.importorskip("absent_here")
def test_elsewhere():
    hidden_skips.ELSEWHERE.add("elsewhere")
    pytest.importorskip("elsewhere")
"""


def test_only_a_package_of_another_environment_is_a_reason_to_skip(tmp_path):
    (tmp_path / "broken_here.py").write_text("import absent_too\n")
    (tmp_path / "test_it.py").write_text(TEST)
    # As module-level calls, which skip while tests are collected.
    module = 'import pytest\npytest.importorskip("broken_here", exc_type=ImportError)\n'
    (tmp_path / "test_module.py").write_text(module + "def test_it(): pass\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "hidden_skips",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            "-o",
            f"pythonpath={HELPERS} .",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 skipped, 1 error" in done.stdout
    assert "absent_here is missing: pip install" in done.stdout
    assert "broken_here is installed, but Skipped: could not import" in done.stdout
