"""Forecasters: plug-in kind, base classes and setting; each family has its own module."""

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Setting,
    forecasters,
)

__all__ = ["Forecaster", "ForecasterConfig", "Setting", "forecasters"]
