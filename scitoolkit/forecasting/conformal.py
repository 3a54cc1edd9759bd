"""Conformal prediction intervals from past forecast errors, adapted online.

Errors on the training years underestimate later ones (drift, overfitting), so the width is adapted
at each step: wider after a miss, narrower after a hit. Only errors whose verification time has
passed are used.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array


def rolling_intervals(
    errors: Array,
    verified: np.ndarray,
    issued: np.ndarray,
    past_errors: Array,
    *,
    level: float = 0.9,
    memory: int = 150,
    rate: float = 0.02,
) -> tuple[Array, Array]:
    """Return offsets (low, high) of the intervals, computed from errors known at issue time.

    The bounds are equal-tailed quantiles of the last `memory` known errors, at a nominal level
    that is adapted to the observed misses, per lead and channel.

    Args:
        errors: (window, lead, channel) truth - forecast; an entry is used only for windows
            issued at or after its verification step.
        verified: (window, lead) step at which each error becomes known.
        issued: (window,) step at which each forecast is issued, ascending.
        past_errors: (past, lead, channel) errors known before the first forecast.
        level: nominal coverage.
        memory: number of latest errors used for the quantiles.
        rate: learning rate of the level.

    Returns:
        Two arrays (window, lead, channel) to add to the forecasts.

    Source:
        Adaptive conformal inference, Gibbs & Candès 2021, arXiv:2106.00170, eq. 2.
    """
    windows, leads, channels = errors.shape
    low, high = np.empty_like(errors), np.empty_like(errors)
    for lead in range(leads):
        history = np.concatenate([past_errors[:, lead], errors[:, lead]])
        start = len(past_errors)
        miss_rate = np.full(channels, 1 - level)
        known = 0
        for i in range(windows):
            while known < windows and verified[known, lead] <= issued[i]:
                missed = (errors[known, lead] < low[known, lead]) | (
                    errors[known, lead] > high[known, lead]
                )
                miss_rate += rate * ((1 - level) - missed)
                known += 1
            recent = history[max(0, start + known - memory) : start + known]
            low[i, lead], high[i, lead] = _tails(recent, np.clip(miss_rate, 0.001, 0.8))
    return low, high


def width_factors(
    error: Array,
    low: Array,
    high: Array,
    weights: Array,
    starts: np.ndarray,
    *,
    level: float = 0.9,
    rate: float = 0.2,
) -> Array:
    """Return width factors (window, lead) of given intervals from errors known at issue time.

    A factor increases after forecasts whose misses cover more than the nominal share of the area
    and decreases after others. Only errors whose verification time has passed are used.

    Args:
        error: (window, lead, cell) truth - forecast; NaN where the truth is unknown.
        low, high: (lead, cell) offsets of the intervals, below and above 0.
        weights: (cell,) area weights.
        starts: (window,) first steps of the windows, ascending.
        level: nominal coverage.
        rate: change of a factor's logarithm per excess share of missed area.

    Source:
        online quantile tracking, Angelopoulos et al. 2023, arXiv:2307.16895, in the logarithm.

    Example:
        >>> error = np.full((200, 1, 1), 2.0) * np.where(np.arange(200) % 2, 1, -1)[:, None, None]
        >>> bound = np.ones((1, 1))
        >>> found = width_factors(error, -bound, bound, np.ones(1), np.arange(200))
        >>> float(found[0, 0]), bool(1.5 < found[-1, 0] < 2.5)
        (1.0, True)
    """
    share, factors = weights / weights.sum(), np.ones(error.shape[:2])
    for lead in range(error.shape[1]):
        below, above = np.minimum(low[lead], -1e-300), np.maximum(high[lead], 1e-300)
        with np.errstate(invalid="ignore"):
            reach = np.maximum(error[:, lead] / above, error[:, lead] / below)
        logarithm, known = 0.0, 0
        for i, start in enumerate(starts):
            while known < i and starts[known] + lead + 1 <= start:
                missed = float((reach[known] > factors[known, lead]) @ share)
                if np.isfinite(reach[known]).all():
                    logarithm += rate * (missed - (1 - level))
                known += 1
            factors[i, lead] = np.exp(np.clip(logarithm, -1.6, 1.6))
    return factors


def _tails(errors: Array, miss_rate: Array) -> tuple[Array, Array]:
    """Return lower and upper quantile per channel, with the conformal finite-sample correction."""
    count = len(errors)
    ordered = np.sort(errors, axis=0)
    position = np.clip((count + 1) * miss_rate / 2 - 1, 0, count - 1)
    columns = np.arange(errors.shape[1])
    below = np.floor(position).astype(int)
    share = position - below
    above = np.minimum(below + 1, count - 1)
    low = ordered[below, columns] * (1 - share) + ordered[above, columns] * share
    mirror, mirror_above = count - 1 - below, np.maximum(count - 1 - above, 0)
    high = ordered[mirror, columns] * (1 - share) + ordered[mirror_above, columns] * share
    return low, high
