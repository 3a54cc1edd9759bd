"""The Python blocks of each tutorial run in order in a separate folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs"


RUN = (
    "tutorials/search-ten-lines",
    "how-to/super-resolution",
    "how-to/search-from-optuna",
    "how-to/training-from-lightning",
    "generators/vlasov",
    "tutorials/campaigns",
    "tutorials/trainer",
    "tutorials/generate-and-train",
)
SHORTER = {"epochs: 20": "epochs: 2", '"draw.samples=10"': '"draw.samples=6"',
           "train: 6, validation: 2, test: 2": "train: 4, validation: 1, test: 1",
           "sample_00009": "sample_00005"}  # fmt: skip


@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_tutorial_run(name, tmp_path):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    code = "\n".join(blocks)
    for written, run in SHORTER.items():
        code = code.replace(written, run)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
