"""Error distribution for prediction intervals: quantiles per lead, scaled by cell if supported."""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array

QUANTILES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975)
"""Quantile levels of the stored error distribution; 0.05 and 0.95 bound the 90 % interval."""

EXPONENTS = (0.0, 0.5, 1.0)
PROVEN = 0.99
BLOCKS = 4
"""Blocks of windows, each scaled by the others; two would widen twice as much as the change of the
spread from all past windows to later ones does. On generated errors of 64 cells, 60 to 400 windows,
with and without changing spreads, four cover nearest to what they state of none, 2, 4 and 8."""


def error_model(errors: Array) -> tuple[Array, Array]:
    """Return the spread (cell,) and the quantiles (lead, level) of errors / spread.

    The spread is uniform unless the cells' RMS errors to the power 1/2 or 1 lower the quantile
    score by 1 % in two-fold cross-validation: with few windows the RMS error of a cell is noisy
    and its intervals have too little coverage. Quantiles are those of errors over the spread of
    the other blocks of windows, so that they hold how much a cell's spread changes. The levels of
    the quantiles are widened for the number of independent errors, which is far below that of all.

    Args:
        errors: (window, lead, cell) out-of-sample errors in chronological order.

    Source:
        Split-conformal prediction, Lei et al. 2018, doi:10.1080/01621459.2017.1307116.
    """
    exponent = _exponent(errors)
    spread = _spread(errors, exponent)
    scaled = _scaled_by_other_blocks(errors, exponent) if exponent else errors / spread
    levels = widened(independent_errors(scaled))
    return spread, np.stack([np.quantile(row, levels) for row in np.moveaxis(scaled, 1, 0)])


def _scaled_by_other_blocks(errors: Array, exponent: float) -> Array:
    """Return errors (window, lead, cell) over the spreads of the other blocks of windows."""
    blocks = np.array_split(np.arange(len(errors)), BLOCKS)
    scaled = [errors[b] / _spread(np.delete(errors, b, axis=0), exponent) for b in blocks]
    return np.concatenate(scaled)


def independent_errors(scaled: Array) -> float:
    """Return the number of independent errors with the scatter of the errors' 90 % coverage.

    The coverage of blocks of windows, each twice as long as a window has leads, varies by so much
    as the mean of p (1 - p) / number for independent hits. Errors of overlapping windows and of
    neighbouring cells are alike, so that there are fewer than errors.

    Args:
        scaled: (window, lead, cell), in chronological order.

    Returns:
        At least 1, at most the number of errors of a lead.

    Example:
        >>> errors = np.random.default_rng(0).standard_normal((4000, 1, 1))
        >>> alike = np.repeat(errors, 10, axis=2)
        >>> independent_errors(errors) > 2000, independent_errors(alike) < 8000
        (True, True)
    """
    windows, leads, cells = scaled.shape
    blocks = min(windows, max(2, windows // (2 * leads)))
    if blocks < 2:
        return 1.0
    low, high = np.quantile(scaled, (0.05, 0.95), axis=(0, 2))
    inside = ((scaled >= low[:, None]) & (scaled <= high[:, None])).mean(axis=2)
    means = np.stack([part.mean(axis=0) for part in np.array_split(inside, blocks)])
    variance = float(means.var(axis=0, ddof=1).mean()) / blocks
    return float(np.clip(0.09 / max(variance, 1e-300), 1.0, windows * cells))


def widened(number: float) -> Array:
    """Return QUANTILES moved away from the median, as split-conformal prediction has them.

    The quantile of n errors at the level q has the expected coverage q n / (n + 1).

    Args:
        number: of independent errors.

    Example:
        >>> widened(99.0)[[1, -2]].round(4), widened(1e9).round(4)[6]
        (array([0.0404, 0.9596]), np.float64(0.5))
    """
    levels = np.array(QUANTILES)
    upper = np.minimum(1.0, np.maximum(levels, 1 - levels) * (1 + 1 / number))
    return np.where(levels > 0.5, upper, np.where(levels < 0.5, 1 - upper, levels))


def _exponent(errors: Array) -> float:
    half = len(errors) // 2
    if half < 2:
        return 0.0
    parts = [(errors[:half], errors[half:]), (errors[half:], errors[:half])]
    scores = {
        exponent: sum(_score(unseen, *_model(fitted, exponent)) for fitted, unseen in parts)
        for exponent in EXPONENTS
    }
    best = min(EXPONENTS, key=lambda exponent: scores[exponent])
    return best if scores[best] < PROVEN * scores[0.0] else 0.0


def _spread(errors: Array, exponent: float) -> Array:
    by_cell = np.sqrt((errors**2).mean(axis=(0, 1)))
    mean = float(np.sqrt((by_cell**2).mean())) + 1e-12
    # A cell without errors so far (sea ice) may have some later: at least a tenth of the mean.
    return mean * (np.maximum(by_cell, 0.1 * mean) / mean) ** exponent


def _model(errors: Array, exponent: float) -> tuple[Array, Array]:
    spread = _spread(errors, exponent)
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
