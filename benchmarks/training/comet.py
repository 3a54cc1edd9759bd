"""Training memory with compressed activations (COMET) compared with other methods, on real data.

Memory is the growth of the peak resident memory of a fresh process over the memory held between two
steps, everything included: temporaries of the operations, decoded tensors, the rehearsals that
measure the gradient error. `nothing_saved` stores no activations (and gives wrong gradients): it is
the lower bound for any store of activations. For all methods the C library is set to allocate every
large tensor separately (MALLOC_MMAP_THRESHOLD_), so that fragmentation does not count. The
gradient error is |g - g_exact| / |g_exact| over all parameters, the largest of several steps.

`NAME_over_checkpointing` compares the store `planned` with the best checkpointing by the live bytes
of tensors in a step, because resident memory of these networks is mostly fragmentation; `rivals`
beside it are ActNN's scheme and GACT's, whose packages need CUDA, at four bits a value. `offload`
has live bytes and seconds of the methods that change no bit: saved, recomputed, moved to a file.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from _places import ROOT

EMULATOR = {"model": "emulator", "width": 32, "blocks": 24, "batch": 2}
OTHERS = {
    "resnet56_batchnorm": {"model": "resnet", "width": 16, "blocks": 9, "batch": 4},
    "unet3d": {"model": "unet3d", "width": 16, "blocks": 2, "batch": 1},
}
PLANNED = {
    "resnet18": {"model": "resnet18", "width": 32, "blocks": 2, "batch": 16},
    "unet": {"model": "unet3d", "width": 16, "blocks": 2, "batch": 1},
    "transformer": {"model": "transformer", "width": 192, "blocks": 6, "batch": 8},
}
SMALL = {"model": "emulator", "width": 16, "blocks": 6, "batch": 2, "steps": 120}
RIVALS = ("checkpointing", "quantised2", "quantised4")
CHECKS = (6, 10)
SEEDS = (0, 1, 2)


def worker(part: str, **options) -> dict:
    """Run a part in a fresh process."""
    print(part, options, file=sys.stderr, flush=True)
    environment = dict(os.environ)
    if part == "memory":
        environment["MALLOC_MMAP_THRESHOLD_"] = "1000000"
    command = [
        sys.executable,
        str(Path(__file__).with_name("_comet_worker.py")),
        json.dumps({"part": part, **options}),
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak(model: dict, method: str) -> float:
    return worker("memory", **model, method=method, steps=6)["peak_mib"]


def other(model: dict) -> dict[str, float]:
    """Return memory and gradient error of another network."""
    found = worker("errors", **model, steps=CHECKS[-1], checks=CHECKS)
    peaks = {name: peak(model, name) for name in ("exact", "comet", "nothing")}
    return {
        "activation_memory_ratio": peaks["exact"] / peaks["comet"],
        "nothing_saved_ratio": peaks["exact"] / peaks["nothing"],
        "gradient_error": found["comet"]["gradient_error"],
        "packed_ratio": found["packed_ratio"],
        **{f"{name}_mib": value for name, value in peaks.items()},
    }


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    peaks = {m: peak(EMULATOR, m) for m in ("exact", "comet", "nothing", *RIVALS)}
    found = worker("errors", **EMULATOR, steps=CHECKS[-1], checks=CHECKS)
    seconds = worker("timing", **EMULATOR, steps=1, rounds=4, state=found["state"])
    points = {
        method: [worker("accuracy", **SMALL, method=method, seed=s)["points"] for s in SEEDS]
        for method in ("exact", "comet")
    }

    planned = {name: worker("planned", **model, warm=4) for name, model in PLANNED.items()}
    for name, model in PLANNED.items():
        planned[name]["rivals"] = worker("rivals", **model, warm=4)
    offload = {
        name: worker("offload", **model, warm=1, rounds=3) for name, model in PLANNED.items()
    }

    def rival(name: str) -> dict[str, float]:
        return {
            "activation_memory_ratio": peaks["exact"] / peaks[name],
            "step_time_ratio": seconds[name] / seconds["exact"],
            **found.get(name, {"gradient_error": 0.0}),
        }

    return {
        **{
            f"{name}_over_checkpointing": each["over_checkpointing"]
            for name, each in planned.items()
        },
        "activation_memory_ratio": peaks["exact"] / peaks["comet"],
        "nothing_saved_ratio": peaks["exact"] / peaks["nothing"],
        **found["comet"],
        "packed_ratio": found["packed_ratio"],
        "accuracy_drop": statistics.mean(points["exact"]) - statistics.mean(points["comet"]),
        "accuracy_points": points,
        "step_time_ratio": seconds["comet"] / seconds["exact"],
        "checkpointing": rival("checkpointing"),
        "quantised": {"bits2": rival("quantised2"), "bits4": rival("quantised4")},
        "others": {name: other(model) for name, model in OTHERS.items()},
        "planned": planned,
        "offload": offload,
        "peak_mib": peaks,
        "step_cpu_seconds": seconds,
        "machine": machine(),
    }


def run_cuda() -> dict:
    """Return memory, time and codec speed of 50 convolutions on a GPU."""
    import _comet_cuda
    import torch
    from _measure import machine

    return {**_comet_cuda.run(torch.device("cuda")), "machine": machine()}
