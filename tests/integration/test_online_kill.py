"""A training on streamed simulations survives SIGKILL: the resumed weights are bit-equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from scitoolkit import api

CASE = {
    "domain": "emulation",
    "data": {
        "generator": {"name": "kuramoto_sivashinsky", "cells": 16, "spinup": 1, "frames": 6},
        "draw": {"samples": 24, "parameters": {"length": {"low": 8, "high": 15}}},
        "stream": {"workers": 2, "reservoir": 4, "validation": 1, "test": 1},
        "inputs": ["u"],
        "outputs": ["u"],
        "parameters": ["length"],
    },
    "boundary": {"x": "circular"},
    "model": {"name": "unet", "widths": [4, 6]},
    "rollout": {"long": 0},
    "training": {"steps": 60, "batch_size": 4, "progress": False, "checkpoint": {"every_steps": 4}},
}


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize("mode", ["online", "active"])
def test_a_killed_training_goes_on_bit_for_bit(tmp_path, mode):
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(CASE))
    extra = [f"data.stream.mode={mode}"]
    if mode == "active":
        extra += ["uncertainty.members=2", "uncertainty.steps=2", "data.stream.candidates=4"]
    whole = api.train(path, [*extra, f"run.root={tmp_path / 'whole'}"]).path
    root = tmp_path / "killed"
    command = [sys.executable, "-m", "scitoolkit", "train", str(path), *extra, f"run.root={root}"]
    process = subprocess.Popen(command)
    while process.poll() is None and len(list(root.rglob("stream.jsonl"))) == 0:
        time.sleep(0.02)
    while process.poll() is None and not list(root.rglob("checkpoints/*/*")):
        time.sleep(0.02)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(root.rglob("model/weights.safetensors"))
    subprocess.run([*command, "--resume"], check=True)
    (found,) = root.rglob("model/weights.safetensors")
    assert found.read_bytes() == (whole / "model" / "weights.safetensors").read_bytes()
    (journal,) = root.rglob("stream.jsonl")
    assert journal.read_text().count('"made"') == (whole / "stream.jsonl").read_text().count(
        '"made"'
    )
