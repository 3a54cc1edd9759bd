"""Forecasters: one file a family, each with its configuration and its model.

The kind, its base classes and the setting are here; models are imported from their files.
"""

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Setting,
    forecasters,
)

__all__ = ["Forecaster", "ForecasterConfig", "Setting", "forecasters"]
