"""Ablation of the equations and the modules: four trainings of equal length, one test.

All train on seed 42 for the same number of steps, predict 16 x 64 x 256 nodes of seed 43 from
4 x 8 x 32, and are scored like the full training in `superres_rb2d`. `STEPS` is a quarter of the
schedule of `workflows/rayleigh_benard/full.yaml`, so scores are lower than those of the full
training.

- `gamma_0`: our model without equations.
- `ours`: our model with the equations of the workflow.
- `swapped`: our model with the residual of the original's published code: `x` and `z` exchanged in
  derivatives but not in velocities, the Chebyshev nodes of z treated as uniform, time steps of half
  their length. It is written as equations of the workflow; nothing is patched.
- `original`: the original's U-Net and ImNet, rebuilt from their description, with the original's
  training: a quarter of the domain and 512 points per crop, 8 crops per step, Adam at 1e-2 (decayed
  as a cosine, by plateaus there), no averaged weights, no symmetries; without equations.

One seed each: the variation of these differences between seeds was not measured.
SUPERRES_ABLATION=FOLDER stores the runs there, and scores those that are finished.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import xarray as xr
import yaml
from _measure import machine
from _places import ROOT

from scitoolkit import api
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.superresolution import SuperresolutionSurrogate, check
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.evaluation import evaluate
from scitoolkit.superresolution.preparation import equations_of
from scitoolkit.superresolution.simulations import open_simulations

WORKFLOW = ROOT / "workflows" / "rayleigh_benard" / "full.yaml"
STEPS = 500
SCORES = {
    **{f"r2_{f}": f"r2_{f}" for f in "pbuw"},
    "kinetic_energy_error": "kinetic_energy_error",
    "dissipation_error": "dissipation_error",
    "spectrum_error": "spectrum_error_highest_third",
    "spectrum_error_all_waves": "spectrum_error",
}
EQUATIONS = ("continuity", "buoyancy", "momentum_x", "momentum_z")

SLOPE = "(pi/2)*sqrt(1 - 4*z^2)"
"""dz/ds of the nodes z = -cos(pi s)/2, s being the number of a node over their count."""


def swapped_equations() -> dict[str, str]:
    """Return the system as the published code takes it, in the coordinates of the file.

    Its `x` is the derivative by the number of the node along z, its `z` that along x, and its
    frames are 0.125 apart where the simulation stored them each 0.25.
    """

    def along_x(f: str) -> str:
        return f"{SLOPE}*dif({f},z)"

    def transport(f: str, coefficient: str) -> str:
        along_x_twice = f"(pi^2/4)*(1 - 4*z^2)*dif({f},z,z) - pi^2*z*dif({f},z)"
        spread = f"{coefficient}*({along_x_twice} + dif({f},x,x))"
        return f"2*dif({f},t) + u*{along_x(f)} + w*dif({f},x) - {spread}"

    return {
        "continuity": f"{along_x('u')} + dif(w,x)",
        "buoyancy": transport("b", "P"),
        "momentum_x": f"{transport('u', 'R')} + {along_x('p')}",
        "momentum_z": f"{transport('w', 'R')} + dif(p,x) - b",
    }


PUBLISHED = {
    "encoder": {"name": "resunet", "widths": [16, 32, 64, 128], "channels": 32},
    "decoder": {"name": "imnet", "widths": [512, 256, 128, 64, 32], "activation": "softplus"},
    "blend": "linear",
    "interpolate": False,
    "average": False,
}
REGRESSION = {"pde.weight": 0.0}
VARIANTS: dict[str, dict] = {
    "gamma_0": REGRESSION,
    "ours": {},
    "swapped": {"pde.equations": swapped_equations(), "pde.constants.pi": 3.141592653589793},
    "original": {
        **REGRESSION,
        "model": PUBLISHED,
        "data.walled": [],
        "crop.size": {"t": 16, "x": 57},
        "crop.points": 512,
        "crop.symmetries": {},
        "training.batch_size": 8,
        "training.ema_decay": None,
        "training.optimizer": {"name": "adam", "lr": 1e-2},
    },
}


def run() -> dict:
    """Train and score all variants."""
    figures: dict[str, dict] = {}
    truth: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("SUPERRES_ABLATION", temporary))
        for name, changes in VARIANTS.items():
            path = trained(name, changes, folder / name)
            figures[name], interpolated = scores_of(path)
            print(f"{name}: {json.dumps(figures[name])}")
            if name in ("ours", "swapped"):
                truth[name] = residuals_of_the_truth(path)
    return {
        **figures,
        "multilinear": interpolated,
        "true_data_residual_over_terms": truth,
        "steps": STEPS,
        "seeds": 1,
        "machine": machine(),
    }


def residuals_of_the_truth(path: Path) -> dict[str, float]:
    """Return the residuals of a run's equations on its training data."""
    config = ModelFolder(path).config(SuperresolutionConfig)
    simulations = open_simulations(config.data.path, config.data)
    pde = equations_of(config, simulations, [0])
    return check(pde, simulations.dataset(0), periodic=config.data.periodic).ratios


def trained(name: str, changes: dict, folder: Path) -> Path:
    """Return the run directory of a variant, trained unless it is there already."""
    finished = [p.parent.parent for p in folder.rglob("model/fit.json")]
    if finished:
        return finished[0]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(job(changes, folder)), encoding="utf-8")
    return api.train(config).path


def job(changes: dict, folder: Path) -> dict:
    """Return the configuration of the workflow with dotted keys replaced."""
    config = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    changes = copy.deepcopy(changes)
    for key in ("path", "test"):
        config["data"][key] = str((WORKFLOW.parent / config["data"][key]).resolve())
    config["run"] = {"root": str(folder)}
    config["training"]["progress"] = False
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = config
        for section in sections:
            place = place[section]
        place[last] = value
    if not config["pde"].get("weight", True):
        config["pde"].pop("points", None)  # refused where no equation is evaluated
    config["crop"]["per_epoch"] = STEPS * config["training"]["batch_size"]
    return config


def scores_of(path: Path) -> tuple[dict, dict]:
    """Return a run's scores, residuals being those of the true equations, and interpolation's."""
    model = ModelFolder(path)
    config = model.config(SuperresolutionConfig)
    own = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["pde"]
    true = config.pde.model_copy(update={k: own[k] for k in ("equations", "constants")})
    config = config.model_copy(update={"pde": true})
    surrogate = SuperresolutionSurrogate.load(model.path)
    asked = surrogate if all(surrogate.header.layout.whole[1:]) else Wrapped(surrogate)
    dataset = open_simulations(config.data.test, config.data).dataset(0)
    metrics = evaluate(asked, dataset, config, config.data.test.name).results.metrics
    record = model.record()
    interpolated = {name: metrics[f"{key}_multilinear"] for name, key in SCORES.items()}
    return {
        **{name: metrics[key] for name, key in SCORES.items()},
        "r2_min": min(metrics[f"r2_{f}"] for f in "pbuw"),
        "residual": {name: metrics[f"residual_{name}"] for name in EQUATIONS},
        "steps": record["steps"],
        "cpu_seconds": record["cpu_seconds"],
        "parameters": sum(p.numel() for p in surrogate.model.parameters()),
    }, interpolated


class Wrapped:
    """A model trained on parts of the periodic x, for queries over all of it.

    The first coarse node is repeated at the end, one period further; the header declares the whole
    x, so that the model is scored at the same nodes, with the same spectra, as the others.
    """

    def __init__(self, surrogate: SuperresolutionSurrogate) -> None:
        head = surrogate.header
        self.period = head.periods[-1]
        self.inner = SuperresolutionSurrogate(surrogate.members[0].in_box((None, None, None)))
        nodes = round(self.period / head.spacing[-1]) * head.layout.every[-1]
        whole = replace(head.layout, whole=(True,) * 3, size=(*head.layout.size[:-1], nodes))
        self.header = replace(head, layout=whole)
        self.physics = surrogate.physics

    def coarse(self, dataset: xr.Dataset, where: str = "input"):
        """Return the coarse fields, one period and a node long."""
        dim = self.header.dims[-1]
        first = dataset.isel({dim: [0]})
        again = first.assign_coords({dim: first[dim] + self.period})
        return self.inner.coarse(xr.concat([dataset, again], dim), where)
