"""Two processes are one: the same crops, the same losses, the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import run_process

from scitoolkit.superresolution import SuperresolutionSurrogate


@pytest.mark.multiproc
@pytest.mark.parametrize("crop", [{}, {"every": {"t": 2, "x": 2}, "coarser": [1, 2, 4]}])
def test_two_ranks_equal_one(job_file, tmp_path, crop):
    # Adam would turn the rounding of gradients that vanish into steps of full length.
    optimizer = {"name": "sgd", "lr": 0.1}
    path = job_file(crop=crop, training={"steps": 3, "log_every": 1, "optimizer": optimizer})
    models, losses = [], []
    for count in (1, 2):
        root = tmp_path / str(count)
        done = run_process(tmp_path, "train", path, f"run.root={root}", "--nproc", count)
        assert done.code == 0, done.err
        (run,) = (Path(p).parent for p in root.rglob("metrics.jsonl"))
        models.append(SuperresolutionSurrogate.load(run / "model").model)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        losses.append([r["value"] for r in rows if r["name"] == "train/loss"])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, two in zip(*(m.parameters() for m in models), strict=True):
        assert torch.allclose(one, two, atol=1e-5)
