"""Training on streamed simulations beside training on stored ones at equal CPU time; kill -9.

Both train the same network on phase space f(x, v) of two-stream runs, with the same optimizer and
schedule. Stored are as many simulations as the reservoir of the online training holds, so both use
the same memory; the CPU time that this saves goes into further steps. All CPU time counts: that of
the worker, its start, the simulations made before the training. Judged on simulations at parameters
drawn with another seed, which neither has seen. `cpu_ratio` is what both took in the end.

For `resume_equal` a training is killed (SIGKILL) in the middle, continued, and its weights compared
with those of one that nobody disturbed; online, and active with a committee.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml
from _measure import machine

from scitoolkit import api
from scitoolkit.core.draw import DrawConfig
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.evaluation import Evaluation
from scitoolkit.emulation.streaming import with_files
from scitoolkit.generators import generators

GENERATOR = {
    "name": "vlasov_two_stream", "cells_x": 16, "cells_v": 64, "frames": 25, "duration": 24.0,
    "amplitude": 0.05,
}  # fmt: skip
PRIORS = {
    "wavenumber": {"low": 0.15, "high": 0.25}, "drift": {"low": 2.5, "high": 3.5},
    "thermal": {"low": 0.7, "high": 1.1},
}  # fmt: skip
RESERVOIR, SAMPLES, STEPS, BATCH, UNSEEN, SEEDS = 8, 128, 400, 8, 16, (0, 1)


def job(folder: Path, stream: dict, seed: int = 0, **training) -> Path:
    config = {
        "domain": "emulation", "seed": seed, "run": {"root": str(folder)},
        "data": {
            "generator": GENERATOR, "draw": {"samples": SAMPLES, "parameters": PRIORS},
            "stream": {"workers": 1, "validation": 2, "test": 2, **stream},
            "inputs": ["f"], "outputs": ["f"], "parameters": list(PRIORS),
        },
        "boundary": {"x": "circular"}, "model": {"name": "unet", "widths": [8, 16, 24]},
        "rollout": {"long": 0, "evaluate": 8},
        "training": {
            "steps": STEPS, "batch_size": BATCH, "progress": False, "log_every": 100,
            "optimizer": {"name": "adamw", "lr": 3e-3}, "schedule": {"name": "cosine"}, **training,
        },
    }  # fmt: skip
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def cpu_seconds() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(path: Path, overrides: list[str] | None = None) -> tuple[float, Path]:
    begin = cpu_seconds()
    made = api.train(path, overrides or [])
    return cpu_seconds() - begin, made.path


def unseen_error(run: Path, unseen: Path) -> float:
    """Return the RMSE of f after one step over its standard deviation, on unseen simulations.

    A box is one wave long, so the cells of x are wider where the wave is longer: the network knows
    it by the wave number.
    """
    config = with_files(api.load(run / "config.yaml")[1], run)
    emulator = surrogate.load(run / "model", config)
    data = open_data(config.data, unseen)
    try:
        found = Evaluation(emulator, data, data.blocks, config)
    finally:
        data.dataset.close()
    return found.one_step["emulator"]["f"] / found.deviation["f"]


def compared(folder: Path, unseen: Path, seed: int) -> dict[str, float]:
    online, first = timed(job(folder, {"reservoir": RESERVOIR}, seed))
    stored = job(folder, {"mode": "stored"}, seed)
    fewer = [f"data.draw.samples={RESERVOIR}"]
    short, _ = timed(stored, [*fewer, "training.steps=30"])
    longer, _ = timed(stored, [*fewer, "training.steps=90"])
    a_step = (longer - short) / 60
    steps = round(90 + (online - longer) / a_step)
    taken, second = timed(stored, [*fewer, f"training.steps={steps}"])
    ours, theirs = (unseen_error(run, unseen) for run in (first, second))
    record = json.loads((first / "model" / "fit.json").read_text())["loader"]
    return {
        "ratio": ours / theirs, "cpu_ratio": taken / online,
        "simulations": record["simulations_entered"], "steps_stored": steps,
        "error_online": ours, "error_stored": theirs, "cpu": online,
    }  # fmt: skip


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = DrawConfig(method="random", samples=UNSEEN, parameters=PRIORS)
        generator = generators.get(GENERATOR["name"])(**GENERATOR)
        generator.first_samples(draw, 12345, UNSEEN, folder / "unseen", 1)
        found = [compared(folder, folder / "unseen", seed) for seed in SEEDS]
        equal = {mode: resume_equal(folder, mode) for mode in ("online", "active")}
    middle = {key: statistics.median(f[key] for f in found) for key in found[0]}
    return {
        "online_over_stored": middle["ratio"], "resume_equal": all(equal.values()),
        "ratios": {str(s): f["ratio"] for s, f in zip(SEEDS, found, strict=True)},
        "error_online": middle["error_online"], "error_stored": middle["error_stored"],
        "cpu_ratio": middle["cpu_ratio"], "cpu_seconds": middle["cpu"],
        "simulations_online": middle["simulations"], "simulations_stored": RESERVOIR,
        "steps_online": STEPS, "steps_stored": middle["steps_stored"],
        "machine": machine(),
    }  # fmt: skip


def resume_equal(folder: Path, mode: str) -> bool:
    stream = {"reservoir": 4, "mode": mode}
    path = job(folder, stream, steps=48, checkpoint={"every_steps": 5})
    extra = ["uncertainty.members=2"] if mode == "active" else []
    whole, killed = folder / f"{mode}_whole", folder / f"{mode}_killed"
    api.train(path, [*extra, f"run.root={whole}"])
    settings = [*extra, f"run.root={killed}"]
    command = [sys.executable, "-m", "scitoolkit", "train", str(path), *settings]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(killed.rglob("checkpoints/*"))) < 2:
        time.sleep(0.05)
    if process.poll() is not None:
        raise AssertionError("the training ended before it could be killed")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL)
    (one,), (other,) = (list(r.rglob("model/weights.safetensors")) for r in (whole, killed))
    return one.read_bytes() == other.read_bytes()
