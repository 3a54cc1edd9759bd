"""Processes in a slow file system (`slow_filesystem.c`): latency, bandwidth and counters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _places import BENCHMARKS

LATENCY, BANDWIDTH = 1e-3, 200e6


def compiled(folder: Path) -> Path:
    """Compile the shim into a folder and return the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed for the slow file system")
    library = folder / "slow_filesystem.so"
    source = BENCHMARKS / "slow_filesystem.c"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True
    )
    return library


def run(
    arguments: list[str],
    library: Path,
    root: Path,
    *,
    latency: float = LATENCY,
    bandwidth: float = BANDWIDTH,
    python: str | Path = sys.executable,
) -> dict:
    """Run a Python script whose reads below `root` are slow; return the JSON object it prints."""
    with tempfile.NamedTemporaryFile() as state:
        environment = os.environ | {
            "LD_PRELOAD": str(library),
            "SLOW_ROOT": str(root.resolve()),
            "SLOW_STATE": state.name,
            "SLOW_LATENCY": str(latency),
            "SLOW_BANDWIDTH": str(bandwidth),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [str(python), *arguments], env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
