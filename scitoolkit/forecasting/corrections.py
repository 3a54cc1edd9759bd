"""Shrinkage of learned corrections."""

from __future__ import annotations

import numpy as np

from scitoolkit.forecasting.windows import Array


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
