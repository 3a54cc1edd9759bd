"""The distribution of errors that intervals are made of: per lead, scaled by cell if that helps."""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array

QUANTILES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975)
"""Levels at which the distribution of forecast errors is kept; 0.05 and 0.95 bound 90 %."""

EXPONENTS = (0.0, 0.5, 1.0)
PROVEN = 0.99


def error_model(errors: Array) -> tuple[Array, Array]:
    """Return spread (cell,) and quantiles (lead, level) of errors / spread.

    The spread is one number for all cells unless spreads by cell, to the power 1/2 or 1, lower the
    quantile score by 1 % on errors that they were not estimated from: with few windows the spread
    of a cell is noise, and its intervals cover too little.

    Args:
        errors: (window, lead, cell) on data that was not learned from, in the order of time.

    Source:
        Split-conformal prediction, Lei et al. 2018, doi:10.1080/01621459.2017.1307116.
    """
    half = len(errors) // 2
    if half < 2:
        return _model(errors, 0.0)
    parts = [(errors[:half], errors[half:]), (errors[half:], errors[:half])]
    scores = {
        exponent: sum(_score(unseen, *_model(known, exponent)) for known, unseen in parts)
        for exponent in EXPONENTS
    }
    best = min(EXPONENTS, key=lambda exponent: scores[exponent])
    return _model(errors, best if scores[best] < PROVEN * scores[0.0] else 0.0)


def _model(errors: Array, exponent: float) -> tuple[Array, Array]:
    by_cell = np.sqrt((errors**2).mean(axis=(0, 1)))
    mean = float(np.sqrt((by_cell**2).mean())) + 1e-12
    # A cell that never varied (sea ice) says nothing of how it will: not below a tenth of the rest.
    spread = mean * (np.maximum(by_cell, 0.1 * mean) / mean) ** exponent
    scaled = errors / spread
    quantiles = [np.quantile(scaled[:, lead], QUANTILES) for lead in range(errors.shape[1])]
    return spread, np.stack(quantiles)


def _score(errors: Array, spread: Array, quantiles: Array) -> float:
    """Return the mean quantile (pinball) score over leads, cells and levels."""
    total = 0.0
    for column, level in enumerate(QUANTILES):
        away = errors - quantiles[:, column][:, None] * spread
        total += float(np.maximum(level * away, (level - 1) * away).mean())
    return total
