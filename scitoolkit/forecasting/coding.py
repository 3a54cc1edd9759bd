"""Coding of fields for forecasters: transforms, scales, bounds and effects of drivers.

Forecasters receive one array (time, cell) of unbounded values. Transforms keep, for example, a rain
rate positive; scales give temperature and humidity equal weight; the linear effect of drivers is
removed from the field and added to the forecast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from logging import Logger
from typing import Any, Literal

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

log: Logger = get_logger(__name__)

Transform = Literal["none", "sqrt", "log1p"]
_FOLDS = 4


@dataclass(frozen=True)
class VariableCode:
    """Coding of one variable: `(transform(u) - center) / scale`.

    Attributes:
        name, units: of the variable.
        cells: number of unmasked cells.
        transform: applied to u - minimum, or to u without a minimum.
        minimum, maximum: bounds of the values; None for no bound.
        center, scale: of the transformed values; 0 and 1 for a single variable.
        seen: range of a simulation parameter on the train part; None for a field.
    """

    name: str
    units: str
    cells: int
    transform: Transform = "none"
    minimum: float | None = None
    maximum: float | None = None
    center: float = 0.0
    scale: float = 1.0
    seen: tuple[float, float] | None = None

    def encode(self, values: Array) -> Array:
        """Return the coded values, same shape.

        Raises:
            DataError: a value is outside the bounds.

        Example:
            >>> code = VariableCode("rain", "mm/day", 2, "sqrt")
            >>> code.encode(np.array([0.0, 9.0])), code.decode(np.array([-0.1, 3.0]))
            (array([0., 3.]), array([0., 9.]))
        """
        low = self.low
        below = -np.inf if low is None else low
        above = np.inf if self.maximum is None else self.maximum
        extremes = float(values.min()), float(values.max())
        if extremes[0] < below or extremes[1] > above:
            raise DataError(
                f"values from {extremes[0]:g} to {extremes[1]:g}",
                where=f"variable {self.name}",
                allowed=f"{below:g} to {above:g}",
                fix="another data.minimum, data.maximum or data.transform",
            )
        if self.transform != "none":
            values = getattr(np, self.transform)(values - (low or 0.0))
        return (values - self.center) / self.scale

    def decode(self, coded: Array) -> Array:
        """Return values in the variable's unit, clipped to its bounds; the inverse of `encode`."""
        values = coded * self.scale + self.center
        if self.transform != "none":
            inverse = np.square if self.transform == "sqrt" else np.expm1
            values = inverse(np.maximum(values, 0.0)) + (self.low or 0.0)
        if self.low is None and self.maximum is None:
            return values
        return np.clip(values, self.low, self.maximum)

    @property
    def low(self) -> float | None:
        """Lower bound of the values; 0 by default for `sqrt` and `log1p`."""
        return 0.0 if self.minimum is None and self.transform != "none" else self.minimum


@dataclass(frozen=True)
class Coding:
    """Coding of all variables, whose cells are concatenated, and effects of drivers.

    Attributes:
        variables: code of each variable, parameters last.
        effects: (driver, cell) change of the coded field per standard deviation of a driver.
        drivers: (name, mean, standard deviation) of each driver on the train part, the cycles of
            further seasons last.
        seasons: periods in steps, the main one first; () for the year of dates.
    """

    variables: tuple[VariableCode, ...]
    effects: Array
    drivers: tuple[tuple[str, float, float], ...] = ()
    seasons: tuple[float, ...] = ()

    @property
    def trivial(self) -> bool:
        """Whether coded values equal those of the file."""
        plain = all(
            v.transform == "none"
            and v.minimum is None
            and v.maximum is None
            and v.center == 0
            and v.scale == 1
            for v in self.variables
        )
        return plain and not self.drivers

    @property
    def fields(self) -> tuple[VariableCode, ...]:
        """Codes of the fields, without those of simulation parameters."""
        return tuple(v for v in self.variables if v.seen is None)

    @property
    def slices(self) -> list[slice]:
        """Cells of each variable."""
        edges = np.cumsum([0, *(v.cells for v in self.variables)]).tolist()
        return [slice(a, b) for a, b in pairwise(edges)]

    def encode(self, values: Array) -> Array:
        """Return coded values (..., cell), before the effects of drivers are removed."""
        return self._each("encode", values)

    def decode(self, coded: Array) -> Array:
        """Return values (..., cell) in the units of the variables."""
        return self._each("decode", coded)

    def explained(self, drivers: Array | None) -> Array | float:
        """Return the effect (..., cell) of raw drivers (..., driver) on the coded field."""
        if not self.drivers or drivers is None:
            return 0.0
        _, mean, deviation = zip(*self.drivers, strict=True)
        return (drivers - np.array(mean)) / np.array(deviation) @ self.effects

    def header(self) -> dict[str, Any]:
        """Return the coding without its effects as plain data."""
        seasons = {"seasons": list(self.seasons)} if self.seasons else {}
        return {
            "variables": [asdict(v) for v in self.variables],
            "drivers": list(self.drivers),
            **seasons,
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], effects: Array) -> Coding:
        """Return the coding from the data of `header` and the effects (driver, cell)."""
        drivers = tuple((str(n), float(m), float(d)) for n, m, d in header["drivers"])
        variables = tuple(VariableCode(**v) for v in header["variables"])
        return cls(variables, effects, drivers, tuple(map(float, header.get("seasons", ()))))

    def _each(self, method: str, values: Array) -> Array:
        if len(self.variables) == 1:
            return getattr(self.variables[0], method)(values)
        parts = [
            getattr(code, method)(values[..., cells])
            for code, cells in zip(self.variables, self.slices, strict=True)
        ]
        return np.concatenate(parts, axis=-1)


def scaled(codes: Sequence[VariableCode], values: Array) -> tuple[VariableCode, ...]:
    """Return codes that standardise several variables; a single variable is not scaled.

    Args:
        codes: unscaled codes.
        values: (time, cell) on the train part.

    Raises:
        DataError: a variable is constant.
    """
    if len(codes) == 1:
        return tuple(codes)
    coded, first = [], 0
    for code in codes:
        part = code.encode(values[:, first : first + code.cells])
        # A sum of float32 along time loses the digits of a large mean.
        deviation = float((part - part.mean(axis=0, dtype=np.float64)).std())
        if not deviation > 0:
            raise DataError("does not vary on the train part", where=f"variable {code.name}")
        seen = None if code.seen is None else (float(part.min()), float(part.max()))
        coded.append(
            replace(code, center=float(part.mean(dtype=np.float64)), scale=deviation, seen=seen)
        )
        first += code.cells
    return tuple(coded)


def with_cycles(coding: Coding, train: TimeSeries, drivers: Array | None, cycles: Array) -> Coding:
    """Return the coding with the effects of further seasons, estimated jointly with the drivers'.

    Args:
        coding: of the variables and drivers.
        train: coded values (time, cell) of the train part.
        drivers: (time, driver) on the train part; None without drivers.
        cycles: (time, column) on the train part.
    """
    forcing: Any = cycles
    if drivers is not None and coding.drivers:
        mean, deviation = np.array([row[1:] for row in coding.drivers]).T
        forcing = np.hstack([(drivers - mean) / deviation, cycles])
    season = _season(train.years)
    both = np.linalg.lstsq(np.hstack([season, forcing]), train.values, rcond=None)[0]
    columns = tuple((f"cycle {k}", 0.0, 1.0) for k in range(cycles.shape[1]))
    drivers_and_cycles = (*coding.drivers, *columns)
    return replace(coding, effects=both[season.shape[1] :], drivers=drivers_and_cycles)


def with_drivers(coding: Coding, names: Sequence[str], train: TimeSeries, drivers: Array) -> Coding:
    """Return the coding with the effects of drivers, estimated jointly with mean and season.

    If the drivers do not lower the error on held-out blocks of time they are not used, and a
    warning is logged: a driver may drift like the field without predicting it.

    Args:
        coding: of the variables.
        names: of the drivers.
        train: coded values (time, cell) of the train part.
        drivers: (time, driver) on the train part.

    Raises:
        DataError: a driver is constant.
    """
    mean = drivers.mean(axis=0, dtype=np.float64)
    deviation = drivers.std(axis=0, dtype=np.float64)
    for name, spread in zip(names, deviation, strict=True):
        if not spread > 0:
            raise DataError("does not vary on the train part", where=f"driver {name}")
    season, forcing = _season(train.years), (drivers - mean) / deviation
    if not _proven(season, forcing, train.values):
        log.warning("%s: no skill on held-out blocks; not used", ", ".join(names))
        return coding
    both = np.linalg.lstsq(np.hstack([season, forcing]), train.values, rcond=None)[0]
    stated = tuple(zip(names, mean.tolist(), deviation.tolist(), strict=True))
    return replace(coding, effects=both[season.shape[1] :], drivers=stated)


def _season(years: Array) -> Array:
    """Return regressors (time, column): 1 and, with dates, two annual harmonics."""
    columns = [np.ones(len(years))]
    if np.isfinite(years).all():
        columns += [f(2 * np.pi * k * years) for k in (1, 2) for f in (np.cos, np.sin)]
    return np.stack(columns, axis=1)


def _proven(season: Array, forcing: Array, values: Array) -> bool:
    """Return whether drivers lower the squared error on held-out blocks."""
    edges = np.linspace(0, len(values), _FOLDS + 1).astype(int)
    errors = np.zeros(2)
    for begin, end in pairwise(edges):
        rest = np.r_[0:begin, end : len(values)]
        for which, design in enumerate((season, np.hstack([season, forcing]))):
            fitted = np.linalg.lstsq(design[rest], values[rest], rcond=None)[0]
            errors[which] += float(((values[begin:end] - design[begin:end] @ fitted) ** 2).sum())
    return bool(errors[1] < errors[0])


@dataclass(frozen=True)
class Physical:
    """Decoder of forecasts into the units of the file.

    Attributes:
        coding: of the field.
        drivers: (time, driver) at the steps of the series and the leads; None without drivers.
    """

    coding: Coding
    drivers: Array | None = None

    def __call__(self, coded: Array, windows: Windows) -> Array:
        """Return decoded values (window, lead, cell) at the leads of windows."""
        if self.coding.trivial:
            return coded
        if self.drivers is not None:
            steps = windows.starts[:, None] + windows.inputs + np.arange(windows.leads)
            coded = coded + self.coding.explained(self.drivers[steps])
        return self.coding.decode(coded)
