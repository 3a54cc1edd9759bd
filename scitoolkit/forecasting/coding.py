"""Between the values of a file and what forecasters work on: transforms, scales, drivers, bounds.

Forecasters see one array (time, cell) of finite numbers without limits. Transforms keep a rain
rate positive, scales make a temperature and a humidity count alike, and the part of the field that
external series explain is taken off first and put back onto the forecast.
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
from scitoolkit.forecasting.windows import Array, Series, Windows

log: Logger = get_logger(__name__)

Transform = Literal["none", "sqrt", "log1p"]
_FOLDS = 4


@dataclass(frozen=True)
class VariableCode:
    """How one variable becomes what forecasters work on: `(transform(u) - center) / scale`.

    Attributes:
        name, units: of the variable.
        cells: its number of unmasked cells.
        transform: applied to u - minimum (u, where no minimum is given).
        minimum, maximum: what values cannot leave.
        center, scale: of the transformed values; 0 and 1 for a variable alone.
        seen: of a parameter of simulations, its least and largest value on the train part; None for
            a field.
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
        """Return coded values.

        Raises:
            DataError: a value beyond the bounds.

        Example:
            >>> code = VariableCode("rain", "mm/day", 2, "sqrt")
            >>> code.encode(np.array([0.0, 9.0])), code.decode(np.array([-0.1, 3.0]))
            (array([0., 3.]), array([0., 9.]))
        """
        low = self.low
        below = -np.inf if low is None else low
        above = np.inf if self.maximum is None else self.maximum
        found = float(values.min()), float(values.max())
        if found[0] < below or found[1] > above:
            raise DataError(
                f"values from {found[0]:g} to {found[1]:g}", where=f"variable {self.name}",
                allowed=f"{below:g} to {above:g}",
                fix="another data.minimum, data.maximum or data.transform",
            )  # fmt: skip
        if self.transform != "none":
            values = getattr(np, self.transform)(values - (low or 0.0))
        return (values - self.center) / self.scale

    def decode(self, coded: Array) -> Array:
        """Return values in the variable's unit, inside its bounds."""
        values = coded * self.scale + self.center
        if self.transform != "none":
            inverse = np.square if self.transform == "sqrt" else np.expm1
            values = inverse(np.maximum(values, 0.0)) + (self.low or 0.0)
        if self.low is None and self.maximum is None:
            return values
        return np.clip(values, self.low, self.maximum)

    @property
    def low(self) -> float | None:
        """Return the smallest value: roots and logarithms begin at 0 where nothing else is said."""
        return 0.0 if self.minimum is None and self.transform != "none" else self.minimum


@dataclass(frozen=True)
class Coding:
    """The codes of all variables, whose cells follow one another, and the effects of drivers.

    Attributes:
        variables: codes.
        effects: (driver, cell) change of the coded field per deviation of a driver.
        drivers: (name, mean, deviation) of each driver on the train part.
    """

    variables: tuple[VariableCode, ...]
    effects: Array
    drivers: tuple[tuple[str, float, float], ...] = ()

    @property
    def trivial(self) -> bool:
        """Whether coded values are those of the file."""
        plain = all(
            v.transform == "none" and v.minimum is None and v.maximum is None
            and v.center == 0 and v.scale == 1 for v in self.variables
        )  # fmt: skip
        return plain and not self.drivers

    @property
    def fields(self) -> tuple[VariableCode, ...]:
        """Return the codes without those of parameters, which come last."""
        return tuple(v for v in self.variables if v.seen is None)

    @property
    def slices(self) -> list[slice]:
        """Return the cells of each variable."""
        edges = np.cumsum([0, *(v.cells for v in self.variables)]).tolist()
        return [slice(a, b) for a, b in pairwise(edges)]

    def encode(self, values: Array) -> Array:
        """Return (..., cell) coded values, drivers not yet taken off."""
        return self._each("encode", values)

    def decode(self, coded: Array) -> Array:
        """Return (..., cell) values in the units of the variables."""
        return self._each("decode", coded)

    def explained(self, drivers: Array | None) -> Array | float:
        """Return (..., cell): what (..., driver) raw drivers explain of the coded field."""
        if not self.drivers or drivers is None:
            return 0.0
        _, mean, deviation = zip(*self.drivers, strict=True)
        return (drivers - np.array(mean)) / np.array(deviation) @ self.effects

    def header(self) -> dict[str, Any]:
        """Return all but the effects, as plain data."""
        return {"variables": [asdict(v) for v in self.variables], "drivers": list(self.drivers)}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], effects: Array) -> Coding:
        """Return the coding that `header` describes."""
        drivers = tuple((str(n), float(m), float(d)) for n, m, d in header["drivers"])
        return cls(tuple(VariableCode(**v) for v in header["variables"]), effects, drivers)

    def _each(self, method: str, values: Array) -> Array:
        if len(self.variables) == 1:
            return getattr(self.variables[0], method)(values)
        parts = [
            getattr(code, method)(values[..., cells])
            for code, cells in zip(self.variables, self.slices, strict=True)
        ]
        return np.concatenate(parts, axis=-1)


def scaled(codes: Sequence[VariableCode], values: Array) -> tuple[VariableCode, ...]:
    """Return codes by which several variables have mean 0 and deviation 1 on (time, cell)."""
    if len(codes) == 1:
        return tuple(codes)
    found, first = [], 0
    for code in codes:
        part = code.encode(values[:, first : first + code.cells])
        deviation = float((part - part.mean(axis=0)).std())
        if not deviation > 0:
            raise DataError("does not vary on the train part", where=f"variable {code.name}")
        seen = None if code.seen is None else (float(part.min()), float(part.max()))
        found.append(replace(code, center=float(part.mean()), scale=deviation, seen=seen))
        first += code.cells
    return tuple(found)


def with_drivers(coding: Coding, names: Sequence[str], train: Series, drivers: Array) -> Coding:
    """Return the coding with the effects of drivers, regressed beside mean and season.

    Drivers that do not lower the error of blocks of time that they were not fitted to are left
    out, with a warning: a series that happens to drift as the field does explains nothing later.

    Args:
        coding: of the variables.
        names: of the drivers.
        train: coded values (time, cell) of the train part.
        drivers: (time, driver) on the train part.

    Raises:
        DataError: a driver that does not vary.
    """
    mean, deviation = drivers.mean(axis=0), drivers.std(axis=0)
    for name, spread in zip(names, deviation, strict=True):
        if not spread > 0:
            raise DataError("does not vary on the train part", where=f"driver {name}")
    known, forcing = _season(train.years), (drivers - mean) / deviation
    if not _proven(known, forcing, train.values):
        log.warning("%s: no skill on blocks that were left out; not used", ", ".join(names))
        return coding
    both = np.linalg.lstsq(np.hstack([known, forcing]), train.values, rcond=None)[0]
    stated = tuple(zip(names, mean.tolist(), deviation.tolist(), strict=True))
    return replace(coding, effects=both[known.shape[1] :], drivers=stated)


def _season(years: Array) -> Array:
    """Return (time, column): 1, and two annual harmonics where there are dates."""
    columns = [np.ones(len(years))]
    if np.isfinite(years).all():
        columns += [f(2 * np.pi * k * years) for k in (1, 2) for f in (np.cos, np.sin)]
    return np.stack(columns, axis=1)


def _proven(known: Array, forcing: Array, values: Array) -> bool:
    """Return whether drivers lower the squared error of blocks that were left out."""
    edges = np.linspace(0, len(values), _FOLDS + 1).astype(int)
    errors = np.zeros(2)
    for begin, end in pairwise(edges):
        rest = np.r_[0:begin, end : len(values)]
        for which, design in enumerate((known, np.hstack([known, forcing]))):
            fitted = np.linalg.lstsq(design[rest], values[rest], rcond=None)[0]
            errors[which] += float(((values[begin:end] - design[begin:end] @ fitted) ** 2).sum())
    return bool(errors[1] < errors[0])


@dataclass(frozen=True)
class Physical:
    """Coded windows and forecasts in the units of the file.

    Attributes:
        coding: of the field.
        drivers: (time, driver) at the steps of the series and after, None without drivers.
    """

    coding: Coding
    drivers: Array | None = None

    def __call__(self, coded: Array, windows: Windows) -> Array:
        """Return (window, lead, cell) of coded values at the leads of windows."""
        if self.coding.trivial:
            return coded
        if self.drivers is not None:
            steps = windows.starts[:, None] + windows.inputs + np.arange(windows.leads)
            coded = coded + self.coding.explained(self.drivers[steps])
        return self.coding.decode(coded)
