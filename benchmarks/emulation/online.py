"""Training on streamed simulations compared with stored ones at equal CPU time; kill -9.

Two-stream runs, two surrogates: of phase space f(x, v) (a U-Net, whose training steps dominate the
cost: `online_over_stored`), and of the field energy alone (a perceptron, whose steps cost little
compared with a simulation: `online_over_stored_field_energy`).

Both train the same network with the same optimizer and schedule. The stored set has as many
simulations as the reservoir of the online training, so both use the same memory; the CPU time saved
is used for additional steps. All CPU time counts: that of the worker, its start, and the
simulations made before the training. Scores are on simulations at parameters drawn with another
seed, unseen by both. `cpu_ratio` is the CPU time of the stored training over that of the online
training; if it is below .97 the stored training is repeated with more steps.

For `resume_equal` a training is killed (SIGKILL) halfway and continued, and its weights are
compared with those of an uninterrupted one; online, and active with a committee.
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
from typing import NamedTuple

import torch
import yaml
from _measure import machine

from scitoolkit import api
from scitoolkit.core.draw import DrawConfig
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.evaluation import Evaluation
from scitoolkit.generators import generators

PRIORS = {
    "wavenumber": {"low": 0.15, "high": 0.25},
    "drift": {"low": 2.5, "high": 3.5},
    "thermal": {"low": 0.7, "high": 1.1},
}
RESERVOIR, UNSEEN, SEEDS = 8, 16, (0, 1)
ENOUGH, REPEATS = 0.97, 2


class Case(NamedTuple):
    """A surrogate of two-stream runs: its targets, number of simulations and steps."""

    variable: str
    generator: dict
    samples: int
    repeats: int
    steps: int
    batch: int
    rate: float
    network: dict


GRID = {"name": "vlasov_two_stream", "cells_x": 16, "cells_v": 64}
FIELD_ENERGY = Case(
    "log_field_energy",
    {**GRID, "amplitude": 1e-6, "spinup": 12.0, "duration": 60.0, "frames": 61},
    64,
    100,
    2400,
    128,
    5e-3,
    {"model": {"name": "mlp"}, "rollout": {"long": 0}},
)
PHASE_SPACE = Case(
    "f",
    {**GRID, "amplitude": 0.05, "duration": 24.0, "frames": 25},
    128,
    1,
    400,
    8,
    3e-3,
    {
        "model": {"name": "unet", "widths": [8, 16, 24]},
        "boundary": {"x": "circular"},
        "rollout": {"long": 0, "evaluate": 8},
    },
)


def job(folder: Path, case: Case, stream: dict, seed: int = 0, **training) -> Path:
    repeats = {} if stream.get("mode") == "stored" else {"repeats": case.repeats}
    config = {
        "domain": "emulation",
        "seed": seed,
        "run": {"root": str(folder)},
        **case.network,
        "data": {
            "generator": case.generator,
            "draw": {"samples": case.samples, "parameters": PRIORS},
            "stream": {"workers": 1, "validation": 2, "test": 2, **repeats, **stream},
            "inputs": [case.variable],
            "outputs": [case.variable],
            "parameters": list(PRIORS),
        },
        "training": {
            "steps": case.steps,
            "batch_size": case.batch,
            "progress": False,
            "log_every": 500,
            "optimizer": {"name": "adamw", "lr": case.rate},
            "schedule": {"name": "cosine"},
            **training,
        },
    }
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


def unseen_error(run: Path, unseen: Path, variable: str) -> float:
    """Return the RMSE after one step over its standard deviation, on unseen simulations.

    A box is one wave long, so the cells of x are wider where the wave is longer: the network knows
    it by the wave number.
    """
    config = api.load(run / "config.yaml")[1]
    emulator = surrogate.load(run / "model", config)
    data = open_data(config.data, unseen)
    try:
        found = Evaluation(emulator, data, data.blocks, config)
    finally:
        data.dataset.close()
    return found.one_step["emulator"][variable] / found.deviation[variable]


def compared(folder: Path, case: Case, unseen: Path, seed: int) -> dict[str, float]:
    online, first = timed(job(folder, case, {"reservoir": RESERVOIR}, seed))
    stored = job(folder, case, {"mode": "stored"}, seed)
    fewer = [f"data.draw.samples={RESERVOIR}"]
    probes = (case.steps // 10, case.steps // 3)
    short, longer = (timed(stored, [*fewer, f"training.steps={n}"])[0] for n in probes)
    a_step = max(longer - short, 1e-9) / (probes[1] - probes[0])
    steps = round(probes[1] + (online - longer) / a_step)
    for _ in range(REPEATS):
        taken, second = timed(stored, [*fewer, f"training.steps={steps}"])
        if taken >= ENOUGH * online:
            break
        steps = round(steps * online / taken)
    ours, theirs = (unseen_error(run, unseen, case.variable) for run in (first, second))
    record = json.loads((first / "model" / "fit.json").read_text())["loader"]
    return {
        "ratio": ours / theirs,
        "cpu_ratio": taken / online,
        "simulations": record["simulations_entered"],
        "steps_stored": steps,
        "error_online": ours,
        "error_stored": theirs,
        "cpu": online,
    }


def over_seeds(folder: Path, case: Case, seeds: tuple[int, ...]) -> list[dict[str, float]]:
    draw = DrawConfig(method="random", samples=UNSEEN, parameters=PRIORS)
    generator = generators.get(case.generator["name"])(**case.generator)
    unseen = folder / f"unseen_{case.variable}"
    generator.first_samples(draw, 12345, UNSEEN, unseen, 1)
    return [compared(folder, case, unseen, seed) for seed in seeds]


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = over_seeds(folder, PHASE_SPACE, SEEDS)
        energy = over_seeds(folder, FIELD_ENERGY, SEEDS)
        equal = {mode: resume_equal(folder, mode) for mode in ("online", "active")}
    middle, light = (
        {key: statistics.median(f[key] for f in found) for key in found[0]}
        for found in (space, energy)
    )
    return {
        "online_over_stored": middle["ratio"],
        "resume_equal": all(equal.values()),
        "ratios": {str(s): f["ratio"] for s, f in zip(SEEDS, space, strict=True)},
        "error_online": middle["error_online"],
        "error_stored": middle["error_stored"],
        "cpu_ratio": middle["cpu_ratio"],
        "cpu_seconds": middle["cpu"],
        "simulations_online": middle["simulations"],
        "simulations_stored": RESERVOIR,
        "steps_online": PHASE_SPACE.steps,
        "steps_stored": middle["steps_stored"],
        "online_over_stored_field_energy": light["ratio"],
        "cpu_ratio_field_energy": light["cpu_ratio"],
        "machine": machine(),
    }


def resume_equal(folder: Path, mode: str) -> bool:
    stream = {"reservoir": 4, "mode": mode}
    path = job(folder, PHASE_SPACE, stream, steps=48, checkpoint={"every_steps": 5})
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
