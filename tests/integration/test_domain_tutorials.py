"""The tutorials on fields run as they are written, those that train with fewer steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import run_code
from pages import page, shortened

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
    "fine-tuning": {
        "samples: 20": "samples: 3",
        "draw.samples=12": "draw.samples=3",
        "frames: 24": "frames: 6",
        "train: 16, validation: 2, test: 2": "train: 1, validation: 1, test: 1",
        "train: 8, validation: 2, test: 2": "train: 1, validation: 1, test: 1",
        "replay_simulations: 8": "replay_simulations: 1",
        "steps: 600": "steps: 3",
        "training.steps=150": "training.steps=3",
        "warmup_steps: 20": "warmup_steps: 1",
        "widths: [16, 32]": "widths: [4]",
        "evaluate: 10": "evaluate: 2",
    },
    "global-emulator": {
        "DAYS, SIMULATIONS = 20, 10": "DAYS, SIMULATIONS = 16, 3",
        "train: 7, validation: 1, test: 2": "train: 1, validation: 1, test: 1",
        "steps: 400": "steps: 3",
        "warmup_steps: 20": "warmup_steps: 1",
        "widths: [16, 32]": "widths: [4, 4]",
    },
    "super-resolution": {'training.epochs=1"': 'crop.per_epoch=2", "pde.points=16"'},
}


RUN = "assert run_cli({!r}.split()[1:]) == 0"


@pytest.mark.parametrize("name", FEWER)
def test_a_tutorial_runs(name, tmp_path):
    run(shortened(program(page(f"tutorials/{name}")), FEWER[name]), tmp_path)


def test_the_compression_tutorial_prints_the_output_on_the_page(tmp_path):
    text = page("tutorials/compression")
    printed = run(program(text), tmp_path)
    shown = re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
    assert len(shown) == 4
    for line in "".join(shown).splitlines():
        assert line in printed


DATA = 'data = scitoolkit.dataset_path("ersst_v5/ersstv5_monthly_2deg_201001-202008.nc")'
# Every sixth cell, two modes and one network; the numbers on the page are those of the whole field.
QUICK = ", 'training.epochs=1', 'ensemble=1', 'harmonics=[2]', 'pod.rank=2', "


def test_the_forecasting_tutorial_runs_on_a_coarser_field(small_sst, tmp_path):
    fewer = {DATA: f"data = {str(small_sst)!r}", ', "run.root': QUICK + '"run.root'}
    printed = run(shortened(program(page("tutorials/forecasting")), fewer), tmp_path)
    for name in ("climatology", "linear map with lags", "persistence", "surrogate"):
        assert re.search(rf"^{name}: \d", printed, re.M)
    assert "The network is not used" in printed


@pytest.mark.slow
def test_the_forecasting_tutorial_prints_the_output_on_the_page(tmp_path):
    text = page("tutorials/forecasting")
    printed = run(program(text), tmp_path)
    shown = re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
    assert len(shown) == 3
    for line in "".join(shown).splitlines():
        number = re.compile(r"\d+\.\d+")
        (same,) = [p for p in printed.splitlines() if number.sub("", p) == number.sub("", line)]
        expected = [float(value) for value in number.findall(line)]
        assert [float(value) for value in number.findall(same)] == pytest.approx(expected, rel=0.02)


def program(text: str) -> str:
    """Return the Python blocks of a page as one program that calls the commands in between."""
    parts = ["from scitoolkit.cli.main import run_cli"]
    for language, block in re.findall(r"^```(python|bash)\n(.*?)^```", text, re.M | re.S):
        parts += [block] if language == "python" else map(RUN.format, block.splitlines())
    return "\n".join(parts)


def run(code: str, folder: Path) -> str:
    done = run_code(folder, code)
    assert done.code == 0, done.err
    return done.out
