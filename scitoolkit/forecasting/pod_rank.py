"""Selection of the number of POD modes by validated forecast error instead of variance.

Modes beyond some number lower the truncation error but are unpredictable. The training data are
therefore split in time: modes, climatology and a damped-anomaly forecast are fitted to the first
part, and the rank with the least error of the forecast field, including truncation, on the second
part is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from logging import Logger
from typing import Any, Protocol

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.field_matrix import find_time_dim

logger: Logger = get_logger(__name__)


class FittedModes(Protocol):
    """Interface of a fitted POD for `choose_rank`."""

    weights_: xr.DataArray
    mask_: xr.DataArray

    def transform(self, da: xr.DataArray) -> xr.DataArray:
        """Return the coefficients (time, mode)."""

    def anomaly_variance(self, da: xr.DataArray) -> float:
        """Return the time mean of the weighted sum of squared anomalies."""


def choose_rank(
    da: xr.DataArray,
    fit: Callable[[int, xr.DataArray], FittedModes],
    *,
    candidates: Sequence[int],
    horizon: int,
    harmonics: int = 0,
    time_dim: Hashable | None = None,
    held_out: float = 0.25,
) -> list[dict[str, float]]:
    """Return truncation and forecast error of each candidate rank at the end of the training data.

    The forecast of a mode at lead j is its last anomaly times the lag-j regression coefficient of
    the first part, clipped to 0..1. Squared errors add because the modes are orthonormal: field
    error² = truncation error² + coefficient error².

    Args:
        da: training field.
        fit: returns the POD of a given rank, fitted to a field.
        candidates: ranks to compare.
        horizon: largest lead, in time steps.
        harmonics: of the seasonal cycle that `fit` removes; each one uses two degrees of freedom.
        time_dim: time dimension, if it is not recognised by its name or attributes.
        held_out: share of the times, at the end, on which the error is measured.

    Returns:
        One row per candidate: `rank`, `truncation_rmse` and `forecast_rmse` (area-weighted RMSE in
        the field's unit, the latter over leads 1..horizon and all start times).

    Raises:
        DataError: the series is too short for a validation part.
    """
    time_dim = find_time_dim(da, time_dim)
    count = da.sizes[time_dim]
    cut = count - max(round(count * held_out), horizon + 1)
    if cut < max(2 * horizon, 4):
        raise DataError(
            f"{count} time steps are too few to validate forecasts {horizon} steps ahead",
            where=str(da.name or "field"),
            fix="rank=5, a longer series, or a smaller horizon=",
        )
    first, second = (da.isel({time_dim: s}) for s in (slice(0, cut), slice(cut, None)))
    largest = min(cut - 1 - 2 * harmonics, int(first.size // cut))
    ranks = sorted({min(int(r), largest) for r in candidates})
    inner = fit(ranks[-1], first)
    seen, unseen = inner.transform(first).values, inner.transform(second).values
    energy = inner.anomaly_variance(second)
    area = float(inner.weights_.where(inner.mask_).sum())
    rows = []
    errors = _damped_errors(seen, unseen, horizon)
    for rank in ranks:
        lost = max(energy - float((unseen[:, :rank] ** 2).sum(axis=1).mean()), 0.0) / area
        missed = float(errors[:rank].sum()) / area
        rows.append(
            {"rank": rank, "truncation_rmse": lost**0.5, "forecast_rmse": (lost + missed) ** 0.5}
        )
    for row in rows:
        logger.info(
            "rank %(rank)d: truncation %(truncation_rmse).4g, forecast %(forecast_rmse).4g", row
        )
    return rows


def rank_of(values: np.ndarray, wanted: int | float, total: float, largest: int) -> int:
    """Return the number of modes for a rank or a share of variance.

    Args:
        values: singular values, descending.
        wanted: number of modes (int) or share of variance (float).
        total: sum of squares of all singular values.
        largest: largest possible number of modes.
    """
    if not isinstance(wanted, float):
        return wanted
    share = np.cumsum(values[:largest] ** 2) / total
    # The tolerance avoids an additional mode due to rounding.
    return min(int(np.searchsorted(share, wanted * (1 - 1e-12))) + 1, len(share))


def _damped_errors(seen: np.ndarray, unseen: np.ndarray, horizon: int) -> Any:
    """Return (mode,) mean squared error of damped anomalies over leads 1..horizon."""
    total = np.zeros(seen.shape[1])
    for lead in range(1, horizon + 1):
        power = np.maximum((seen[:-lead] ** 2).sum(axis=0), np.finfo(float).tiny)
        damping = np.clip((seen[lead:] * seen[:-lead]).sum(axis=0) / power, 0.0, 1.0)
        total += ((unseen[lead:] - damping * unseen[:-lead]) ** 2).mean(axis=0)
    return total / horizon
