"""Simulations of Rayleigh-Bénard convection as files, for training and as truth."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.generators.convection_solver import Convection, gauss_points
from scitoolkit.io.fields import write_fields

NX, NZ, STEP = 128, 48, 0.25
SPIN_UP = 35.0


def simulate(seed: int, frames: int, start: float = SPIN_UP) -> tuple[xr.Dataset, float]:
    """Return frames `STEP` apart from time `start` on, and the CPU seconds of one."""
    flow = Convection(NX, NZ)
    flow.start_at_rest(seed)
    begin = time.process_time()
    flow.advance(start)
    rows = []
    for _ in range(frames):
        rows.append(flow.frame(NX, NZ))
        flow.advance(STEP)
    seconds = (time.process_time() - begin) / (frames + start / STEP)
    coords = {
        "t": start + STEP * np.arange(frames),
        "x": flow.length * np.arange(NX) / NX,
        "z": gauss_points(NZ),
    }
    variables = {
        n: (("t", "x", "z"), np.stack([r[n] for r in rows]).astype(np.float32)) for n in "pbuw"
    }
    return xr.Dataset(variables, coords=coords), seconds


def write(folder: Path, seeds: range, frames: int, start: float = SPIN_UP) -> float:
    """Write one file a seed into a folder; return the CPU seconds of a frame."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds = []
    for seed in seeds:
        data, cost = simulate(seed, frames, start)
        write_fields(data, folder / f"seed{seed}.nc")
        seconds.append(cost)
    return float(np.median(seconds))
