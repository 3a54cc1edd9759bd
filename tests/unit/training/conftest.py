import functools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from warm_ranks import WarmRank

from scitoolkit.training.launch import launch

Launch = Callable[..., int]
HELPERS = Path(__file__).resolve().parents[2] / "helpers"


@pytest.fixture(scope="module")
def warm_ranks():
    """Start the ranks of `launch` in forks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(f"{launch.__module__}.subprocess", SimpleNamespace(Popen=WarmRank))
        yield


@pytest.fixture(scope="module")
def _worker_environment(warm_ranks):
    path = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


def _started(
    folder: Path, ranks: int, name: str, result: str, by: Launch = launch, **options
) -> tuple[int, dict | None]:
    text = json.dumps({**options, "folder": str(folder / name), "result": result})
    code = by(ranks, [text], module="training_worker")
    file = folder / f"{result}-0.pt"
    weights = torch.load(file, weights_only=True) if code == 0 and file.exists() else None
    return code, weights


@pytest.fixture
def start(tmp_path, _worker_environment):
    """Train in `ranks` new processes; return (exit code, weights of rank 0 or None)."""

    def run(ranks: int = 1, *, name: str = "run", result: str = "out", **options):
        return _started(tmp_path, ranks, name, result, **options)

    previous = signal.getsignal(signal.SIGINT)
    yield run
    assert signal.getsignal(signal.SIGINT) == previous


@pytest.fixture(scope="module")
def whole(tmp_path_factory, _worker_environment):
    """Return the weights of a training that nothing stops, once for `ranks` and a strategy."""

    @functools.cache
    def run(ranks: int, strategy: str = "auto", *, stage: int = 3, exchange: str = "full"):
        sharding, chosen = {"stage": stage}, {"name": exchange}
        training = {"strategy": strategy, "sharding": sharding, "exchange": chosen}
        options = {} if strategy == "auto" else {"training": training}
        code, weights = _started(tmp_path_factory.mktemp("whole"), ranks, "run", "out", **options)
        assert code == 0
        return weights

    return run


@pytest.fixture
def lone_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
