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
    own_rate: float = 0.02,
) -> Array:
    """Return width factors (window, lead, cell) of given intervals from errors known at issue time.

    The logarithm of a factor follows the misses of its lead in the whole field, which are many and
    hence sure, and more slowly those of the cell: errors of some cells may drift while others
    stay. Only errors whose verification time has passed are used.

    Args:
        error: (window, lead, cell) truth - forecast; NaN where the truth is unknown.
        low, high: (lead, cell) offsets of the intervals, below and above 0.
        weights: (cell,) area weights.
        starts: (window,) first steps of the windows, ascending.
        level: nominal coverage.
        rate: change of the logarithms per excess share of missed area, in a large field. The
            share of n cells of one area is surer than the miss of one: n / (n + 1) of the rate.
        own_rate: change of a cell's logarithm per miss of it beyond the share of missed area.

    Source:
        online quantile tracking, Angelopoulos et al. 2023, arXiv:2307.16895, in the logarithm.

    Example:
        >>> error = np.full((400, 1, 1), 2.0) * np.where(np.arange(400) % 2, 1, -1)[:, None, None]
        >>> bound = np.ones((1, 1))
        >>> found = width_factors(error, -bound, bound, np.ones(1), np.arange(400))
        >>> float(found[0, 0, 0]), bool(1.5 < found[-1, 0, 0] < 2.5)
        (1.0, True)
    """
    share, factors = weights / weights.sum(), np.ones(error.shape)
    rate /= 1 + float(share @ share)
    for lead in range(error.shape[1]):
        below, above = np.minimum(low[lead], -1e-300), np.maximum(high[lead], 1e-300)
        with np.errstate(invalid="ignore"):
            reach = np.maximum(error[:, lead] / above, error[:, lead] / below)
        logarithms, verified = np.zeros(error.shape[2]), 0
        for i, start in enumerate(starts):
            while verified < i and starts[verified] + lead + 1 <= start:
                if np.isfinite(reach[verified]).all():
                    missed = reach[verified] > factors[verified, lead]
                    area = float(missed @ share)
                    logarithms += rate * (area - (1 - level)) + own_rate * (missed - area)
                verified += 1
            factors[i, lead] = np.exp(np.clip(logarithms, -1.6, 1.6))
    return factors
