"""Warnings about a field's data: unflagged fill values, constant cells, irregular time steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData
from scitoolkit.io.campaign.statistics import fill_value_in
from scitoolkit.io.time_axis import decimal_years

UNEVEN = 0.05
"""Share of uneven steps above which a warning is given."""
CONSTANT = 0.02
"""Share of constant cells above which a warning is given: they lower the RMSE by 1 % or more."""


def field_warnings(data: FieldData, config: ForecastingConfig) -> list[str]:
    """Return warnings about constant cells and irregular steps.

    Raises:
        DataError: unflagged fill values, or no stretch of even steps is long enough for a window.
    """
    _refuse_fill_values(data)
    return [*_constant_cells(data), *_irregular_steps(data, config)]


def _refuse_fill_values(data: FieldData) -> None:
    fill = fill_value_in(data.series.values)
    if fill is None:
        return
    cells = int((data.series.values == fill).any(axis=0).sum())
    raise DataError(
        f"{cells} of {len(data.weights)} cells contain {fill:g}, far outside all other values: an "
        "unflagged fill value",
        where=f"variable {data.name}",
        fix=f"set the attribute _FillValue = {fill:g} in the file, or replace the values by NaN",
    )


def _constant_cells(data: FieldData) -> list[str]:
    cells = int((np.ptp(data.series.values, axis=0) == 0).sum())
    if cells <= CONSTANT * len(data.weights):
        return []
    return [
        f"{data.name}: {cells} of {len(data.weights)} cells are constant; they are forecast "
        "without error and lower every score. Mask them as NaN if they are not data"
    ]


def _irregular_steps(data: FieldData, config: ForecastingConfig) -> list[str]:
    """Return a warning if many steps within simulations are uneven."""
    joins = {s.start for s in data.simulations}
    uneven = [b for b in data.breakpoints if b not in joins]
    count, window = len(data.series.values), config.inputs + config.leads
    longest = max(b - a for a, b in pairwise([0, *data.breakpoints, count]))
    if not uneven or (len(uneven) < UNEVEN * count and longest >= window):
        return []
    problem = (
        f"{len(uneven)} of {count - 1} time steps are uneven ({_steps(data)}), and no window "
        f"crosses an uneven step; the longest even stretch has {longest} steps"
    )
    fix = "interpolate to even times, or round the time stamps"
    if longest < window:
        raise DataError(
            problem,
            where=str(config.data.path),
            allowed=f"a stretch of {window} even steps (inputs {config.inputs} + leads "
            f"{config.leads})",
            fix=fix,
        )
    return [f"{data.name}: {problem}. {fix[0].upper()}{fix[1:]}"]


def _steps(data: FieldData) -> str:
    """Return the range and median of the time steps as text."""
    times = data.times.values
    years = decimal_years(times)
    dated = bool(np.isfinite(years).all())
    steps = np.diff(years * 365.2425 if dated else times.astype(np.float64))
    unit = " days" if dated else ""
    return f"{steps.min():.4g} to {steps.max():.4g}{unit}, median {np.median(steps):.4g}{unit}"
