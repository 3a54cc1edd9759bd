"""Coded field of a job: variables, transforms, drivers and parameters as one matrix."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from logging import Logger
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from scitoolkit.core.data_differences import compare, refuse
from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.units import stated_unit
from scitoolkit.forecasting.checks import field_warnings, refuse_fill_values
from scitoolkit.forecasting.coding import (
    Coding,
    Physical,
    VariableCode,
    scaled,
    with_cycles,
    with_drivers,
)
from scitoolkit.forecasting.config import DriverConfig, FieldConfig, ForecastingConfig
from scitoolkit.forecasting.data import FieldData, FieldSplits, facts_of, read_field, split_field
from scitoolkit.forecasting.field_store import allocate
from scitoolkit.forecasting.seasons import clock, cycles, find_seasons
from scitoolkit.forecasting.simulations import fields_of, simulation_parameters
from scitoolkit.forecasting.windows import Array, TimeSeries
from scitoolkit.io.calendar_steps import calendar_steps
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.coordinates import time_dim
from scitoolkit.io.dates import of_one_kind
from scitoolkit.io.facts import is_dates, seconds_of
from scitoolkit.io.familiar import UsualValues, require_familiar
from scitoolkit.io.fields import open_fields
from scitoolkit.io.time_axis import decimal_years

log: Logger = get_logger(__name__)

VARIABLE = "variable"
_SEASON_CELLS = 100
_WEEKLY = 7 / 3 / 365
"""Longest step in years that tells the days of a week apart."""
V = TypeVar("V", xr.DataArray, np.ndarray)
_NEAR = 0.51
"""Largest distance of a driver's time from the field's, in steps of the driver."""


@dataclass(frozen=True)
class CodedSnapshots:
    """Field in coded values, with the function that decodes them.

    Attributes:
        data: field in coded values.
        physical: converts coded forecasts to the units of the file.
        warnings: about the values in the file.
    """

    data: FieldData
    physical: Physical
    warnings: tuple[str, ...] = ()


def open_field(
    config: ForecastingConfig,
    coding: Coding | None = None,
    grid: xr.DataArray | None = None,
    trained: DataFacts | None = None,
) -> CodedSnapshots:
    """Read and encode the field of a job.

    Args:
        config: of the job. Scales and effects of drivers are estimated on its train part.
        coding: of a fitted surrogate; None estimates it.
        grid: mask of a fitted surrogate; None uses the cells with values at all times.
        trained: facts of the training data of a fitted surrogate.

    Raises:
        DataError: unusable file, variable or driver.
        ConfigError: impossible split.
    """
    data, units = read_variables(config.data, grid, trained)
    if coding is not None:
        warn_outside(coding, data.series.values)
        extra = regressors(config.data, coding, data.times, trained=trained)
        return coded(data, coding, extra)
    warnings = tuple(field_warnings(data, config))
    for line in warnings:
        log.warning(line)
    return replace(_fit_coding(data, units, config), warnings=warnings)


def _fit_coding(data: FieldData, units: Sequence[str], config: ForecastingConfig) -> CodedSnapshots:
    """Return a coded field, with scales and effects of drivers estimated on its train part."""
    drivers = read_drivers(config.data, data.times)
    seasons = _seasons(data, config)
    codes = codes_of(config.data, data, units)
    if config.data.parameters and len(data.simulations) < 2:
        raise DataError(
            "a parameter is constant in a single simulation",
            where="data.parameters",
            allowed="three or more simulations",
            fix="data.parameters=[]",
        )
    if len(codes) == 1 and drivers is None and len(seasons) < 2:
        plain = Coding(codes, np.zeros((0, len(data.weights))), seasons=seasons)
        return coded(data, plain, None)
    train = split_field(data, config).steps["train"]
    part = slice(train.start, train.stop)
    none = np.zeros((0, len(data.weights)))
    coding = Coding(scaled(codes, data.series.values[part]), none, seasons=seasons)
    years = clock(data.times.values, seasons) if seasons else data.series.years
    series = TimeSeries(coding.encode(data.series.values[part]), years[part])
    if drivers is not None:
        names = [d.variable for d in config.data.drivers]
        coding = with_drivers(coding, names, series, drivers[part])
    if len(seasons) > 1:
        waves = cycles(data.times.values, seasons)
        used = drivers if drivers is not None and coding.drivers else None
        coding = with_cycles(coding, series, None if used is None else used[part], waves[part])
        drivers = waves if used is None else np.hstack([used, waves])
    return coded(data, coding, drivers)


def _seasons(data: FieldData, config: ForecastingConfig) -> tuple[float, ...]:
    """Return the seasons of a field in steps, found or as configured; see `find_seasons`.

    Several simulations have no season: their times begin again.
    """
    if len(data.simulations) > 1 or data.times.size < 2:
        return ()
    dated = bool(np.isfinite(data.series.years).all())
    if config.season == "calendar":
        step = float(np.median(np.diff(data.series.years))) if dated else np.inf
        if step > _WEEKLY:  # too coarse for the week and the day
            return ()
    train = split_field(data, config).steps["train"]
    part = slice(train.start, train.stop)
    values = data.series.values[part]
    return find_seasons(
        config.season, data.times.values[part], data.series.years[part], _few(values)
    )


def _few(values: Array) -> Array:
    """Return at most `_SEASON_CELLS` evenly chosen cells (time, cell), which tell the season."""
    return values[:, :: max(1, -(-values.shape[1] // _SEASON_CELLS))]


def regressors(
    config: FieldConfig,
    coding: Coding,
    times: xr.DataArray,
    ahead: np.ndarray | None = None,
    trained: DataFacts | None = None,
) -> Array | None:
    """Return drivers and cycles of further seasons (time, column); None without either.

    Args:
        config: of the field.
        coding: of a fitted surrogate.
        times: of the field.
        ahead: forecast times after the end of the field, which are appended.
        trained: facts of the training data of a fitted surrogate.
    """
    drivers = read_drivers(config, times, ahead, trained)
    if drivers is not None and trained is not None:
        _require_familiar_drivers(config, coding, drivers, trained)
    if len(coding.seasons) < 2:
        return drivers
    waves = cycles(times.values, coding.seasons, 0 if ahead is None else len(ahead))
    used = drivers is not None and len(coding.drivers) > waves.shape[1]
    return np.hstack([drivers, waves]) if drivers is not None and used else waves


def _require_familiar_drivers(
    config: FieldConfig, coding: Coding, drivers: Array, trained: DataFacts
) -> None:
    """Refuse drivers without a unit that are unlike those of the training; tell others."""
    facts = [_driver_facts(driver, config) for driver in config.drivers]
    usual = {
        before.name: UsualValues(mean, deviation, before.units)
        for name, mean, deviation in coding.drivers
        if (before := trained.var(f"driver {name}")) is not None
    }
    values = {fact.name: column for fact, column in zip(facts, drivers.T, strict=True)}
    stated = {fact.name: fact.units for fact in facts}
    require_familiar(values, usual, stated, str(config.path))


def coded(data: FieldData, coding: Coding, drivers: Array | None) -> CodedSnapshots:
    """Return a field in coded values.

    Args:
        data: field in the units of the file.
        coding: of the variables and drivers.
        drivers: (time, driver), which may extend beyond the field; None without drivers.

    Raises:
        DataError: the coding needs drivers and none are given.
    """
    physical = Physical(coding, drivers if coding.drivers else None)
    if coding.seasons:
        periods = clock(data.times.values, coding.seasons)
        data = replace(data, series=TimeSeries(data.series.values, periods))
    if coding.trivial:
        return CodedSnapshots(data, physical)
    values = coding.encode(data.series.values)
    if coding.drivers:
        if drivers is None:
            raise DataError("the surrogate requires drivers", fix="data.drivers")
        values = values - coding.explained(drivers[: len(values)])
    return CodedSnapshots(replace(data, series=TimeSeries(values, data.series.years)), physical)


def open_split(config: ForecastingConfig) -> tuple[CodedSnapshots, FieldSplits]:
    """Return the coded field of a job and its split."""
    field = open_field(config)
    return field, split_field(field.data, config)


def read_variables(
    config: FieldConfig, grid: xr.DataArray | None = None, trained: DataFacts | None = None
) -> tuple[FieldData, tuple[str, ...]]:
    """Return the field, with the cells of several variables concatenated, and the units.

    Args:
        config: field and files.
        grid: mask of a fitted surrogate; None uses the cells with values at all times.

    Raises:
        DataError: variables on different grids or times, or unflagged fill values.
    """
    if not config.variables and not config.parameters:
        data = read_field(config, grid, trained)
        refuse_fill_values(data)
        return data, (data.units,)
    names = config.variables or [config.variable]
    parts = [
        read_field(
            config.model_copy(update={"variable": name, "variables": [], "parameters": []}),
            None if grid is None else grid.isel({VARIABLE: i}, drop=True),
            trained,
        )
        for i, name in enumerate(names)
    ]
    for part in parts:
        refuse_fill_values(part)
    first = parts[0]
    for part in parts[1:]:
        same = part.grid.dims == first.grid.dims and part.grid.shape == first.grid.shape
        if not same or not np.array_equal(part.times.values, first.times.values):
            raise DataError(
                f"grid or times differ from those of {first.name}",
                where=f"variable {part.name}",
                fix="write the variables on one grid and one time axis",
            )
    parts += _parameters(config, first, trained)
    grids = xr.concat(
        [p.grid.rename("cells") for p in parts], VARIABLE, coords="minimal", compat="override"
    )
    joined = replace(
        first,
        series=TimeSeries(np.hstack([p.series.values for p in parts]), first.series.years),
        grid=grids.transpose(VARIABLE, *first.grid.dims),
        weights=np.concatenate([p.weights for p in parts]),
        breakpoints=tuple(sorted({b for p in parts for b in p.breakpoints})),
        name=" and ".join(names),
        units="",
        facts=_joined_facts([p.facts for p in parts]),
        parameters=tuple(len(first.weights) for _ in config.parameters),
        partly_missing=sum(p.partly_missing for p in parts),
    )
    return joined, tuple(p.units for p in parts)


def _parameters(config: FieldConfig, like: FieldData, trained: DataFacts | None) -> list[FieldData]:
    """Return each parameter as a field that is constant within a simulation."""
    out = []
    for name in config.parameters:
        stated, unit = simulation_parameters(config, name)
        facts, where = _parameter_facts(name, unit), f"data.parameters: {name}"
        values = _in_trained_unit(stated, facts, trained, where)
        if len(values) != len(like.simulations):
            raise DataError(
                f"{len(values)} values for {len(like.simulations)} simulations",
                where=where,
            )
        shape = like.series.values.shape
        rows = allocate(shape, np.float64, like.memory)
        for steps, value in zip(like.simulations, values, strict=True):
            rows[steps.start : steps.stop] = value
        out.append(
            replace(
                like,
                series=TimeSeries(rows, like.series.years),
                name=name,
                units="",
                partly_missing=0,
            )
        )
    return out


def warn_outside(coding: Coding, values: Array) -> None:
    """Log a warning for simulation parameters outside their training range."""
    for code, cells in zip(coding.variables, coding.slices, strict=True):
        if code.seen is None:
            continue
        parameter = values[:, cells.start]
        low, high = code.seen
        if parameter.min() < low or parameter.max() > high:
            log.warning(
                "%s is %g to %g, outside its training range %g to %g: the forecast extrapolates",
                code.name,
                parameter.min(),
                parameter.max(),
                low,
                high,
            )


def codes_of(
    config: FieldConfig, data: FieldData, units: Sequence[str]
) -> tuple[VariableCode, ...]:
    """Return the unscaled code of each variable and parameter of the configuration."""
    names = config.variables or [config.variable]
    several = bool(config.variables or config.parameters)
    grid = data.grid.values if several else data.grid.values[None]
    fields = [
        VariableCode(
            name,
            unit,
            int(cells.sum()),
            config.of(config.transform, name) or "none",
            config.of(config.minimum, name),
            config.of(config.maximum, name),
        )
        for name, unit, cells in zip(names, units, grid, strict=False)
    ]
    parameters = [
        VariableCode(name, "", int(cells.sum()), seen=(0.0, 0.0))
        for name, cells in zip(config.parameters, grid[len(names) :], strict=True)
    ]
    return (*fields, *parameters)


def _joined_facts(parts: Sequence[DataFacts]) -> DataFacts:
    """Return the facts of several variables, which share their dims."""
    dims = {d.name: d for part in parts for d in part.dims}
    return DataFacts(tuple(v for part in parts for v in part.variables), tuple(dims.values()))


def field_facts(config: FieldConfig) -> DataFacts:
    """Return what the headers of the first simulation say about the variables.

    Raises:
        DataError: unusable file, variable or time axis.
    """
    parts = []
    for name in config.variables or [config.variable]:
        one: dict[str, Any] = {
            "variable": name,
            "variables": [],
            "parameters": [],
            "parameter_table": None,
        }
        simulations = fields_of(config.model_copy(update=one))
        with contextlib.closing(simulations):
            where, field = next(simulations)
            parts.append(facts_of(field, where))
    parts += [DataFacts((_driver_facts(driver, config),)) for driver in config.drivers]
    units = {name: simulation_parameters(config, name)[1] for name in config.parameters}
    parts += [DataFacts((_parameter_facts(name, unit),)) for name, unit in units.items()]
    return parts[0] if len(parts) == 1 else _joined_facts(parts)


def read_drivers(
    config: FieldConfig,
    times: xr.DataArray,
    ahead: np.ndarray | None = None,
    trained: DataFacts | None = None,
) -> Array | None:
    """Return the drivers (time, driver) at the times of a field; None without drivers.

    Args:
        config: of the field.
        times: of the field.
        ahead: forecast times after the end of the field, which are appended.
        trained: facts of the training data, whose units the drivers get.

    Raises:
        DataError: a driver has dims other than time, missing values, or does not cover a time.
    """
    if not config.drivers:
        return None
    wanted = np.concatenate(of_one_kind([times.values, *([] if ahead is None else [ahead])]))
    return np.stack([_driver(d, config, wanted, trained) for d in config.drivers], axis=1)


def _driver_file(driver: DriverConfig, config: FieldConfig) -> tuple[Any, str]:
    """Return the file of a driver, and its place for messages."""
    file = driver.path or campaign_files(config.path)[0]
    return file, f"{file}: driver {driver.variable}"


def _driver_facts(driver: DriverConfig, config: FieldConfig) -> Var:
    """Return what a file says about a driver, whose times are its own."""
    file, where = _driver_file(driver, config)
    with open_fields(file, [driver.variable]) as dataset:
        array = dataset[driver.variable]
        if array.dtype.kind not in "biuf":
            raise DataError(f"values of type {array.dtype}", where=where, allowed="real numbers")
        units = stated_unit(array.attrs)
    # A field may have the name of a driver from another file.
    return Var(f"driver {driver.variable}", units, role="forcing")


def _parameter_facts(name: str, unit: str) -> Var:
    # A parameter may have the name of a driver.
    return Var(f"parameter {name}", unit, role="forcing")


def _in_trained_unit(values: V, facts: Var, trained: DataFacts | None, where: str) -> V:
    """Return values in the unit of the training.

    Raises:
        DataError: the units measure different things.
    """
    before = None if trained is None else trained.var(facts.name)
    if before is None:
        return values
    differences = compare(DataFacts((before,)), DataFacts((facts,)))
    refuse([d for d in differences if d.level == "error"], where)
    for change in (d.conversion for d in differences if d.conversion is not None):
        values = values * change.factor + change.offset
    return values


def _driver(
    driver: DriverConfig, config: FieldConfig, wanted: np.ndarray, trained: DataFacts | None
) -> Array:
    file, where = _driver_file(driver, config)
    with open_fields(file, [driver.variable]) as dataset:
        series = dataset[driver.variable].squeeze(drop=True).load()
    if series.ndim != 1:
        raise DataError(f"dims {', '.join(map(str, series.dims))}", where=where, allowed="time")
    series = _in_trained_unit(series, _driver_facts(driver, config), trained, where)
    values, dim = series.values.astype(np.float64), time_dim(series)
    driver_times = series[dim].values if dim in series.coords else np.arange(len(values))
    at, stamps = _clocks(wanted, driver_times)
    if len(stamps) < 2 or not np.isfinite(values).all():
        raise DataError("missing values, or fewer than two", where=where)
    above = np.clip(np.searchsorted(stamps, at), 1, len(stamps) - 1)
    nearest = np.where(at - stamps[above - 1] <= stamps[above] - at, above - 1, above)
    late = np.abs(stamps[nearest] - at) > _NEAR * float(np.median(np.diff(stamps)))
    if late.any():
        raise DataError(
            f"no value near {wanted[late.argmax()]} and {int(late.sum()) - 1} other times",
            where=where,
            allowed=f"{driver_times[0]} to {driver_times[-1]}",
            fix="a driver that covers the field and the forecast times",
        )
    often = float(np.median(np.diff(stamps)) / np.median(np.diff(at))) if len(at) > 1 else 1.0
    if often > 1.5:
        log.warning("%s: each value is taken for %.3g steps of the field", where, often)
    return values[nearest]


def _clocks(wanted: np.ndarray, driver_times: np.ndarray) -> tuple[Array, Array]:
    """Return the times of a field and of its driver as numbers whose nearest ones belong together.

    Values of the same month or day belong together although one file dates them at its beginning
    and the other in its middle or at its end: the nearest date may be that of the next month, whose
    value nobody knows yet.
    """
    both = (wanted, driver_times)
    if all(times.dtype.kind == "M" and len(times) > 1 for times in both):
        seconds = [seconds_of(times) for times in both]
        if all(np.median(np.diff(s)) == 86400 for s in seconds):
            days, driver_days = (np.floor(s / 86400) for s in seconds)
            return days, driver_days
    steps, driver_steps = (calendar_steps(t) if is_dates(t) else None for t in both)
    if steps is not None and driver_steps is not None:
        if (steps.unit, steps.step) == (driver_steps.unit, driver_steps.step):
            return steps.counts / steps.step, driver_steps.counts / steps.step
    return _clock(wanted), _clock(driver_times)


def _clock(times: np.ndarray) -> Array:
    """Return dates as decimal years, and numeric times unchanged."""
    years = decimal_years(times)
    return years if np.isfinite(years).all() else times.astype(np.float64)


def unit_of(coding: Coding) -> str:
    """Return the unit of scores: that of a single field, "" for several, which are scaled."""
    return coding.fields[0].units if len(coding.fields) == 1 else ""


def named_parts(coding: Coding) -> Sequence[tuple[str, str, slice]]:
    """Return (name, unit, cells) of each field."""
    return [
        (v.name, v.units, cells) for v, cells in zip(coding.fields, coding.slices, strict=False)
    ]
