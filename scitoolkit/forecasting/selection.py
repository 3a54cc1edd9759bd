"""Blocked cross-validation of forecasters and shrinkage of learned corrections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.forecasters.base import Forecaster
from scitoolkit.forecasting.windows import (
    Array,
    TimeSeries,
    all_windows,
    blocked_folds,
    join_windows,
)

Make = Callable[[], Forecaster]


@dataclass(frozen=True)
class Validated:
    """Pooled out-of-block forecasts of one candidate.

    Attributes:
        truth: (window, lead, channel).
        forecast: (window, lead, channel).
    """

    truth: Array
    forecast: Array


def cross_validate(
    make: Make, segments: Sequence[TimeSeries], *, inputs: int, leads: int, folds: int = 4
) -> Validated:
    """Forecast every block of the record with a model fitted to the other blocks.

    Args:
        make: returns an unfitted model.
        segments: stretches of (time, channel) without gaps.
        inputs: number of input steps.
        leads: number of forecast steps.
        folds: largest number of blocks.

    Raises:
        DataError: the longest stretch is too short for two blocks of at least one window.
    """
    length = inputs + leads
    longest = max(len(s.values) for s in segments)
    folds = min(folds, longest // length)
    if folds < 2:
        raise DataError(
            f"{longest} training steps are too few for blocked validation",
            allowed=f"at least {2 * length} steps (inputs {inputs}, leads {leads})",
            fix="a longer file, or smaller `inputs` and `leads`",
        )
    truth, forecast = [], []
    for train, block in blocked_folds(segments, folds, leads, length):
        if not train:  # beside the middle block of a short record no stretch holds a window
            continue
        windows = all_windows(block, inputs, leads)
        truth.append(windows.targets())
        forecast.append(make().fit(train).predict(windows))
    return Validated(join_windows(truth), join_windows(forecast))


def lead_factors(residual: Array, correction: Array, weights: Array | None = None) -> Array:
    """Return factors (lead,) in [0, 1] that scale a learned correction.

    The factor is the least-squares one on validation data minus its standard error, so that a
    correction without significant skill gets the factor 0.

    Args:
        residual: (window, lead, channel) truth - base forecast, on validation data.
        correction: same shape, the network's correction.
        weights: (channel,) area or variance weights; None for equal weights.
    """
    w = np.ones(residual.shape[-1]) if weights is None else weights
    cross = (residual * correction * w).sum(axis=2)
    power = np.maximum((correction**2 * w).sum(axis=(0, 2)), 1e-300)
    factor = cross.sum(axis=0) / power
    # Overlapping windows share most of their steps: count one window in `leads` as independent.
    leads = residual.shape[1]
    scatter = cross - factor * (correction**2 * w).sum(axis=2)
    error = np.sqrt(leads * (scatter**2).sum(axis=0)) / power
    return np.clip(factor - error, 0.0, 1.0)
