"""Forecasting of gridded time series: POD, baselines, LSTM surrogates, validation and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.forecasting.config import ForecastingConfig as ForecastingConfig
    from scitoolkit.forecasting.estimators import PODTransformer as PODTransformer
    from scitoolkit.forecasting.estimators import PolynomialForecaster as PolynomialForecaster
    from scitoolkit.forecasting.estimators import lagged_table as lagged_table
    from scitoolkit.forecasting.forecasters.autoregression import (
        AnomalyAutoregression as AnomalyAutoregression,
    )
    from scitoolkit.forecasting.forecasters.climatology import (
        AnomalyPersistence as AnomalyPersistence,
    )
    from scitoolkit.forecasting.forecasters.climatology import Climatology as Climatology
    from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomaly as DampedAnomaly
    from scitoolkit.forecasting.forecasters.persistence import Persistence as Persistence
    from scitoolkit.forecasting.forecasters.ridge import RidgeAutoregression as RidgeAutoregression
    from scitoolkit.forecasting.job import ForecastingJob as ForecastingJob
    from scitoolkit.forecasting.lstm import PodLSTM as PodLSTM
    from scitoolkit.forecasting.pod import POD as POD
    from scitoolkit.forecasting.surrogate import ForecastSurrogate as ForecastSurrogate
    from scitoolkit.forecasting.windows import TimeSeries as TimeSeries
    from scitoolkit.forecasting.windows import Windows as Windows
    from scitoolkit.forecasting.windows import all_windows as all_windows

_HOMES = {
    "AnomalyAutoregression": "forecasters.autoregression",
    "AnomalyPersistence": "forecasters.climatology",
    "Climatology": "forecasters.climatology",
    "DampedAnomaly": "forecasters.damped_anomaly",
    "ForecastSurrogate": "surrogate",
    "ForecastingConfig": "config",
    "ForecastingJob": "job",
    "POD": "pod",
    "PODTransformer": "estimators",
    "Persistence": "forecasters.persistence",
    "PodLSTM": "lstm",
    "PolynomialForecaster": "estimators",
    "RidgeAutoregression": "forecasters.ridge",
    "TimeSeries": "windows",
    "Windows": "windows",
    "all_windows": "windows",
    "lagged_table": "estimators",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
