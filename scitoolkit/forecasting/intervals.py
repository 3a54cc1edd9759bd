"""Error distribution for prediction intervals: quantiles per lead, scaled by cell if supported."""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array

QUANTILES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975)
"""Quantile levels of the stored error distribution; 0.05 and 0.95 bound the 90 % interval."""

BLOCKS = 4
"""Blocks of windows, each scaled by the others; two would widen twice as much as the change of the
spread from all past windows to later ones does. On generated errors of 64 cells, 60 to 400 windows,
with and without changing spreads, four cover nearest to what they state of none, 2, 4 and 8."""


def error_model(errors: Array) -> tuple[Array, Array]:
    """Return the spread (cell,) and the quantiles (lead, level) of errors / spread.

    Quantiles are those of errors over the spread of the other blocks of windows, so that they hold
    how much a cell's spread changes. Their levels are widened for the number of independent errors,
    which is far below that of all.

    Args:
        errors: (window, lead, cell) out-of-sample errors in chronological order.

    Source:
        Split-conformal prediction, Lei et al. 2018, doi:10.1080/01621459.2017.1307116.
    """
    scaled = _scaled_by_other_blocks(errors)
    levels = widened(independent_errors(scaled))
    quantiles = np.stack([np.quantile(row, levels) for row in np.moveaxis(scaled, 1, 0)])
    return spread_of(errors), quantiles


def _scaled_by_other_blocks(errors: Array) -> Array:
    """Return errors (window, lead, cell) over the spreads of the other blocks of windows."""
    if len(errors) < 2:
        return errors / spread_of(errors)
    blocks = np.array_split(np.arange(len(errors)), min(BLOCKS, len(errors)))
    return np.concatenate([errors[b] / spread_of(np.delete(errors, b, axis=0)) for b in blocks])


def spread_of(errors: Array) -> Array:
    """Return the spread (cell,): RMS errors of the cells, shrunk to a common one in the logarithm.

    A cell keeps that part of its distance from the mean of all cells which blocks of windows
    confirm: the variance between cells over that variance and that of a cell's mean over blocks.
    With few windows the RMS error of a cell is noisy, and its intervals would cover too little.

    Args:
        errors: (window, lead, cell) in chronological order.

    Source:
        empirical Bayes, Efron and Morris 1975, doi:10.1080/01621459.1975.10479864, of log spreads.

    Example:
        >>> errors = np.random.default_rng(0).standard_normal((200, 1, 2)) * [1.0, 10.0]
        >>> bool(9 < np.divide(*spread_of(errors)[::-1]) < 11)
        True
    """
    by_cell = _floored(errors)
    rms = np.sqrt((by_cell**2).mean())
    if errors.shape[2] < 2 or len(errors) < BLOCKS:
        return np.full(errors.shape[2], rms)
    logs = np.log([_floored(block) for block in np.array_split(errors, BLOCKS)])
    logs -= logs.mean(axis=1, keepdims=True)
    noise = logs.var(axis=0, ddof=1).mean() / BLOCKS
    between = max(float(logs.mean(axis=0).var(ddof=1) - noise), 0.0)
    spread = by_cell ** (between / max(between + noise, 1e-300))
    return spread * rms / np.sqrt((spread**2).mean())


def _floored(errors: Array) -> Array:
    """Return the RMS errors (cell,), at least a tenth of their mean.

    A cell without errors so far (sea ice) may have some later.
    """
    by_cell = np.sqrt((errors**2).mean(axis=(0, 1)))
    mean = float(np.sqrt((by_cell**2).mean())) or 1e-12
    return np.maximum(by_cell, 0.1 * mean)


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
