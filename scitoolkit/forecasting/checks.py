"""What a user should know of a field before trusting a forecast of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData
from scitoolkit.io.campaign.statistics import fill_value_in
from scitoolkit.io.time_axis import decimal_years

UNEVEN = 0.05
"""Share of uneven steps above which they are worth a warning."""
CONSTANT = 0.02
"""Share of cells that never change above which an RMSE is lower by a hundredth or more."""
_SAMPLES = 64


def field_warnings(data: FieldData, config: ForecastingConfig) -> list[str]:
    """Return warnings: unflagged fill values, constant cells, irregular steps.

    Raises:
        DataError: steps so irregular that no stretch holds a window.
    """
    return [*_fill_values(data), *_constant_cells(data), *_irregular_steps(data, config)]


def _fill_values(data: FieldData) -> list[str]:
    every = max(1, len(data.series.values) // _SAMPLES)
    fill = fill_value_in(data.series.values[::every])
    if fill is None:
        return []
    cells = int((data.series.values == fill).any(axis=0).sum())
    return [
        f"{data.name}: {cells} of {len(data.weights)} cells hold {fill:g}, far outside all other "
        "values: a fill value that the file does not flag? Set its attribute _FillValue"
    ]


def _constant_cells(data: FieldData) -> list[str]:
    cells = int((np.ptp(data.series.values, axis=0) == 0).sum())
    if cells <= CONSTANT * len(data.weights):
        return []
    return [
        f"{data.name}: {cells} of {len(data.weights)} cells never change; they are forecast "
        "without error and lower every score. Mask them (NaN) where they are no data"
    ]


def _irregular_steps(data: FieldData, config: ForecastingConfig) -> list[str]:
    """Return a warning of many uneven steps; simulations that follow one another are none."""
    joins = {s.start for s in data.simulations}
    uneven = [b for b in data.breakpoints if b not in joins]
    count, window = len(data.series.values), config.inputs + config.leads
    longest = max(b - a for a, b in pairwise([0, *data.breakpoints, count]))
    if not uneven or (len(uneven) < UNEVEN * count and longest >= window):
        return []
    said = (
        f"{len(uneven)} of {count - 1} time steps are uneven ({_steps(data)}), and no window "
        f"crosses an uneven step; the longest even stretch has {longest} steps"
    )
    fix = "interpolate to even times, or round the time stamps"
    if longest < window:
        raise DataError(
            said, where=str(config.data.path),
            allowed=f"a stretch of {window} even steps (inputs {config.inputs} + leads "
            f"{config.leads})", fix=fix,
        )  # fmt: skip
    return [f"{data.name}: {said}. {fix[0].upper()}{fix[1:]}"]


def _steps(data: FieldData) -> str:
    """Return the range of the steps in words."""
    times = data.times.values
    years = decimal_years(times)
    dated = bool(np.isfinite(years).all())
    steps = np.diff(years * 365.2425 if dated else times.astype(np.float64))
    unit = " days" if dated else ""
    return f"{steps.min():.4g} to {steps.max():.4g}{unit}, median {np.median(steps):.4g}{unit}"
