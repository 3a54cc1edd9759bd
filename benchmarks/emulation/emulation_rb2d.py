"""An emulator of Rayleigh-Bénard convection: trained on one run, tested on another one.

`workflows/field_surrogate/full.yaml` trains on 34 frames of seed 42, selects its weights on the
next six, and is scored on all frames of seed 43, which is used for no choice. Ratios are RMSE over
the RMSE of persistence; each is computed with cells weighted by volume and with equal weights (the
grid is fine at the walls), and the larger one counts. Rollouts start at every frame; linear
extrapolation is included for starts with a preceding frame.

EMULATION_RUN=RUN scores a finished run of the workflow instead of training another one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import _slow
from _places import ROOT

from scitoolkit import api

WORKFLOW = ROOT / "workflows" / "field_surrogate" / "full.yaml"
WAITING = Path(__file__).with_name("_emulation_waiting.py")
STEPS = 100
OUTPUTS = "pbuw"


def run() -> dict:
    """Return the figures of the run, and the waiting of a training in a slow file system."""
    with tempfile.TemporaryDirectory() as folder:
        finished = os.environ.get("EMULATION_RUN")
        path = Path(finished) if finished else api.train(WORKFLOW, [f"run.root={folder}"]).path
        scores = api.evaluate(path).metrics
        record = json.loads((path / "model" / "fit.json").read_text(encoding="utf-8"))
        share = waiting(Path(folder))
    return {**figures(scores), "train_cpu_seconds": record["cpu_seconds"], **share, **scores}


def figures(scores: dict) -> dict:
    """Return the figures that are judged, the worst of all variables each."""
    one_step = [
        scores[f"one_step_over_persistence_{weighting}{name}"]
        for name in OUTPUTS
        for weighting in ("", "unweighted_")
    ]
    eighth = [
        scores[f"rollout8_over_persistence_{weighting}{name}"]
        for name in OUTPUTS
        for weighting in ("", "unweighted_")
    ]
    better = scores["steps_better_than_persistence"]
    linear = scores["steps_better_than_linear_extrapolation"]
    # Linear extrapolation has one step less to be compared at: the first frame has none before.
    if linear < scores["rollout_steps"] - 1:
        better = min(better, linear)
    return {
        "one_step_over_persistence_max": max(one_step),
        "rollout8_over_persistence_max": max(eighth),
        "rollout_steps_better": better,
        "linear_over_persistence_max": max(scores[f"linear_over_persistence_{n}"] for n in OUTPUTS),
    }


def waiting(folder: Path) -> dict:
    """Return the share of a step spent waiting, with our loader and with a DataLoader."""
    library = _slow.compiled(folder)
    root = ROOT / "datasets"
    found = {}
    for kind in ("ours", "dataloader"):
        print(f"training in the slow file system: {kind}", file=sys.stderr)
        arguments = [str(WAITING), kind, str(WORKFLOW), str(STEPS)]
        found[kind] = _slow.run(arguments, library, root)["share"]
    return {
        "data_wait_share": found["ours"],
        "dataloader_wait_share": found["dataloader"],
        "slow_latency": _slow.LATENCY,
        "slow_bandwidth": _slow.BANDWIDTH,
    }
