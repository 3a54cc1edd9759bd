"""Forecasters: plug-in kind, base classes and setting; each family has its own module."""

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Setting,
    forecasters,
)
from scitoolkit.forecasting.forecasters.polynomial import PolynomialMapConfig

__all__ = ["Forecaster", "ForecasterConfig", "PolynomialMapConfig", "Setting", "forecasters"]
