"""The tutorials on fields run as they are written, with smaller data and fewer steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
FEWER = {
    "emulation": {
        "draw.samples=30": "draw.samples=6",
        "train: 8, validation: 20, test: 2": "train: 2, validation: 2, test: 2",
        "steps: 1000": "steps: 4",
        "warmup_steps: 50": "warmup_steps: 1",
        "long: 300": "long: 2",
        "evaluate: 30": "evaluate: 3",
        "members: 2, steps: 30": "members: 2, steps: 3",
        "{name: unet, widths: [32, 64]}": "{name: unet, widths: [8]}",
    },
    "super-resolution": {'training.epochs=1"': 'crop.per_epoch=2", "pde.points=16"'},
}


@pytest.mark.parametrize("name", FEWER)
def test_a_tutorial_runs(name, tmp_path):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    for many, few in FEWER[name].items():
        assert many in code
        code = code.replace(many, few)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
