"""Coverage of the 90 % intervals written by `predict`, at every lead, on nine series.

The forecasters are those of `forecast_families` (`auto`, closed forms), and of two more series:
waves with noise of varying amplitude, and Lorenz-63 under noise .1. Thirds: coverage of the cells
with the smallest, the middle and the largest spread, if intervals differ between cells. CRPS is
that of the forecast dressed with the quantiles of its interval.

Figures are of `intervals: static`, which know the errors before the test part only, and under
`adaptive` of intervals that follow the errors of the test part as they become known. `score` is the
interval score (Gneiting and Raftery 2007, doi:10.1198/016214506000001437, eq. 43) of the adaptive
intervals over that of the static ones, below 1 where they are better.
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


def covered(name: str) -> tuple[dict, dict, float]:
    """Return coverage and score of static and adaptive intervals, and the CRPS."""
    done = forecast(name)
    surrogate, windows = done.surrogate, done.windows
    low, high = surrogate.intervals(0.9)
    error = windows.targets() - surrogate.forecast(windows)
    factors = surrogate.factors(windows)
    return (
        figures_of(surrogate, error, low, high),
        figures_of(surrogate, error, factors * low, factors * high),
        done.results.metrics["crps"],
    )


def figures_of(surrogate, error: np.ndarray, low: np.ndarray, high: np.ndarray) -> dict:
    """Return coverage per lead and by thirds of spread, and the interval score."""
    inside = ((error >= low) & (error <= high)).mean(axis=0)
    share = surrogate.weights / surrogate.weights.sum()
    thirds: list[float] = []
    if np.ptp(surrogate.spread) > 0:
        order = np.argsort(surrogate.spread)
        thirds = [
            float(inside[:, cells].mean(axis=0) @ share[cells] / share[cells].sum())
            for cells in np.array_split(order, 3)
        ]
    beyond = np.maximum(low - error, 0) + np.maximum(error - high, 0)
    score = float((high - low + 2 / 0.1 * beyond).mean(axis=(0, 1)) @ share)
    return {"leads": (inside @ share).round(4).tolist(), "thirds": thirds, "score": score}


def summary(series: dict[str, dict]) -> dict:
    """Return the extremes of the coverage over all series, and all of it."""
    leads = {name: figures["leads"] for name, figures in series.items()}
    thirds = {name: figures["thirds"] for name, figures in series.items() if figures["thirds"]}
    return {
        "coverage90_min": min(min(values) for values in leads.values()),
        "coverage90_max": max(max(values) for values in leads.values()),
        "third_min": min((min(v) for v in thirds.values()), default=None),
        "third_max": max((max(v) for v in thirds.values()), default=None),
        "coverage_per_lead": leads,
        "thirds": thirds,
    }


def run() -> dict:
    found = {name: covered(name) for name in SERIES}
    static = {name: figures for name, (figures, _, _) in found.items()}
    adaptive = {name: figures for name, (_, figures, _) in found.items()}
    ratios = {name: adaptive[name]["score"] / static[name]["score"] for name in SERIES}
    return {
        **summary(static),
        "adaptive": {**summary(adaptive), "score": ratios},
        "lorenz63_crps": found["lorenz63"][2],
        "crps": {name: crps for name, (_, _, crps) in found.items()},
    }
