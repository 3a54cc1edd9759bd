"""The tutorials of a Fortran solver and a C program, run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "fortran-solver.md"
BLOCK = re.compile(r"```(bash|python|fortran)[^\n]*\n(.*?)```", re.DOTALL)


@pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran")
def test_the_solver_runs_with_the_surrogate_and_falls_back_outside_its_box(tmp_path):
    blocks = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    for kind in ("python", "fortran", "bash"):
        text = "\n".join(body for name, body in blocks if name == kind)
        if kind == "fortran":
            (tmp_path / "solver.f90").write_text(text)
            continue
        command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-ec", text]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
    fallbacks, difference = re.findall(r": +([\d.]+)", done.stdout)
    assert 0 < int(fallbacks) < 2000
    assert float(difference) < 0.15


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_c_program_calls_the_surrogate_and_reports_a_point_outside_its_range(tmp_path):
    text = TUTORIAL.with_name("c-program.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|c|bash)[^\n]*\n(.*?)^```", text, re.M | re.S)
    code = {kind: "\n".join(body for name, body in blocks if name == kind) for kind, _ in blocks}
    (tmp_path / "main.c").write_text(code["c"])
    for command in (
        [sys.executable, "-W", "error", "-c", code["python"]],
        ["bash", "-ec", code["bash"]],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
    assert ["outside" in line for line in done.stdout.splitlines()] == [False, False, True]
