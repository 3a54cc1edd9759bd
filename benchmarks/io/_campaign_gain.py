"""Benefit of more simulations: an emulator trained on eight compared with one trained on one.

Convection between two plates, 200 frames per simulation, two seeds at each of four Rayleigh
numbers. Both emulators have the same network, steps and batch size, hence the same CPU time. Only
the emulator of eight simulations has the Rayleigh number as an input, because it is constant in a
single simulation. Errors are those of one step, as VRMSE by the definition of the Well: the mean
over frames and fields of the RMSE over the field's spatial standard deviation.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.rollout import step_once
from scitoolkit.emulation.stages import prepare
from scitoolkit.generators.convection_solver import Convection
from scitoolkit.training import Trainer

NX, NZ, FRAMES, DT, EVERY, SPIN_UP = 64, 32, 200, 0.02, 0.5, 25.0
RAYLEIGH = (5e4, 1e5, 2e5, 4e5)
SINGLE = 1e5
TESTS = {"seed_100": (100, 1e5), "seed_101": (101, 1e5), "rayleigh_300000": (102, 3e5)}
STEPS, BATCH = 1500, 4


def run(folder: Path) -> dict:
    begin = time.process_time()
    train = folder / "train"
    for i, rayleigh in enumerate(RAYLEIGH * 2):
        simulate(train / f"run{i}_ra{int(rayleigh)}.nc", i, rayleigh)
    seconds = time.process_time() - begin
    tests = {name: simulate(folder / f"{name}.nc", *how) for name, how in TESTS.items()}
    single = train / f"run1_ra{int(SINGLE)}.nc"
    found, spent = {}, {}
    for name, path, parameters in (("all", train, {"rayleigh": "log"}), ("single", single, {})):
        begin = time.process_time()
        emulator = trained(path, folder, parameters)
        spent[name] = time.process_time() - begin
        found[name] = {t: vrmse(emulator, frames, TESTS[t][1]) for t, frames in tests.items()}
        print(name, found[name], f"{spent[name]:.0f} CPU-s", file=sys.stderr, flush=True)
    ratios = {t: found["all"][t] / found["single"][t] for t in tests}
    return {
        "campaign_gain": max(ratios.values()),
        "campaign_gain_by_test": ratios,
        "campaign_vrmse": found,
        "campaign_training_cpu_seconds": spent,
        "campaign_solver_cpu_seconds": seconds,
    }


def simulate(path: Path, seed: int, rayleigh: float) -> dict[str, np.ndarray]:
    flow = Convection(NX, NZ, rayleigh=rayleigh, dt=DT)
    flow.start_at_rest(seed)
    flow.advance(SPIN_UP)
    frames = []
    for _ in range(FRAMES):
        flow.advance(EVERY)
        b, u, w, _ = flow.fields()
        frames.append({"b": b, "u": u, "w": w})
    fields = {n: np.stack([f[n] for f in frames]).astype("f4") for n in frames[0]}
    data = xr.Dataset(
        {n: (("time", "x", "z"), v) for n, v in fields.items()},
        coords={
            "time": EVERY * np.arange(FRAMES),
            "x": flow.length * np.arange(NX) / NX,
            "z": flow.z,
        },
        attrs={"rayleigh": rayleigh},
    )
    path.parent.mkdir(exist_ok=True)
    data.to_netcdf(path, engine="h5netcdf")
    return fields


def trained(path: Path, folder: Path, parameters: dict[str, str]) -> Emulator:
    names = ["b", "u", "w"]
    config = EmulationConfig.model_validate(
        {
            "data": {
                "path": str(path),
                "inputs": names,
                "outputs": names,
                "parameters": parameters,
            },
            "split": {"train": 1.0, "validation": 0, "test": 0, "by": "simulation"},
            "boundary": {"x": "circular"},
            "coordinates": ["z"],
            "model": {"name": "unet", "widths": [16, 32, 32]},
            "run": {"root": str(folder / "o")},
            "training": {
                "steps": STEPS,
                "batch_size": BATCH,
                "progress": False,
                "optimizer": {"name": "adamw", "lr": 2e-3},
                "clip_norm": 1.0,
                "schedule": {"name": "cosine", "warmup_steps": 20},
            },
        }
    )
    job = prepare(config)
    Trainer(job.task, config.training).fit(job.loaders["train"], None)
    return job.model


def vrmse(emulator: Emulator, fields: dict[str, np.ndarray], rayleigh: float) -> float:
    errors, given = [], {"rayleigh": np.array(np.log10(rayleigh))}
    for k in range(0, FRAMES - 1, 4):
        found = step_once(emulator, given | {n: v[k] for n, v in fields.items()})
        for name, values in found.items():
            truth = fields[name][k + 1]
            errors.append(np.sqrt(np.mean((values - truth) ** 2) / (truth.var() + 1e-7)))
    return float(np.mean(errors))
