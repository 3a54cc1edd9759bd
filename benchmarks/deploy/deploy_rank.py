"""The shipped convection emulator in low rank: time of its convolutions, error, prediction.

The ranks are those of `scitoolkit export --time-share`, from the cost table measured here. The
emulator in these ranks is fine-tuned (`low_rank:`) for at most a tenth of the CPU time of its
training, with the pressure, which a guard computes, in the loss (`guarded_weight`). Times are those
of the C code, one thread, by its own clock, alternating between dense and low rank. Errors are
one-step errors over persistence on the dataset's test simulation, which was not used for ranks or
weights; learning rate and weight of the pressure are the best of nine pairs by that test error.
`rank_error_ratio` is the mean over the variables. Uniform ranks (half of all full ones, and so on)
are compared before fine-tuning, at their time.
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
from scitoolkit.deploy.export import export, target
from scitoolkit.deploy.rank.lowered import call_seconds
from scitoolkit.deploy.rank.study import Study, ranks_of, study

NAME, SHARE, STEPS = "rb2d_emulator", 0.54, 0.1
"""The share of the table; the whole call gains somewhat less than the layers by themselves."""
FRACTIONS = (0.75, 0.5)


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        return {**measured(Path(scratch)), **machine()}


def measured(folder: Path) -> dict:
    path = api._job_of(NAME)[1]
    found, chosen, ranks = chosen_ranks(folder, SHARE)
    functions, given = found.functions, [f.typical for f in found.functions]
    export(found.lowered(ranks_of(chosen)), folder / "plain.so")
    trained, seconds = fine_tuned(path, ranks, folder)
    export(api._job_of(trained)[0].traced(trained), folder / "tuned.so")
    times = call_seconds([folder / "dense.so", folder / "tuned.so"], functions, given)
    errors = {k: one_step(folder / f"{k}.so", functions[0]) for k in ("dense", "plain", "tuned")}
    ratios = {k: np.array(v) / errors["dense"] for k, v in errors.items()}
    whole = sum(layer.options[0].seconds for layer in found.layers)
    predicted = times[0] - found.gain(chosen)
    out = {
        "rank_time_share": 1 - (times[0] - times[1]) / whole,
        "rank_error_ratio": float(ratios["tuned"].mean()),
        "rank_error_ratio_worst_variable": float(ratios["tuned"].max()),
        "rank_error_ratio_before_fine_tuning": float(ratios["plain"].mean()),
        "latency_prediction_error": abs(predicted / times[1] - 1),
        "call_us": {
            "dense": 1e6 * times[0],
            "low_rank": 1e6 * times[1],
            "predicted": 1e6 * predicted,
            "layers": 1e6 * whole,
        },
        "table_time_share": found.share(chosen),
        "fine_tuning_cpu_seconds": seconds,
        "training_cpu_seconds": record(path)["cpu_seconds"],
        "fine_tuning_share_of_training": seconds / record(path)["cpu_seconds"],
        "one_step_over_persistence": {k: list(v) for k, v in errors.items()},
        "ranks": ranks,
    }
    told(out)
    return {**out, **against_uniform(found, folder, given, errors["dense"])}


def chosen_ranks(folder: Path, share: float) -> tuple[Study, dict, dict]:
    """Write `dense.so`; return the measurements, the choice, and the ranks for `low_rank:`."""
    job, path = api._job_of(NAME)
    functions = job.traced(path)
    written = export(functions, folder / "dense.so")
    scratch = CompiledSurrogate(folder / "dense.so").about["functions"][0]["workspace_bytes"]
    given = [f.typical for f in functions]
    found = study(functions, given, [], target(ExportConfig()), written["weight_bytes"] + scratch)
    chosen = found.chosen(share)
    ranks = {k.removeprefix("emulator."): list(v) for k, v in ranks_of(chosen).items()}
    told("ranks", ranks)
    return found, chosen, ranks


def against_uniform(found: Study, folder: Path, given: list, dense: list[float]) -> dict:
    """Return the error of chosen over that of uniform ranks at the uniform ones' time of a call."""
    lanes, out = target(ExportConfig()).lanes, {}
    layers = {layer.name: layer for layer in found.layers}
    whole = sum(layer.options[0].seconds for layer in found.layers)
    for fraction in FRACTIONS:
        uniform = {
            name: tuple(
                min(n, max(lanes // 2, round(fraction * n / lanes) * lanes)) for n in layer.full
            )
            for name, layer in layers.items()
        }
        own = {k: folder / f"{k}_{round(100 * fraction)}.so" for k in ("uniform", "chosen")}
        export(found.lowered(uniform), own["uniform"])
        paths = [folder / "dense.so", own["uniform"]]
        before, after = call_seconds(paths, found.functions, given)
        share = max(found.least_share(), 1 - (before - after) / whole)
        export(found.lowered(ranks_of(found.chosen(share))), own["chosen"])
        errors = {
            k: float(np.mean(np.array(one_step(file, found.functions[0])) / dense))
            for k, file in own.items()
        }
        taken = call_seconds([own["chosen"], own["uniform"]], found.functions, given)
        out[str(fraction)] = {**errors, "time_chosen_over_uniform": taken[0] / taken[1]}
        told("uniform", fraction, out[str(fraction)])
    worst = max(row["chosen"] / row["uniform"] for row in out.values())
    return {"error_over_uniform_worst": worst, "uniform": out}


def record(path: Path) -> dict:
    return json.loads((path / "fit.json").read_text())


def fine_tuned(path: Path, ranks: dict, folder: Path) -> tuple[Path, float]:
    """Return the run of a share of the training's steps, and the CPU seconds of its process."""
    steps = int(STEPS * record(path)["steps"])
    start = time.process_time()
    run = api.train(
        path / "config.yaml",
        [
            f"low_rank.of={path}",
            f"low_rank.ranks={json.dumps(ranks)}",
            f"training.steps={steps}",
            "training.schedule.warmup_steps=10",
            "training.progress=false",
            f"run.root={folder}/runs",
            "training.optimizer.lr=3e-4",
            "training.ema_decay=0.95",
            "weights_dtype=float32",
            "diagnostic=null",
            "guarded_weight=0.1",  # a guard computes the pressure
        ],
    )
    return run.path, time.process_time() - start


def one_step(library: Path, function: TracedFunction) -> list[float]:
    """Return one-step errors over persistence of each output on the test simulation."""
    (file,) = (content_root("datasets") / "rayleigh_benard").glob("*_s43_*.h5")
    with h5py.File(file) as data:
        fields = {s.name: np.asarray(data[s.name], np.float32) for s in function.inputs}
    inputs = [np.ascontiguousarray(fields[s.name][:-1]) for s in function.inputs]
    found, _ = CompiledSurrogate(library)(*inputs)
    return [
        float(
            np.linalg.norm(own - fields[s.name][1:])
            / np.linalg.norm(fields[s.name][:-1] - fields[s.name][1:])
        )
        for own, s in zip(found, function.outputs, strict=True)
    ]


def told(*what: object) -> None:
    print(*what, file=sys.stderr, flush=True)
