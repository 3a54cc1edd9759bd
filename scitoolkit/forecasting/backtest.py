"""Backtest: forecasts from origins in the test part, each by a fit to all steps before it.

The report scores one fit over all origins. Who forecasts each month fits again each month: the
backtest tells whether that helps. The family, its settings and the coding of values (scales,
drivers, further seasons) remain those selected before the test part, and networks their weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.forecasting.config import BacktestConfig, ForecastingConfig
from scitoolkit.forecasting.data import FieldData, FieldSplits
from scitoolkit.forecasting.forecasters.base import Forecaster
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.forecasting.windows import Array, Windows


def check_backtest(config: ForecastingConfig, data: FieldData, parts: FieldSplits) -> None:
    """Refuse a backtest that the data do not allow.

    Raises:
        ConfigError: several simulations, which have no steps before a test part, or more origins
            than the test part has.
    """
    if config.backtest is None:
        return
    if len(data.simulations) > 1:
        raise ConfigError(
            f"a backtest of {len(data.simulations)} simulations",
            where="backtest",
            allowed="one record, whose steps before an origin are its past",
            fix="leave out backtest",
        )
    most = len(parts.windows["test"])
    if config.backtest.origins > most:
        raise ConfigError(
            f"{config.backtest.origins} origins",
            where="backtest.origins",
            allowed=f"2 to {most}, the origins of the test part",
        )


def spread_origins(windows: Windows, backtest: BacktestConfig) -> Windows:
    """Return the windows of the backtest, evenly spaced from the first to the last one.

    Args:
        windows: of the test part, at least `origins`.
        backtest: number of origins.
    """
    places = np.linspace(0, len(windows) - 1, backtest.origins)
    return windows.take(np.round(places).astype(np.int64))


def refitted(
    forecasters: Mapping[str, Forecaster], data: FieldData, begin: int, windows: Windows
) -> dict[str, Array]:
    """Return forecasts (origin, lead, cell) of copies that are fitted again for each origin.

    Args:
        forecasters: by name; they remain as they are.
        data: coded record.
        begin: first step of the train part.
        windows: of the backtest.
    """
    rows: dict[str, list[Array]] = {name: [] for name in forecasters}
    for number, start in enumerate(windows.starts):
        past = data.segments(range(begin, int(start) + windows.inputs))
        window, memo = windows.take(slice(number, number + 1)), dict[Any, Any]()
        for name, forecaster in forecasters.items():
            model = copy.deepcopy(forecaster)
            if isinstance(model, LstmCorrection):
                model.refit_base(past)
            else:
                model.fit(past, memo)
            rows[name].append(model.predict(window))
    return {name: np.concatenate(parts) for name, parts in rows.items()}
