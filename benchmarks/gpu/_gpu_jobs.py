"""One job of a workflow in this process: `python _gpu_jobs.py NAME cuda|cpu FOLDER`.

Prints seconds per optimizer step (median of the second half), the first and last logged losses,
and which kernels fell back to the reference.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from _gpu_timing import tell
from _places import ROOT
from torch.optim.optimizer import register_optimizer_step_post_hook

SHORT = ["training.progress=false", "training.log_every=5"]
# name -> workflow, command, overrides, tolerance of the first loss relative to the CPU's
JOBS: dict[str, tuple[str, str, list[str], float]] = {
    "mesh_diffusion": ("mesh_diffusion", "run", ["training.epochs=2"], 1e-3),
    "water_deepmd": ("water_deepmd", "run", ["training.steps=40"], 1e-4),
    "acac_mace": ("acac_mace", "run", ["training.steps=40"], 1e-3),
    "silicon_mace": (
        "silicon_mace",
        "run",
        ["training.steps=30", "data.teaching.committee.steps=20", "data.teaching.test=4"],
        1e-2,
    ),
    "emulation unet bf16": (
        "field_surrogate",
        "run",
        ["training.steps=40", "training.precision=bf16"],
        3e-2,
    ),
    "emulation fno": ("field_surrogate", "train", ["training.steps=40", "model={name: fno}"], 1e-3),
    "superresolution": ("rayleigh_benard", "train", ["training.steps=40"], 1e-3),
    "graphs gat": ("node_classification", "run", ["training.epochs=60", "model.name=gat"], 1e-3),
    "comet": (
        "field_surrogate",
        "train",
        ["training.steps=20", "training.memory.activations=comet"],
        1e-3,
    ),
    "sharded": (
        "field_surrogate",
        "train",
        [
            "training.steps=20",
            "training.strategy=sharded",
            "training.optimizer={name: adamw}",
        ],
        1e-3,
    ),
    "compile": ("field_surrogate", "train", ["training.steps=20", "training.compile=true"], 1e-3),
}


# Workflows whose data are generated first; jobs on both devices use one set.
PREPARATIONS = {"mesh_diffusion": "mesh_tracer"}


def _generated(workflow: str, folder: Path) -> Path:
    """Return the file of the data; the job that comes second waits for the first."""
    data, done = folder.parent / workflow, folder.parent / f"{workflow}.done"
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        data.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(0.1)
    else:
        command = [sys.executable, "-m", "scitoolkit", "generate", ROOT / "workflows" / workflow]
        subprocess.run([*map(str, command), f"output={data}"], check=True)
        done.touch()
    return data / "sample_00000.h5"


def main(name: str, device: str, folder: str) -> int:
    from scitoolkit.cli.main import main as command_line

    workflow, command, overrides, _ = JOBS[name]
    times: list[float] = []
    register_optimizer_step_post_hook(lambda *_: times.append(time.perf_counter()))
    if workflow in PREPARATIONS:
        overrides = [*overrides, f"data.path={_generated(PREPARATIONS[workflow], Path(folder))}"]
    given = [f"training.device={device}", f"run.root={folder}", *SHORT, *overrides]
    begin, code = time.perf_counter(), 0
    try:
        code = command_line([command, str(ROOT / "workflows" / workflow), *given]) or 0
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    losses = _losses(Path(folder))
    tell(
        exit_code=code,
        wall=time.perf_counter() - begin,
        optimizer_steps=len(times),
        step_seconds=statistics.median(gaps[len(gaps) // 2 :]) if gaps else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        threads=torch.get_num_threads(),
    )
    return code


def _losses(folder: Path) -> list[float]:
    found = []
    for path in sorted(folder.rglob("metrics.jsonl"), key=lambda p: p.stat().st_mtime)[-1:]:
        for line in path.read_text(encoding="utf-8").splitlines():
            figure = json.loads(line)
            if figure["name"] == "train/loss":
                found.append(figure["value"])
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
