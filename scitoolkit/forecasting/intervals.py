"""Error distribution for prediction intervals: quantiles per lead, scaled by cell if supported."""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array

QUANTILES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975)
"""Quantile levels of the stored error distribution; 0.05 and 0.95 bound the 90 % interval."""

EXPONENTS = (0.0, 0.5, 1.0)
PROVEN = 0.99


def error_model(errors: Array) -> tuple[Array, Array]:
    """Return the spread (cell,) and the quantiles (lead, level) of errors / spread.

    The spread is uniform unless the cells' RMS errors to the power 1/2 or 1 lower the quantile
    score by 1 % in two-fold cross-validation: with few windows the RMS error of a cell is noisy
    and its intervals have too little coverage.

    Args:
        errors: (window, lead, cell) out-of-sample errors in chronological order.

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
    # A cell without errors so far (sea ice) may have some later: at least a tenth of the mean.
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
