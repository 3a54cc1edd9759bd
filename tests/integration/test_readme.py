"""README's code blocks run, and its numbers equal the stored measurements."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_code, run_process

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Commands that make environments or take minutes; each has a separate test or CI job.
NOT_HERE = ("make", "git", "pip", "cd", "python")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def commands() -> list[str]:
    lines = [
        line.split("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()
    ]
    return [line for line in lines if line and line.split()[0] not in NOT_HERE]


def test_the_first_screen_has_a_command():
    assert "make demo" in "\n".join(README.splitlines()[:25])


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_run(block, tmp_path):
    done = run_code(ROOT, block)
    assert done.code == 0, done.err


@pytest.mark.parametrize("command", commands())
def test_commands_run(command, tmp_path, monkeypatch):
    name, *arguments = shlex.split(command)
    assert name == "scitoolkit"
    for kind in ("workflows", "surrogates", "datasets"):
        (tmp_path / kind).symlink_to(ROOT / kind)
    done = run_process(tmp_path, *arguments)
    assert done.code == 0, done.err


def test_the_table_holds_the_stored_results():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    measured = module.MEASURED.read_text(encoding="utf-8")
    assert module.updated(README) == README, "run: python benchmarks/readme.py"
    assert module.measured(measured) == measured, "run: python benchmarks/readme.py"


def test_the_tables_of_the_pages_hold_the_stored_results():
    command = [sys.executable, str(ROOT / "benchmarks" / "readme.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, "run: python benchmarks/readme.py\n" + done.stderr


def test_the_table_fits_a_screen():
    rows = re.findall(r"^\| .* \|$", README.split("end of results")[0], flags=re.M)
    assert 5 < len(rows) <= 11  # with its head
