"""Forecasts of gridded series: POD, baselines, LSTM surrogates, honest scores."""

from __future__ import annotations

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name, when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
