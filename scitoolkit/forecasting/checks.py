"""Checks of a field's data: fill values, unstated units, constant cells, irregular time steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.coding import Coding
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData
from scitoolkit.forecasting.windows import Array
from scitoolkit.io.campaign.statistics import fill_value_in
from scitoolkit.io.familiar import refuse_unstated_unit
from scitoolkit.io.time_axis import decimal_years

UNEVEN = 0.05
"""Share of uneven steps above which a warning is given."""
EPOCHS = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
"""Units of times since 1970 that programs write as whole numbers, and the least of these: 1973."""
CONSTANT = 0.02
"""Share of constant cells above which a warning is given: they lower the RMSE by 1 % or more."""


def field_warnings(data: FieldData, config: ForecastingConfig) -> list[str]:
    """Return warnings about constant cells, irregular steps and dates written as numbers.

    Raises:
        DataError: no stretch of even steps is long enough for a window.
    """
    return [*_constant_cells(data), *_irregular_steps(data, config), *_dates_as_numbers(data)]


def refuse_fill_values(data: FieldData) -> None:
    """Refuse values of one variable that are a common fill value and no other value is near.

    Raises:
        DataError: there are such values.
    """
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


def coded_ranges(coding: Coding, values: Array) -> list[list[float]]:
    """Return the least and the largest coded value of each variable, for `refuse_unstated_units`.

    Args:
        coding: of the field.
        values: (time, cell) coded.
    """
    parts = [values[:, cells] for _, cells in zip(coding.fields, coding.slices, strict=False)]
    return [[float(part.min()), float(part.max())] for part in parts]


def refuse_unstated_units(
    coding: Coding, seen: Sequence[Sequence[float]], values: Array, facts: DataFacts, where: str
) -> None:
    """Refuse a variable without a unit whose values are unlike those of the training.

    Without a unit nobody can convert them: temperatures in K would be forecast as if in degC.

    Args:
        coding: of the training data.
        seen: `coded_ranges` of the training data; [] if they were not stored.
        values: (time, cell) coded, of the file.
        facts: what the file says.
        where: the file, for messages.

    Raises:
        DataError: there is such a variable.
    """
    stated = {variable.name: variable.units for variable in facts.variables}
    here = coded_ranges(coding, values)
    for code, (low, high), (least, most) in zip(coding.fields, seen, here, strict=False):
        if not code.units or stated.get(code.name):
            continue
        least, most, low, high = code.decode(np.array([least, most, low, high])).tolist()
        at = f"{where}: variable {code.name}"
        refuse_unstated_unit((least, most), (low, high), code.units, at)


def _constant_cells(data: FieldData) -> list[str]:
    cells = int((np.ptp(data.series.values, axis=0) == 0).sum())
    if cells <= CONSTANT * len(data.weights):
        return []
    return [
        f"{data.name}: {cells} of {len(data.weights)} cells are constant; they are forecast "
        "without error and lower every score. Mask them as NaN if they are not data"
    ]


def _dates_as_numbers(data: FieldData) -> list[str]:
    """Return a warning if times are whole numbers as large as those since 1970."""
    times = data.times.values
    if times.dtype.kind not in "iuf" or len(times) < 2 or not (times == np.floor(times)).all():
        return []
    units = [unit for unit, least in EPOCHS.items() if least <= times.min() < times.max() < 1e19]
    if not units or times.max() >= 43 * EPOCHS[units[-1]]:  # the year 2106
        return []
    date = np.array(times.min(), np.int64).astype(f"M8[{units[-1]}]").astype("M8[s]")
    return [
        f"{data.name}: times from {times.min():.0f} are numbers, which have no days and years. If "
        f"they count {units[-1]} since 1970 ({date}), write dates: their seasons are forecast"
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
