import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scitoolkit.training.launch import launch

Launch = Callable[..., int]
HELPERS = Path(__file__).resolve().parents[2] / "helpers"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Train in `ranks` new processes; return (exit code, weights of rank 0 or None)."""
    path = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(
        ranks: int = 1, *, name: str = "run", result: str = "out", by: Launch = launch, **options
    ):
        folder = tmp_path / name
        text = json.dumps({**options, "folder": str(folder), "result": result})
        code = by(ranks, [text], module="training_worker")
        file = tmp_path / f"{result}-0.pt"
        weights = torch.load(file, weights_only=True) if code == 0 and file.exists() else None
        return code, weights

    previous = signal.getsignal(signal.SIGINT)
    yield run
    assert signal.getsignal(signal.SIGINT) == previous
