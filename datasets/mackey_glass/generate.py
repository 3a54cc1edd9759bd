"""Make the series: `python generate.py --output .`

A ring of Mackey-Glass delay equations x_i(t), coupled in one direction:

    dx_i/dt = 0.2 y / (1 + y^10) - 0.1 x_i + 0.02 (x_(i-1) - x_i),   y = x_i(t - 17)

by the explicit midpoint rule with a step of 0.1, in double precision, stored in single every 30
steps after a spin-up of 6000. Mackey & Glass 1977, doi:10.1126/science.267326.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.io.fields import write_fields

POINTS, FRAMES, EVERY, SPINUP = 8, 2500, 30, 6000
STEP, DELAY, COUPLING = 0.1, 170, 0.02


def states() -> np.ndarray:
    """Return the states (frame, point) in double precision."""
    x = np.empty((SPINUP + FRAMES * EVERY, POINTS))
    x[: DELAY + 1] = 1.2 + 0.3 * np.random.default_rng(0).standard_normal(POINTS)
    # Only the states that exist: what follows is memory nobody has written yet.
    feedback = np.empty_like(x)
    feedback[: DELAY + 1] = 0.2 * x[: DELAY + 1] / (1 + x[: DELAY + 1] ** 10)

    def rate(state: np.ndarray, late: np.ndarray) -> np.ndarray:
        return late - 0.1 * state + COUPLING * (np.roll(state, 1) - state)

    for n in range(DELAY, len(x) - 1):
        delayed = x[n - DELAY + 1]
        feedback[n - DELAY + 1] = 0.2 * delayed / (1 + delayed**10)
        middle = (feedback[n - DELAY] + feedback[n - DELAY + 1]) / 2
        half = x[n] + STEP / 2 * rate(x[n], feedback[n - DELAY])
        x[n + 1] = x[n] + STEP * rate(half, middle)
    return x[SPINUP::EVERY]


def dataset() -> xr.Dataset:
    """Return the series u(time, x) with its coordinates."""
    attrs = {"units": "1", "long_name": "Mackey-Glass variable"}
    return xr.Dataset(
        {"u": (("time", "x"), states().astype(np.float32), attrs)},
        {
            "time": ("time", STEP * EVERY * np.arange(FRAMES), {"units": "1"}),
            "x": ("x", np.arange(POINTS), {"units": "1"}),
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path())
    write_fields(dataset(), parser.parse_args().output / "mackey_glass_8x2500.nc")
