"""Make the series again: `python generate.py --output lorenz96_f8_40x700.nc`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.io.fields import write_fields

POINTS, FORCING, STEP, STEPS, SPIN_UP = 40, 8.0, 0.05, 700, 500


def rate(x: np.ndarray) -> np.ndarray:
    """Return dx/dt of Lorenz-96."""
    return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + FORCING


def series(seed: int = 0) -> np.ndarray:
    """Return (time, x) after the spin-up, by classical Runge-Kutta."""
    x = FORCING + 0.01 * np.random.default_rng(seed).standard_normal(POINTS)
    out = []
    for number in range(SPIN_UP + STEPS):
        if number >= SPIN_UP:
            out.append(x)
        a = rate(x)
        b = rate(x + STEP / 2 * a)
        c = rate(x + STEP / 2 * b)
        x = x + STEP / 6 * (a + 2 * b + 2 * c + rate(x + STEP * c))
    return np.array(out, dtype=np.float32)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("lorenz96_f8_40x700.nc"))
    options = parser.parse_args()
    field = xr.DataArray(
        series(), dims=("time", "x"), name="u",
        attrs={"units": "1", "long_name": "Lorenz-96 variable"},
    )  # fmt: skip
    print(write_fields(field.to_dataset(), options.output))


if __name__ == "__main__":
    main()
