"""Backtest: forecasts from origins in the test part, each by a fit to all steps before it.

The report scores one fit over all origins. Who forecasts each month fits again each month: the
backtest tells whether that helps. The family, its settings and the coding of values (scales,
drivers, further seasons) remain those selected before the test part, and networks their weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.forecasting.config import BacktestConfig, ForecastingConfig
from scitoolkit.forecasting.data import FieldData, FieldSplits
from scitoolkit.forecasting.forecasters.base import Forecaster
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

_SAME = 1e-6
"""Years within which two dates are the same."""


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
        windows: of the test part, or of another file, which may have fewer than `origins`.
        backtest: number of origins.
    """
    places = np.linspace(0, len(windows) - 1, min(backtest.origins, len(windows)))
    return windows.take(np.round(places).astype(np.int64))


Past = Callable[[int], list[TimeSeries]]
"""Returns the stretches that are known before a step of the scored file."""


def past_of(data: FieldData, begin: int) -> Past:
    """Return the past in a record that a forecaster was trained on.

    Args:
        data: coded record.
        begin: first step of the train part.
    """
    return lambda stop: data.segments(range(begin, stop))


def past_with(other: FieldData, trained: FieldData, steps: range, last_year: float | None) -> Past:
    """Return the past of another file: the steps of the training, then those of the file.

    A dated file that begins with the training data or before holds both. Of another one only the
    steps after the training are added, and no window crosses from one file to the other.

    Args:
        other: coded record of the scored file.
        trained: coded record of the training.
        steps: of the train and validation parts.
        last_year: decimal year of the last of them; None for a record without dates.
    """
    years, first = other.series.years, float(trained.series.years[steps.start])
    begin = 0
    if last_year is not None and np.isfinite(years).all():
        if years[0] <= first + _SAME:
            return past_of(other, int(np.searchsorted(years, first - _SAME)))
        begin = int(np.searchsorted(years, last_year + _SAME))
    fitted = trained.segments(steps)
    return lambda stop: [*fitted, *(other.segments(range(begin, stop)) if stop > begin else [])]


def refitted(
    forecasters: Mapping[str, Forecaster], past: Past, windows: Windows
) -> dict[str, Array]:
    """Return forecasts (origin, lead, cell) of copies that are fitted again for each origin.

    Args:
        forecasters: by name; they remain as they are.
        past: stretches to fit, by the first step that is not known.
        windows: of the backtest.
    """
    rows: dict[str, list[Array]] = {name: [] for name in forecasters}
    for number, start in enumerate(windows.starts):
        stretches = past(int(start) + windows.inputs)
        window, memo = windows.take(slice(number, number + 1)), dict[Any, Any]()
        for name, forecaster in forecasters.items():
            model = copy.deepcopy(forecaster)
            if isinstance(model, LstmCorrection):
                model.refit_base(stretches)
            else:
                model.fit(stretches, memo)
            rows[name].append(model.predict(window))
    return {name: np.concatenate(parts) for name, parts in rows.items()}
