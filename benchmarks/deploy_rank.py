"""The shipped convection emulator in low rank: time of its convolutions, error, prediction.

The ranks are those of `scitoolkit export --time-share`, by the table measured here; the emulator
in these ranks is trained for a tenth of the steps of its training (`low_rank:`) and exported. Times
are of the C, one thread, by its own clock, dense and low rank in turn. Errors are one-step errors
over persistence on the dataset's test simulation, of which neither ranks nor weights know. Uniform
ranks, half of all full ones and so on, are compared before fine-tuning, at their own time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import h5py
import numpy as np
import torch
from _measure import machine

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.rank.lowered import call_seconds
from scitoolkit.deploy.rank.study import Study, ranks_of
from scitoolkit.ops.low_rank import full_ranks, layers_of

NAME, SHARE, STEPS = "rb2d_emulator", 0.56, 0.1
"""The share of the table; the whole call gains somewhat less than the layers by themselves."""
FRACTIONS = (0.75, 0.5)


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        return {**measured(Path(scratch)), **machine()}


def measured(folder: Path) -> dict:
    job, path = api._job_of(NAME)
    functions = job.traced(path)
    given = [f.typical for f in functions]
    export(functions, folder / "dense.so")
    low = export(functions, folder / "plain.so", ExportConfig(time_share=SHARE))
    ranks = {name.removeprefix("emulator."): own for name, own in low["ranks"].items()}
    told("ranks", ranks)
    trained, seconds = fine_tuned(path, ranks, folder)
    tuned = api._job_of(trained)[0].traced(trained)
    export(tuned, folder / "tuned.so")
    times = call_seconds([folder / "dense.so", folder / "tuned.so"], functions, given)
    errors = {k: one_step(folder / f"{k}.so", functions[0]) for k in ("dense", "plain", "tuned")}
    ratios = {k: np.array(v) / errors["dense"] for k, v in errors.items()}
    layers = low["microseconds"]["dense"] - low["microseconds"]["predicted"]
    whole = layers / (1 - low["layers_time_share"])
    predicted = 1e6 * times[0] - layers
    return {
        "rank_time_share": 1 - 1e6 * (times[0] - times[1]) / whole,
        "rank_error_ratio": float(ratios["tuned"].mean()),
        "rank_error_ratio_worst_variable": float(ratios["tuned"].max()),
        "rank_error_ratio_before_fine_tuning": float(ratios["plain"].mean()),
        "latency_prediction_error": abs(predicted / (1e6 * times[1]) - 1),
        "call_us": {"dense": 1e6 * times[0], "low_rank": 1e6 * times[1], "predicted": predicted},
        "table_time_share": low["layers_time_share"],
        "fine_tuning_cpu_seconds": seconds, "training_cpu_seconds": record(path)["cpu_seconds"],
        "one_step_over_persistence": {k: list(v) for k, v in errors.items()},
        "ranks": ranks, "pareto": low["pareto"],
    }  # fmt: skip


def record(path: Path) -> dict:
    return json.loads((path / "fit.json").read_text())


def fine_tuned(path: Path, ranks: dict, folder: Path) -> tuple[Path, float]:
    """Return the run of a tenth of the training's steps, and the CPU seconds of its process."""
    steps = int(STEPS * record(path)["steps"])
    start = time.process_time()
    run = api.train(path / "config.yaml", [
        f"low_rank.of={path}", f"low_rank.ranks={json.dumps(ranks)}", f"training.steps={steps}",
        "training.schedule.warmup_steps=5", "training.progress=false", f"run.root={folder}/runs",
    ])  # fmt: skip
    return run.path, time.process_time() - start


def one_step(library: Path, function: TracedFunction) -> list[float]:
    """Return one-step errors over persistence of each output on the test simulation."""
    (file,) = (content_root("datasets") / "rayleigh_benard").glob("*_s43_*.h5")
    with h5py.File(file) as data:
        fields = {s.name: np.asarray(data[s.name], np.float32) for s in function.inputs}
    inputs = [np.ascontiguousarray(fields[s.name][:-1]) for s in function.inputs]
    found, _ = CompiledSurrogate(library)(*inputs)
    return [
        float(np.linalg.norm(own - fields[s.name][1:])
              / np.linalg.norm(fields[s.name][:-1] - fields[s.name][1:]))
        for own, s in zip(found, function.outputs, strict=True)
    ]  # fmt: skip


def told(*what: object) -> None:
    print(*what, file=sys.stderr, flush=True)
