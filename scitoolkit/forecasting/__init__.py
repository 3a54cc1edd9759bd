"""Forecasts of gridded series: POD, baselines, LSTM surrogates, honest scores."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "POD": "pod",
    "AnomalyAutoregression": "baselines",
    "AnomalyPersistence": "baselines",
    "Climatology": "baselines",
    "DampedAnomaly": "baselines",
    "Persistence": "baselines",
    "RidgeAutoregression": "baselines",
    "ForecastSurrogate": "surrogate",
    "ForecastingConfig": "config",
    "ForecastingJob": "job",
    "PodLSTM": "lstm",
    "Series": "windows",
    "Windows": "windows",
    "all_windows": "windows",
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
