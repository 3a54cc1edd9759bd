"""Conformal intervals of each lead and channel from the latest errors, adapted online."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


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
        num_known = 0
        for i in range(windows):
            while num_known < windows and verified[num_known, lead] <= issued[i]:
                missed = (errors[num_known, lead] < low[num_known, lead]) | (
                    errors[num_known, lead] > high[num_known, lead]
                )
                miss_rate += rate * ((1 - level) - missed)
                num_known += 1
            recent = history[max(0, start + num_known - memory) : start + num_known]
            low[i, lead], high[i, lead] = _tails(recent, np.clip(miss_rate, 0.001, 0.8))
    return low, high


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
