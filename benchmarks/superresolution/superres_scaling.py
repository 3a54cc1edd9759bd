"""Weak scaling of super-resolution training: equal work per rank on increasing numbers of ranks.

    export PYTHONPATH=benchmarks
    python benchmarks/superresolution/superres_scaling.py --ranks 1,2
    python benchmarks/superresolution/superres_scaling.py --ranks 1,8,64 \\
      --launch "srun -n {ranks} python"

Trains `workflows/rayleigh_benard` with CROPS crops (and all their points) per rank and step.
Efficiency is seconds per step on the fewest ranks over those on more: 1 is ideal. Seconds per step
are computed from the difference of a long and a short training, so start-up and evaluation do not
count. The figure is meaningful if every rank has a separate accelerator: ranks that share a
processor's memory and caches scale worse than the code does, so `accelerators` records the
hardware. As a benchmark of `run.py` the ranks are those of SUPERRES_RANKS, or 1,2.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

import torch
from _measure import machine
from _places import ROOT

WORKFLOW = ROOT / "workflows" / "rayleigh_benard" / "train.yaml"
CROPS, SHORT, LONG = 2, 5, 85


def run(ranks: str | None = None, launch: str = "") -> dict:
    """Return seconds per step and efficiency for every number of ranks."""
    text = ranks or os.environ.get("SUPERRES_RANKS", "1,2")
    counts = sorted({int(n) for n in text.split(",")})
    seconds = {n: seconds_per_step(n, launch) for n in counts}
    base = seconds[counts[0]]
    devices = torch.cuda.device_count()
    return {
        "efficiency": {str(n): base / s for n, s in seconds.items()},
        "seconds_per_step": {str(n): s for n, s in seconds.items()},
        "crops_per_rank": CROPS,
        "accelerators": devices,
        "remark": "" if devices else "no accelerator: this shows that the harness runs, no more",
        "machine": machine(),
    }


def seconds_per_step(ranks: int, launch: str) -> float:
    short, long = (wall_seconds(ranks, steps, launch) for steps in (SHORT, LONG))
    return (long - short) / (LONG - SHORT)


def wall_seconds(ranks: int, steps: int, launch: str) -> float:
    """Return the wall time of a training with a given number of steps."""
    with tempfile.TemporaryDirectory() as folder:
        batch = CROPS * ranks
        overrides = [
            f"run.root={folder}",
            f"training.steps={steps}",
            f"training.batch_size={batch}",
            f"crop.per_epoch={batch * LONG}",
            "training.progress=false",
        ]
        if launch:
            command = [*shlex.split(launch.format(ranks=ranks)), "-m", "scitoolkit", "train"]
            command += [str(WORKFLOW), *overrides]
        else:
            command = [sys.executable, "-m", "scitoolkit", "train", str(WORKFLOW), *overrides]
            command += ["--nproc", str(ranks)]
        threads = {} if torch.cuda.is_available() else {"OMP_NUM_THREADS": "1"}
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **threads})
        return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2", help="numbers of processes")
    parser.add_argument("--launch", default="", help="what starts {ranks} Pythons, srun say")
    options = parser.parse_args()
    print(json.dumps(run(options.ranks, options.launch), indent=1))
