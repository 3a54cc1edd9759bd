"""Coverage of the 90 % intervals written by `predict`, at every lead, on nine series.

The forecasters are those of `forecast_families` (`auto`, closed forms), and of two more series:
waves with noise of varying amplitude, and Lorenz-63 under noise .1. Thirds: coverage of the cells
with the smallest, the middle and the largest spread, if intervals differ between cells. CRPS is
that of the forecast dressed with the quantiles of its interval.
"""

from __future__ import annotations

import numpy as np
from _forecasts import forecast

SERIES = (
    "lorenz63",
    "lorenz96",
    "lorenz96_noise",
    "ks",
    "waves",
    "sc20",
    "ersst",
    "gusts",
    "lorenz63_noise",
)


def covered(name: str) -> tuple[np.ndarray, list[float], float]:
    """Return coverage per lead, by thirds of spread, and CRPS."""
    done = forecast(name)
    surrogate, windows = done.surrogate, done.windows
    low, high = surrogate.intervals(0.9)
    error = windows.targets() - surrogate.forecast(windows)
    inside = ((error >= low) & (error <= high)).mean(axis=0)
    share = surrogate.weights / surrogate.weights.sum()
    thirds: list[float] = []
    if np.ptp(surrogate.spread) > 0:
        order = np.argsort(surrogate.spread)
        thirds = [
            float(inside[:, cells].mean(axis=0) @ share[cells] / share[cells].sum())
            for cells in np.array_split(order, 3)
        ]
    return inside @ share, thirds, done.results.metrics["crps"]


def run() -> dict:
    found = {name: covered(name) for name in SERIES}
    leads = {
        name: [round(float(v), 4) for v in per_lead] for name, (per_lead, _, _) in found.items()
    }
    thirds = {name: values for name, (_, values, _) in found.items() if values}
    return {
        "coverage90_min": min(min(values) for values in leads.values()),
        "coverage90_max": max(max(values) for values in leads.values()),
        "third_min": min((min(v) for v in thirds.values()), default=None),
        "third_max": max((max(v) for v in thirds.values()), default=None),
        "lorenz63_crps": found["lorenz63"][2],
        "coverage_per_lead": leads,
        "thirds": thirds,
        "crps": {name: crps for name, (_, _, crps) in found.items()},
    }
