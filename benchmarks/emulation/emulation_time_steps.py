"""An emulator whose input is the length of a step, over ones trained for a single length.

Kuramoto-Sivashinsky (64 points, length 32). One emulator (`data.time_steps: input`, `film`) learns
from simulations with steps drawn log-uniformly over a decade; for each of four lengths another one
learns from as many frames of the same simulations with that length alone. Networks and numbers of
training steps are equal. The error is the RMSE of one step over that of persistence on other
simulations with equal steps of each length. One thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from _measure import machine
from fields_fine_tune import CELLS, LENGTH, STEP, VISCOSITY, frames_of

from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.io.fields import write_fields

BETWEEN, FRAMES, LENGTHS, LONGEST = 4, 32, (1, 2, 5, 10), 10
LEARNING, HELD, TEST, STEPS, RATE = 24, 2, 6, 600, 3e-3
JOB = f"""
domain: emulation
data: {{path: PATH, inputs: [u], outputs: [u]}}
split: {{by: simulation, train: {LEARNING}, validation: {HELD}, test: 0}}
boundary: {{x: circular}}
symmetries: {{shift: [x]}}
model: {{name: unet, widths: [16, 32]}}
rollout: {{long: 0, evaluate: 2}}
training:
  steps: {STEPS}
  batch_size: 8
  progress: false
  optimizer: {{name: adamw, lr: {RATE}}}
  schedule: {{name: cosine, warmup_steps: 20}}
"""


def run() -> dict:
    torch.set_num_threads(1)
    many = FRAMES * LONGEST
    learned, tested = (
        np.stack(list(frames_of(VISCOSITY, seed, count, frames=many, between=BETWEEN)), 1)[:, :, 0]
        for seed, count in ((0, LEARNING + HELD), (900, TEST))
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        drawn = [np.cumsum(_draw(rng, FRAMES)) - 1 for _ in learned]
        any_length = trained(
            folder, "any", learned, drawn, ["data.time_steps=input", "conditioning=film"]
        )
        out: dict = {}
        for length in LENGTHS:
            even = [length * np.arange(FRAMES)] * len(learned)
            own = trained(folder, f"own{length}", learned, even, [])
            test = write(folder / f"test{length}", tested, even[:TEST])
            errors = {n: error(r, test) for n, r in (("any", any_length), ("own", own))}
            out[f"dt_{length * BETWEEN * STEP:g}"] = {
                **errors,
                "ratio": errors["any"] / errors["own"],
            }
    worst = max(each["ratio"] for each in out.values())
    return {"any_over_own_max": worst, "steps": STEPS, **out, "machine": machine()}


def _draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return whole steps from 1 to LONGEST, log-uniform before they are rounded."""
    return np.round(LONGEST ** rng.uniform(0, 1, count)).astype(int)


def trained(
    folder: Path, name: str, frames: np.ndarray, rows: list[np.ndarray], settings: list[str]
) -> RunDirectory:
    """Return a run on some rows of each simulation."""
    path = folder / f"{name}.yaml"
    path.write_text(JOB.replace("PATH", str(write(folder / name, frames, rows))))
    config = load_config(EmulationConfig, path, [*settings, f"run.root={folder / 'runs'}"])
    run = RunDirectory.create(folder / "runs", name, config)
    EmulationJob().train(config, run)
    return run


def error(run: RunDirectory, path: Path) -> float:
    """Return the error of one step over that of persistence."""
    metrics = EmulationJob().evaluate(run.path, path).metrics
    return float(metrics["one_step_over_persistence_u"])


def write(folder: Path, frames: np.ndarray, rows: list[np.ndarray]) -> Path:
    """Write some rows of each simulation, one a file; return the folder."""
    folder.mkdir()
    x = LENGTH * np.arange(CELLS) / CELLS
    for number, (values, chosen) in enumerate(zip(frames, rows, strict=True)):
        field = (("time", "x"), values[chosen].astype(np.float32))
        times = BETWEEN * STEP * chosen
        data = xr.Dataset({"u": field}, {"time": ("time", times), "x": ("x", x)})
        write_fields(data, folder / f"run{number:02d}.nc")
    return folder
