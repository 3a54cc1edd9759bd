"""Force errors of the shipped potential workflows against a pair potential and against no forces.

Each workflow is trained as shipped (one of them also longer) and evaluated on its test frames; the
three errors are read from the table of its report.
"""

from __future__ import annotations

import tempfile
import time

from _measure import machine

RUNS = {
    "acac_mace": ("acac_mace", ()),
    "water_deepmd": ("water_deepmd", ()),
    "water_deepmd_1500": ("water_deepmd", ("training.steps=1500",)),
    "silicon_mace": ("silicon_mace", ()),
}
"""Name of a run -> workflow and overrides."""


def run() -> dict:
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        errors = {
            name: _errors(workflow, [*overrides, f"run.root={folder}"])
            for name, (workflow, overrides) in RUNS.items()
        }
    return {"force_rmse": errors, "cpu_seconds": time.process_time() - started, **machine()}


def _errors(workflow: str, overrides: list[str]) -> dict:
    import scitoolkit
    from scitoolkit.core.results import Results

    directory = scitoolkit.run(f"workflows/{workflow}", overrides)
    metrics = Results.read(directory.path).metrics
    return {
        "workflow": workflow,
        "steps": max(row["step"] for row in directory.read_metrics() if row["step"] is not None),
        "model": metrics["force_rmse"],
        "pair_potential": metrics["force_rmse_of_pair_potential"],
        "zero_force": metrics["force_rmse_of_zero_force"],
    }
