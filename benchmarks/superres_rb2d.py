"""Super-resolution of turbulent convection: trained on seed 42, tested on seed 43.

`workflows/rayleigh_benard/full.yaml` sees 4 x 8 x 32 nodes and is asked for 16 x 64 x 256 of a flow
that nothing was learned from. Beside it, on the same nodes: multilinear and cubic interpolation.
R2 counts all nodes alike; errors of kinetic energy and dissipation are means over time, relative
to the truth; the error of the spectrum is that of its highest third, in decades.

SUPERRES_RUN=RUN scores a finished run of the workflow instead of training another one.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from _measure import machine

from scitoolkit import api

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / "workflows" / "rayleigh_benard" / "full.yaml"
FIELDS = "pbuw"
STATISTICS = {
    "kinetic_energy_error": "kinetic_energy_error",
    "dissipation_error": "dissipation_error",
    "spectrum_error": "spectrum_error_highest_third",
}


def run() -> dict:
    """Return the figures of the run and of interpolation."""
    with tempfile.TemporaryDirectory() as folder:
        finished = os.environ.get("SUPERRES_RUN")
        path = Path(finished) if finished else api.train(WORKFLOW, [f"run.root={folder}"]).path
        scores = dict(api.evaluate(path).metrics)
        record = json.loads((path / "model" / "fit.json").read_text(encoding="utf-8"))
    figures = {f"r2_{f}": scores[f"r2_{f}"] for f in FIELDS}
    for method, key in (("multilinear", "trilinear"), ("cubic", "cubic")):
        figures[f"r2_{key}"] = {f: scores[f"r2_{f}_{method}"] for f in FIELDS}
        figures[key] = {name: scores[f"{key_}_{method}"] for name, key_ in STATISTICS.items()}
    figures |= {name: scores[key] for name, key in STATISTICS.items()}
    figures["spectrum_error_all_waves"] = scores["spectrum_error"]
    return {
        **figures, "r2_min": min(figures[f"r2_{f}"] for f in FIELDS),
        "train_cpu_seconds": record["cpu_seconds"], "train_steps": record["steps"],
        "machine": machine(), "scores": scores,
    }  # fmt: skip
