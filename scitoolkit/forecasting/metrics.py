"""Metrics of forecasts: RMSE, two definitions of R², anomaly correlation, CRPS, coverage.

Truth and forecast have shape (window, lead, channel); a channel is a POD mode or a grid cell. The
two definitions of R² can differ by 0.2 for the same forecast.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array


def _per_output(truth: Array, forecast: Array) -> tuple[Array, Array]:
    residual = ((truth - forecast) ** 2).sum(axis=0)
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    return residual, total


def r2_per_output(truth: Array, forecast: Array) -> Array:
    """Return R² (lead, channel) relative to the mean over windows; NaN for constant outputs."""
    residual, total = _per_output(truth, forecast)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, 1 - residual / total, np.nan)


def r2_uniform(truth: Array, forecast: Array) -> float:
    """Return the mean over outputs (lead and channel) of 1 - SSres/SStot.

    All outputs have equal weight, independent of their variance. This is DeepHyper's `r2` and
    scikit-learn's `uniform_average`.

    Example:
        >>> truth = np.array([[[0.0, 0.0]], [[1.0, 10.0]]])
        >>> r2_uniform(truth, truth * [1.0, 0.5])
        0.75
    """
    return float(np.nanmean(r2_per_output(truth, forecast)))


def r2_variance_weighted(truth: Array, forecast: Array) -> float:
    """Return 1 - sum SSres / sum SStot over all outputs: outputs of large variance dominate."""
    residual, total = _per_output(truth, forecast)
    return float(1 - residual.sum() / total.sum()) if total.sum() > 0 else float("nan")


def rmse_per_lead(truth: Array, forecast: Array, weights: Array | None = None) -> Array:
    """Return (lead,) root-mean-square error over windows and channels, in the data's unit.

    Args:
        truth: (window, lead, channel).
        forecast: same shape.
        weights: (channel,) area weights; None for equal weights.
    """
    error = (truth - forecast) ** 2
    channel = np.ones(truth.shape[-1]) if weights is None else np.asarray(weights)
    return np.sqrt(error.mean(axis=0) @ (channel / channel.sum()))


def anomaly_correlation(
    truth: Array, forecast: Array, climatology: Array, weights: Array | None = None
) -> Array:
    """Return (lead,) anomaly correlation coefficient (ACC) over windows and channels.

    Args:
        truth: (window, lead, channel).
        forecast: same shape.
        climatology: same shape, at the verification times.
        weights: (channel,) area weights; None for equal weights.
    """
    a, b = truth - climatology, forecast - climatology
    w = np.ones(truth.shape[-1]) if weights is None else np.asarray(weights)
    cross = (a * b * w).sum(axis=(0, 2))
    norm = np.sqrt((a * a * w).sum(axis=(0, 2)) * (b * b * w).sum(axis=(0, 2)))
    return np.where(norm > 0, cross / np.where(norm > 0, norm, 1), np.nan)


def crps_ensemble(truth: Array, members: Array) -> Array:
    """Return the continuous ranked probability score (CRPS) of an ensemble, elementwise.

    Args:
        truth: (...).
        members: (member, ...).

    Returns:
        (...) in the data's unit; for one member it is the absolute error.

    Source:
        fair estimator, Zamo & Naveau 2018, doi:10.1007/s11004-017-9709-7, eq. 3 and 7.
    """
    members = np.asarray(members)
    count = len(members)
    skill = np.abs(members - truth).mean(axis=0)
    if count == 1:
        return skill
    ranks = (2 * np.arange(1, count + 1) - count - 1).reshape((-1,) + (1,) * (members.ndim - 1))
    spread = (ranks * np.sort(members, axis=0)).sum(axis=0) / (count * (count - 1))
    return skill - spread


def coverage(truth: Array, low: Array, high: Array, axis: tuple[int, ...] = (0,)) -> Array:
    """Return the share of truths inside [low, high] over `axis`; NaN bounds are ignored."""
    bounded = np.isfinite(low) & np.isfinite(high)
    inside = (truth >= low) & (truth <= high) & bounded
    total = bounded.sum(axis=axis)
    return np.where(total > 0, inside.sum(axis=axis) / np.maximum(total, 1), np.nan)


def block_resamples(count: int, block: int, *, samples: int = 500, seed: int = 0) -> np.ndarray:
    """Return window indices (sample, count) of a moving-block bootstrap.

    Args:
        count: number of windows.
        block: number of consecutive windows per block, at most half of all.
        samples: number of resamples.
        seed: of the resampling.

    Source:
        Künsch 1989, doi:10.1214/aos/1176347265.
    """
    block = max(1, min(block, count // 2))
    rng = np.random.default_rng(seed)
    first = rng.integers(0, count - block + 1, (samples, -(-count // block)))
    return (first[..., None] + np.arange(block)).reshape(samples, -1)[:, :count]


def rounding_of(values: Array) -> float:
    """Return by how much the rounding of stored values changes the difference of two RMSE at most.

    Rounding moves a forecast's RMSE by no more than its own: the spacing of the numbers over the
    square root of 12.

    Args:
        values: float64, (step, cell); numbers that float32 represents count as stored in it.

    Example:
        >>> x = np.linspace(1.0, 1.9, 9)[:, None]
        >>> f"{rounding_of(x):.1e}, {rounding_of(x.astype(np.float32).astype(float)):.1e}"
        '1.3e-16, 6.9e-08'
    """
    part = values[:: max(1, len(values) // 64)]
    single = part.astype(np.float32)
    stored = single if np.array_equal(single, part) else part
    return 2.0 * float(np.sqrt(np.mean(np.spacing(np.abs(stored)).astype(np.float64) ** 2) / 12))


def rmse_difference(
    ours: Array, theirs: Array, block: int, *, samples: int = 500, level: float = 0.9, seed: int = 0
) -> tuple[float, float]:
    """Return the moving-block bootstrap interval (low, high) of RMSE(ours) - RMSE(theirs).

    Args:
        ours: (window,) mean squared error of each window.
        theirs: (window,) of another forecast.
        block: number of consecutive windows per block; overlapping windows are dependent.
        samples: number of resamples.
        level: share of the resamples inside the interval.
        seed: of the resampling.
    """
    rows = block_resamples(len(ours), block, samples=samples, seed=seed)
    differences = np.sqrt(ours[rows].mean(axis=1)) - np.sqrt(theirs[rows].mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return float(low), float(high)
