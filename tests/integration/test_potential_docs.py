"""The pages on potentials run as they are written, with fewer steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import run_code
from pages import page, python_blocks

ROOT = Path(__file__).resolve().parents[2]
FEWER = {"training.steps=1500": "training.steps=3", "dynamics.run(200)": "dynamics.run(2)"}


def fewer_frames(folder: Path) -> None:
    shutil.copytree(ROOT / "datasets" / "water_deepmd", folder)
    for file in folder.rglob("*.npy"):
        np.save(file, np.load(file)[:4])


@pytest.mark.parametrize("name", ["tutorials/potentials", "how-to/potentials-from-deepmd-kit"])
def test_a_page_runs(name, tmp_path):
    code = "\n".join(python_blocks(page(name)))
    for many, few in FEWER.items():
        code = code.replace(many, few)
    if "workflows" in code:
        assert "training.steps=3" in code
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    shutil.copytree(ROOT / "workflows" / "water_deepmd", tmp_path / "workflows" / "water_deepmd")
    fewer_frames(tmp_path / "datasets" / "water_deepmd")
    done = run_code(tmp_path, code)
    assert done.code == 0, done.err
