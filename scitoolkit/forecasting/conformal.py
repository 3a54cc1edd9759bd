"""Conformal prediction intervals from past forecast errors, adapted online.

Errors on the training years underestimate later ones (drift, overfitting), so the width is adapted
at each step: wider after a miss, narrower after a hit. Only errors whose verification time has
passed are used.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array


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
