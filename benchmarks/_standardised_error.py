"""Error of forecasts that counts outputs of all sizes alike."""

from __future__ import annotations

from scitoolkit.forecasting.selection import Validated


def standardised_error(validated: Validated) -> float:
    """Return the mean over outputs of SSres/SStot (1 - uniform R²), excluding constant outputs."""
    residual = ((validated.truth - validated.forecast) ** 2).sum(axis=0)
    total = ((validated.truth - validated.truth.mean(axis=0)) ** 2).sum(axis=0)
    return float((residual[total > 0] / total[total > 0]).mean())
