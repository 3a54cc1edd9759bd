"""Comparison of the field-model families with equal CPU seconds, data, training and scores.

The problems of `emulation_peers`: Kuramoto-Sivashinsky (one dim), Gray-Scott and Rayleigh-Bénard
convection (two), from the shipped generators. Each family has about a million parameters, selects a
learning rate in short runs and then trains for `--fit` CPU seconds. Scores are VRMSE after one step
and the mean over steps 13 to 30 of rollouts; `step_ms` is the CPU time of one step, one thread.

With PYTHONPATH=benchmarks, `python benchmarks/emulation/field_models.py --fit 20 --trial 5
--problems kuramoto_sivashinsky` runs a part.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _measure import machine
from emulation_peers import PROBLEMS, Problem, our_scores, persistence, scored, write_trajectories

FIT, TRIAL = 60.0, 10.0
COMPARED = ("kuramoto_sivashinsky", "gray_scott", "rayleigh_benard")
ONE_DIM = {
    "unet": "name: unet, widths: [64, 128, 192], blocks: 1",
    "convnext_unet": "name: convnext_unet, widths: [64, 128, 192], blocks: 2, kernel: 7",
    "resnet": "name: resnet, width: 96, blocks: 5, kernel: 7",
    "fno": "name: fno, width: 64, modes: [32], layers: 4",
    "factorised_fno": "name: factorised_fno, width: 64, modes: [32], layers: 4",
}
TWO_DIMS = {
    "unet": "name: unet, widths: [48, 96, 128, 128], blocks: 1, patch: 2",
    "convnext_unet": "name: convnext_unet, widths: [64, 128, 192], blocks: 2, kernel: 5, patch: 2",
    "resnet": "name: resnet, width: 96, blocks: 5, kernel: 3, patch: 2",
    "fno": "name: fno, width: 32, modes: [16], layers: 4",
    "factorised_fno": "name: factorised_fno, width: 64, modes: [24], layers: 4",
}


def run(fit: float = FIT, trial: float = TRIAL, problems: Sequence[str] = COMPARED) -> dict:
    """Return the figures.

    Args:
        fit: CPU seconds of a long run.
        trial: CPU seconds of a run that a learning rate is chosen by.
        problems: names of those that are run.
    """
    torch.set_num_threads(1)
    found = {}
    for name in problems:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = _problem(PROBLEMS[name], Path(folder), fit, trial)
    return {"fit_cpu_seconds": fit, "trial_cpu_seconds": trial, **found, **machine()}


def _problem(problem: Problem, folder: Path, fit: float, trial: float) -> dict[str, Any]:
    frames = write_trajectories(problem, folder)
    test = frames[-problem.seeds[2] :]
    families = ONE_DIM if frames[0, 0, 0].ndim == 1 else TWO_DIMS
    scores: dict[str, Any] = {"persistence": scored(persistence(test), test)}
    for family, model in families.items():
        known = [s for s in problem.sections if not s.startswith("model=")]
        case = replace(problem, sections=[*known, f"model={{{model}}}"])
        (folder / family).mkdir()
        for file in folder.glob("seed*.nc"):
            (folder / family / file.name).symlink_to(file)
        scores[family] = our_scores(case, folder / family, test, fit, trial)
        print(json.dumps({problem.generator.name: {family: scores[family]}}), file=sys.stderr)
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", type=float, default=FIT, help="CPU seconds of a long run")
    parser.add_argument("--trial", type=float, default=TRIAL, help="CPU seconds of a rate's run")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    given = parser.parse_args()
    print(json.dumps(run(given.fit, given.trial, given.problems), indent=1))
