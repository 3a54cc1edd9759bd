"""A training step under four equations: forward Taylor streams compared with two other methods.

One thread, the sizes of the MeshfreeFlowNet paper (its ImNet, a 4 x 16 x 16 latent grid, 512 points
per crop), two crops, second derivatives; see `_pde_engines.py`. CPU seconds, medians of alternating
rounds. Residuals and gradients are first compared with the original's in float64, ours in float32,
so that the differences include rounding. Memory is the growth of the resident size in a step, in a
separate process, by `VmHWM`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import _pde_engines as engines
import torch
from _measure import alternate, machine, medians, memory_mib

BATCH, ROUNDS = 2, 3
RESIDUAL_BAR, GRADIENT_BAR = 1e-4, 1e-5
CONTESTANTS = ("ours", "none", "jvp", "original")


def run() -> dict:
    """Return ratios of time and memory, and the differences that allow them to be printed."""
    torch.set_num_threads(1)
    differences = agreement()
    if (
        differences["residual_relative_error"] > RESIDUAL_BAR
        or differences["gradient_relative_error"] > GRADIENT_BAR
    ):
        raise SystemExit(f"the engines disagree, no speed is printed: {differences}")
    problem = engines.Problem(BATCH)
    for name in CONTESTANTS:
        problem.step(name)
    seconds = medians(alternate({n: (lambda n=n: problem.step(n)) for n in CONTESTANTS}, ROUNDS))
    memory = {name: memory_of(name) for name in CONTESTANTS}
    return {
        "speedup_vs_original": seconds["original"] / seconds["ours"],
        "speedup_vs_jvp": seconds["jvp"] / seconds["ours"],
        "cost_over_no_pde": seconds["ours"] / seconds["none"],
        "memory_ratio": memory["original"] / memory["ours"],
        **differences,
        "seconds_per_step": seconds,
        "memory_mib": memory,
        "batch": BATCH,
        "machine": machine(),
    }


def agreement() -> dict[str, float]:
    """Return the largest differences from the original's layer, over its largest values."""
    exact = engines.Problem(BATCH, torch.float64)
    loss, wanted = exact.loss("original")
    loss.backward()
    reference = exact.gradient()
    found = {"residual_relative_error": 0.0, "gradient_relative_error": 0.0}
    for engine in ("ours", "jvp"):
        problem = engines.Problem(BATCH)
        problem.model.load_state_dict(exact.model.state_dict())
        loss, residuals = problem.loss(engine)
        loss.backward()
        residual = max(
            ((residuals[n] - wanted[n]).abs().max() / wanted[n].abs().max()).item() for n in wanted
        )
        gradient = float((problem.gradient() - reference).norm() / reference.norm())
        suffix = "" if engine == "ours" else f"_{engine}"
        found[f"residual_relative_error{suffix}"] = residual
        found[f"gradient_relative_error{suffix}"] = gradient
    return found


def memory_of(engine: str) -> float:
    """Return the growth of memory by two steps of an engine in a separate process, MiB."""
    command = [sys.executable, __file__, engine]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def _grown(engine: str) -> float:
    torch.set_num_threads(1)
    problem = engines.Problem(BATCH)
    with torch.no_grad():  # kernels and their buffers are loaded before the count starts
        problem.loss("none")
    before = memory_mib()
    for _ in range(2):
        problem.step(engine)
    return memory_mib() - before


if __name__ == "__main__":
    print(json.dumps(_grown(sys.argv[1])))
