"""Errors of forecasters on held-out blocks, standardised by the scatter of each output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


def standardised_error(validated: Validated) -> float:
    """Return the mean over outputs of SSres/SStot (1 - uniform R²), excluding constant outputs."""
    residual = ((validated.truth - validated.forecast) ** 2).sum(axis=0)
    total = ((validated.truth - validated.truth.mean(axis=0)) ** 2).sum(axis=0)
    return float((residual[total > 0] / total[total > 0]).mean())
