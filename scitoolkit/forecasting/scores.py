"""Scores of forecasts: skill with its interval, extremes, spectra and valid forecast time.

Truth and forecast have shape (window, lead, cell).
"""

from __future__ import annotations

import numpy as np

from scitoolkit.fields.spectra import decades_apart, line_power
from scitoolkit.forecasting.metrics import block_resamples
from scitoolkit.forecasting.windows import Array

TOLERANCE = 0.4
"""RMSE, relative to the deviation of the truth, up to which a forecast is valid."""
EXTREME = 0.05
_SHORTEST = 8


def skill(
    ours: Array, reference: Array, block: int, *, level: float = 0.9, seed: int = 0
) -> tuple[float, float, float]:
    """Return the skill 1 - RMSE / RMSE(reference) and its bootstrap interval (low, high).

    Args:
        ours, reference: (window,) mean squared errors.
        block: number of consecutive windows per bootstrap block; overlapping windows are
            dependent.
        level: of the interval.
        seed: of the resampling.

    Example:
        >>> errors = np.array([1.0, 1.0, 4.0, 1.0])
        >>> [round(v, 2) for v in skill(errors, 4 * errors, 1)]
        [0.5, 0.5, 0.5]
    """
    rows = block_resamples(len(ours), block, seed=seed)
    drawn = 1 - np.sqrt(ours[rows].mean(axis=1) / reference[rows].mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(1 - np.sqrt(ours.mean() / reference.mean())), float(low), float(high)


def valid_steps(truth: Array, forecast: Array, weights: Array, scale: float) -> float:
    """Return the median over windows of the number of leads before the RMSE exceeds 0.4 `scale`.

    A window whose RMSE never exceeds it counts with all its leads.

    Args:
        truth: (window, lead, cell).
        forecast: same shape.
        weights: (cell,) area weights.
        scale: deviation of the truth, in the unit of the field.

    Example:
        >>> error = np.array([0.1, 0.3, 0.5, 0.2])[None, :, None]
        >>> valid_steps(0 * error, error, np.ones(1), 1.0)
        2.0
    """
    error = np.sqrt(((truth - forecast) ** 2) @ (weights / weights.sum()))
    late = error > TOLERANCE * scale
    return float(np.median(np.where(late.any(axis=1), late.argmax(axis=1), truth.shape[1])))


def extremes(truth: Array, forecast: Array) -> float:
    """Return the symmetric extremal dependence index, averaged over the upper and lower 5 %.

    1 is perfect and 0 is chance, independent of the base rate; NaN without events. Thresholds are
    quantiles of the truth, so that a forecast that is too smooth misses events.

    Args:
        truth: anomalies.
        forecast: anomalies, same shape.

    Source:
        Ferro & Stephenson 2011, doi:10.1175/WAF-D-10-05030.1.

    Example:
        >>> truth = np.random.default_rng(0).normal(size=(50, 1, 20))
        >>> extremes(truth, truth) > 0.99, abs(extremes(truth, truth[::-1])) < 0.3
        (True, True)
    """
    low, high = np.quantile(truth, [EXTREME, 1 - EXTREME])
    tails = [
        _dependence(event(truth), event(forecast))
        for event in (lambda x: x < low, lambda x: x > high)
    ]
    return float(np.mean(tails))


def _dependence(observed: np.ndarray, forecast: np.ndarray) -> float:
    if not observed.any() or observed.all():
        return float("nan")
    edge = 0.5 / observed.size  # keeps the logarithms finite for rates of 0 and 1
    hits = float(np.clip(forecast[observed].mean(), edge, 1 - edge))
    alarms = float(np.clip(forecast[~observed].mean(), edge, 1 - edge))
    a, b, c, d = np.log(alarms), np.log(hits), np.log(1 - hits), np.log(1 - alarms)
    return float((a - b - d + c) / (a + b + c + d))


def spectral_error(truth: Array, forecast: Array, shape: tuple[int, ...]) -> float | None:
    """Return the RMS of the log10 ratio of power spectra at the last lead.

    Spectra are along the last dim of the grid; 0.3 is a factor of 2 in power on average over wave
    numbers. Returns None if cells are masked (`shape` does not match) or the dim is shorter than 8.

    Example:
        >>> truth = np.random.default_rng(0).normal(size=(5, 1, 64))
        >>> round(spectral_error(truth, 0.1 * truth, (64,)), 6)
        2.0
    """
    if int(np.prod(shape)) != truth.shape[-1] or shape[-1] < _SHORTEST:
        return None
    lines = (v[:, -1].reshape(-1, shape[-1]) for v in (truth, forecast))
    return decades_apart(*(line_power(values, -1).mean(axis=0) for values in lines))
