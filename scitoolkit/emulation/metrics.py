"""Scores of fields: squared errors, VRMSE and spectra."""

from __future__ import annotations

import numpy as np

from scitoolkit.fields.spectra import line_power


def squared_error(truth: np.ndarray, forecast: np.ndarray, weights: np.ndarray | float) -> float:
    """Return the weighted mean squared error of one sample, float64.

    Args:
        truth: (*dims).
        forecast: (*dims).
        weights: (*dims) of mean 1, or 1.
    """
    error = forecast.astype(np.float64) - truth
    return float((error**2 * weights).mean())


def vrmse(truth: np.ndarray, forecast: np.ndarray, weights: np.ndarray | float = 1.0) -> float:
    """Return the root mean squared error over the standard deviation of the truth.

    The mean of the truth has a score of 1 (Ohana et al. 2024, arXiv:2412.00568).

    Example:
        >>> truth = np.array([0.0, 2.0])
        >>> vrmse(truth, np.array([1.0, 1.0]))
        1.0
    """
    mean = float((truth * weights).mean())
    variance = squared_error(truth, np.full(truth.shape, mean), weights)
    error = squared_error(truth, forecast, weights)
    return float(np.sqrt(error / variance)) if variance > 0 else float("nan")


def spectrum(field: np.ndarray, axis: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the power spectrum along a periodic dim, averaged over the other dims.

    Args:
        field: (*space).
        axis: the periodic dim.
        weights: (*space) cell weights of mean 1.

    Returns:
        (size // 2 + 1,) power at wavenumbers 0, 1, ...; its sum is the (weighted) mean square of
        the field (Parseval).

    Example:
        >>> x = np.arange(8) * 2 * np.pi / 8
        >>> spectrum(np.sin(2 * x), 0).round(3).tolist()
        [0.0, 0.0, 0.5, 0.0, 0.0]
    """
    power = line_power(field, axis)
    power = np.moveaxis(power, axis, 0).reshape(power.shape[axis], -1)
    over = 1.0
    if weights is not None:
        over = np.moveaxis(weights, axis, 0)[0].reshape(-1)
        over = over / over.mean()
    mean: np.ndarray = (power * over).mean(1)
    return mean
