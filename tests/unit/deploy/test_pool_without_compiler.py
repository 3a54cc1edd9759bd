"""A pool of exported files in a process without a compiler, a cache of kernels and torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import scitoolkit
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.export import export
from scitoolkit.deploy.pool_core import file_name

READER = """
import sys
import numpy as np
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.deploy import Pool

try:
    with Pool("1MiB", workers=1) as pool:
        print(pool.statistics()["budget_bytes"], pool.names())
        pool.prefetch()
        pool.add("m", sys.argv[1])
        (y,), status = pool.submit("m", np.load("x.npy")).result()
        np.save("y.npy", y)
        print(pool.statistics()["models"], "torch" in sys.modules)
except ScitoolkitError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def read(tmp_path):
    """Run the reader on a file of the folder, with no programs and an empty home."""
    (tmp_path / "home").mkdir()

    def run(name: str) -> str:
        environment = {
            "PATH": str(tmp_path / "home"),
            "HOME": str(tmp_path / "home"),
            "SCITOOLKIT_CACHE": str(tmp_path / "home" / "cache"),
            "PYTHONPATH": str(Path(scitoolkit.__file__).parents[1]),
            "OMP_NUM_THREADS": "1",
        } | {k: v for k, v in os.environ.items() if k in ("LD_LIBRARY_PATH", "PYTHONHOME")}
        return subprocess.run(
            [sys.executable, "-c", READER, name],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    return run


def test_files_are_read_where_nothing_can_be_compiled(tmp_path, read):
    network = nn.Sequential(nn.Linear(7, 40), nn.Tanh(), nn.Linear(40, 5)).eval()
    x = ArraySpec("x", ("level",), (7,), low=-3.0, high=3.0)
    y = ArraySpec("y", ("level",), (5,))
    export([TracedFunction(network, [x], [y])], tmp_path / "m.weights")
    inputs = np.random.default_rng(0).uniform(-1, 1, (4, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", inputs)
    assert read("m.weights") == f"{1 << 20} []\n1 False\n"
    wanted = network(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, atol=1e-6)
    assert not (tmp_path / "home" / "cache").exists()

    # Nothing is loaded for a file that is none of weights, here what is no library.
    (tmp_path / file_name()).write_bytes(b"")
    (tmp_path / "other.weights").write_bytes(b"PK")
    assert "CheckpointError other.weights: not a file of weights" in read("other.weights")
    assert "CheckpointError none.weights: no such file" in read("none.weights")
    for _ in range(2):
        told = read("m.weights")
        assert "BackendError m.weights: " in told
        assert "export RUN -o m.weights" in told
        (tmp_path / file_name()).unlink(missing_ok=True)
