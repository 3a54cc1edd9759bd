"""Super-resolution of turbulent convection: trained on seed 42, tested on seed 43.

`workflows/rayleigh_benard/full.yaml` receives 4 x 8 x 32 nodes and predicts 16 x 64 x 256 of a flow
not used for training. Baselines on the same nodes: multilinear and cubic interpolation. R2 weights
all nodes equally; errors of kinetic energy and dissipation are means over time, relative to the
truth; the error of the spectrum is that of its highest third, in decades. `refined` is the mode of
`spectrum`: the waves along x get the power spectrum of a third flow (SEED, the shipped solver),
which is used for nothing else; `dissipation_error` and `r2_refined` are of that mode.

SUPERRES_RUN=RUN scores a finished run of the workflow, or the shipped surrogate, instead of
training another one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr
from _measure import machine
from _places import ROOT

from scitoolkit import api
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.generators.convection_solver import Convection
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.evaluation import evaluate, measure_gains
from scitoolkit.superresolution.simulations import open_simulations, require_alone
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate

WORKFLOW = ROOT / "workflows" / "rayleigh_benard" / "full.yaml"
FIELDS = "pbuw"
SEED, BEGIN, FRAMES, STEP = 44, 20.0, 16, 0.25
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
        refined = refined_scores(path)
        record = ModelFolder(path).record()
    figures = {f"r2_{f}": scores[f"r2_{f}"] for f in FIELDS}
    for method, key in (("multilinear", "trilinear"), ("cubic", "cubic")):
        figures[f"r2_{key}"] = {f: scores[f"r2_{f}_{method}"] for f in FIELDS}
        figures[key] = {name: scores[f"{key_}_{method}"] for name, key_ in STATISTICS.items()}
    figures["plain"] = {name: scores[key] for name, key in STATISTICS.items()}
    figures |= {
        "spectrum_decades_refined": refined["spectrum_error_highest_third_refined"],
        "dissipation_error": refined["dissipation_error_refined"],
        "kinetic_energy_error": refined["kinetic_energy_error_refined"],
        "r2_refined": {f: refined[f"r2_{f}_refined"] for f in FIELDS},
        "r2_spectral": {f: scores[f"r2_{f}_spectral"] for f in FIELDS},
    }
    figures["spectrum_error_all_waves"] = scores["spectrum_error"]
    return {
        **figures,
        "r2_min": min(figures[f"r2_{f}"] for f in FIELDS),
        "train_cpu_seconds": record["cpu_seconds"],
        "train_steps": record["steps"],
        "machine": machine(),
        "scores": scores,
    }


def refined_scores(path: Path) -> dict:
    """Return the metrics on the test flow of the model with waves of a third flow."""
    model = ModelFolder(path)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    test = open_simulations(config.data.test, config.data, fields=surrogate.header.fields)
    truth = require_alone(test)
    gains = measure_gains(surrogate, third_flow(truth), "the third flow")
    return dict(evaluate(surrogate, truth, config, "test", gains).results.metrics)


def third_flow(like: xr.Dataset) -> xr.Dataset:
    """Return a simulation of the shipped solver on the grid of another one."""
    cells, levels = like.sizes["x"], like.sizes["z"]
    # The solver keeps two thirds of its waves: all of the wanted grid.
    flow = Convection(3 * cells // 2, levels, dt=0.002)
    flow.start_at_rest(SEED)
    flow.advance(BEGIN)
    rows = []
    for _ in range(FRAMES):
        rows.append(flow.frame(cells, levels))
        flow.advance(STEP)
    frames = {
        n: (("t", "x", "z"), np.stack([r[n] for r in rows]).astype(np.float32)) for n in FIELDS
    }
    times = BEGIN + STEP * np.arange(FRAMES)
    found = xr.Dataset(frames, {"t": times, "x": like["x"], "z": like["z"]}, like.attrs)
    return found.transpose(*like[FIELDS[0]].dims)
