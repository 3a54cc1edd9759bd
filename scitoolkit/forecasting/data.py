"""Reading of a field as unmasked cells over time, and its split into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import xarray as xr

from scitoolkit.core.data_differences import Accepts, compare, problems, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.units import stated_unit
from scitoolkit.forecasting.config import FieldConfig, ForecastingConfig
from scitoolkit.forecasting.field_matrix import (
    FieldReader,
    area_weights,
    find_latitude,
    parse_bytes,
)
from scitoolkit.forecasting.field_store import allocate, row_blocks
from scitoolkit.forecasting.gaps import filled
from scitoolkit.forecasting.month_days import years_like
from scitoolkit.forecasting.simulations import fields_of
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.campaign.split import CampaignSplit, split_campaign
from scitoolkit.io.coordinates import check_field, check_time, spatial_dims, time_dim
from scitoolkit.io.dates import of_one_kind
from scitoolkit.io.facts import convert, of_dataset
from scitoolkit.io.meanings import without_mean
from scitoolkit.io.split import blocked_split, window_starts
from scitoolkit.io.time_axis import read_time_axis


@dataclass(frozen=True)
class FieldData:
    """Field as a matrix (time, cell) with its grid.

    Attributes:
        series: values (time, cell) of the unmasked cells, and decimal years.
        times: (time,) coordinate of the file.
        grid: (*space) True at unmasked cells, with the coordinates of the file.
        weights: (cell,) area weights: cos(latitude), or 1 without a latitude.
        breakpoints: steps across which no window may extend.
        time_name: name of the time dim.
        name: name of the variable.
        units: unit of the values, "" if unknown.
        partly_missing: number of cells excluded because some of their times are missing.
        simulations: step range of each simulation; simulations are concatenated in the series.
        memory: size in bytes above which arrays of the field are mapped to files.
        facts: what the file says about the variables.
        parameters: number of cells of each simulation parameter; these are the last cells, and the
            grid has one variable for each.
    """

    series: TimeSeries
    times: xr.DataArray
    grid: xr.DataArray
    weights: Array
    breakpoints: tuple[int, ...]
    time_name: str
    name: str
    units: str
    partly_missing: int
    simulations: tuple[range, ...] = ()
    memory: int = 2**62
    facts: DataFacts = field(default_factory=DataFacts)
    parameters: tuple[int, ...] = ()

    def fields(self) -> FieldData:
        """Return the field without the cells of parameters."""
        if not self.parameters:
            return self
        cells = len(self.weights) - sum(self.parameters)
        variable = self.grid.dims[0]
        count = self.grid.sizes[variable] - len(self.parameters)
        return replace(
            self,
            series=TimeSeries(self.series.values[:, :cells], self.series.years),
            weights=self.weights[:cells],
            parameters=(),
            grid=self.grid.isel({variable: 0 if count == 1 else slice(count)}, drop=count == 1),
        )

    def to_grid(
        self, values: Array, dims: Sequence[str], differences: Array | None = None
    ) -> xr.DataArray:
        """Return values (..., cell) on the grid, (*dims, *space), NaN at masked cells."""
        return to_grid(self.grid, values, dims, self.memory, differences)

    def segments(self, steps: range) -> list[TimeSeries]:
        """Return the stretches between breakpoints within a range of steps."""
        cuts = [steps.start, *(s for s in self.breakpoints if s in steps[1:]), steps.stop]
        return [
            TimeSeries(self.series.values[a:b], self.series.years[a:b]) for a, b in pairwise(cuts)
        ]


def to_grid(
    grid: xr.DataArray,
    values: Array,
    dims: Sequence[str],
    memory: int = 2**62,
    differences: Array | None = None,
) -> xr.DataArray:
    """Return values on the grid of a mask, (*dims, *space), NaN where the mask is False.

    They are float32, or float64 where float32 would round away the differences that matter.

    Args:
        grid: (*space) bool.
        values: (..., cell) at the True cells.
        dims: names of the leading dims.
        memory: size in bytes above which the result is mapped to a file.
        differences: (..., cell) differences of values that matter; None if float32 is known to do.
    """
    outer, mask = values.shape[:-1], grid.values.ravel()
    flat = values.reshape(-1, values.shape[-1])
    dtype = np.float32 if differences is None else _dtype_for(flat, differences)
    full = allocate((len(flat), grid.size), dtype, memory)
    for rows in row_blocks(len(full), 4 * grid.size, memory):
        full[rows] = np.nan
        full[rows, mask] = flat[rows]
    return xr.DataArray(
        full.reshape(outer + grid.shape), dims=(*dims, *grid.dims), coords=grid.coords
    )


FINEST = 1e-2
"""Largest spacing of float32, in differences that matter, with which values are stored in it."""


def _dtype_for(values: Array, differences: Array) -> type[np.float32] | type[np.float64]:
    """Return float64 if the spacing of float32 is coarse for a twentieth of the cells or more."""
    largest = np.abs(values[:: max(1, len(values) // 64)]).max(axis=0)
    coarse = np.spacing(largest.astype(np.float32)) > FINEST * np.abs(differences)
    counted = np.broadcast_to(np.asarray(differences) != 0, coarse.shape)
    if not counted.any():
        return np.float32
    return np.float64 if coarse[counted].mean() >= 0.05 else np.float32


def is_panel(grid: xr.DataArray) -> bool:
    """Return whether the cells of a grid are series with names, which share no magnitude."""
    return any(c.dtype.kind in "UO" and c.dims == grid.dims for c in grid.coords.values())


log = get_logger(__name__)
POINT = "point"
"""Dim of the only cell of a series without space."""
ACCEPTS = Accepts(uneven=True, dates=True)
"""Differences that forecasters allow: gaps, across which no window extends."""


def read_field(
    config: FieldConfig, grid: xr.DataArray | None = None, trained: DataFacts | None = None
) -> FieldData:
    """Read a field as float64 matrix (time, cell), one block of times at a time.

    Arrays larger than `config.memory` are mapped to files in the temporary folder.

    Args:
        config: field and files.
        grid: mask of a fitted surrogate; None for the cells with values at all times.
        trained: facts of the training data, which units and directions are converted to.

    Raises:
        DataError: unusable file, variable, times, units or grid, or data unlike the trained ones.
    """
    memory = parse_bytes(config.memory, key="data.memory")
    checked = [(where, *_checked(field, trained, where)) for where, field in fields_of(config)]
    several = [_stretch(field, where, memory, config.fill) for where, field, _ in checked]
    field, space = several[0].field, several[0].space
    where = str(config.path)
    finite = _Finite(
        np.any([s.finite.sometimes for s in several], axis=0),
        np.all([s.finite.always for s in several], axis=0),
    )
    mask = finite.always if grid is None else _mask_of(grid, field, space, finite.always, where)
    if not mask.any():
        raise DataError(
            "no cell holds values at all times",
            where=f"{where}: variable {field.name}",
            fix="fill the missing values, or choose a period without them",
        )
    if grid is None:
        _refuse_partial_series(field, space, finite, where)
        if problem := without_mean(field.attrs):
            log.warning("%s: variable %s: %s", where, field.name, problem)
    time = several[0].time
    drop = [n for n in field.coords if time in field[n].dims]
    shape = tuple(field.sizes[d] for d in space)
    cells = xr.DataArray(mask.reshape(shape), dims=space, coords=field.drop_vars(drop).coords)
    times = several[0].times
    if len(several) > 1:
        stamps = np.concatenate(of_one_kind([s.times.values for s in several]))
        times = xr.DataArray(stamps, dims=time, name=time, attrs=times.attrs)
    first = np.cumsum([0, *(len(s.values) for s in several)]).tolist()
    breakpoints = [at + b for at, s in zip(first, several, strict=False) for b in s.breakpoints]
    return FieldData(
        series=TimeSeries(_columns(several, mask, memory), years_like(times.values, trained)),
        times=times,
        grid=cells,
        weights=_area_weights(cells)[mask],
        breakpoints=tuple(sorted({*breakpoints, *first[1:-1]})),
        time_name=time,
        name=str(field.name),
        units=stated_unit(field.attrs) or config.units or "",
        partly_missing=int((finite.sometimes & ~finite.always).sum()),
        simulations=tuple(range(a, b) for a, b in pairwise(first)),
        memory=memory,
        facts=checked[0][2],
    )


def _checked(
    field: xr.DataArray, trained: DataFacts | None, where: str
) -> tuple[xr.DataArray, DataFacts]:
    """Return a field in units and directions of the training, and the facts of its file."""
    name, facts = str(field.name), facts_of(field, where)
    dataset = field.to_dataset(name=name)
    differences = problems(facts, ACCEPTS)
    if trained is not None:
        variables = tuple(v for v in trained.variables if v.name == name)
        dims = {d for v in variables for d in v.dims}
        field_dims = tuple(d for d in trained.dims if d.name in dims)
        same = replace(trained, variables=variables, dims=field_dims)
        differences += compare(same, facts, ACCEPTS)
    # What is no error is told where the first file is opened.
    refuse([d for d in differences if d.level == "error"], where)
    return convert(dataset, differences)[name], facts


def facts_of(field: xr.DataArray, where: str) -> DataFacts:
    """Return what a file says about a field.

    Raises:
        DataError: an unusable time axis.
    """
    name = str(field.name)
    if name in field.dims:
        raise DataError(
            f"{name} is a coordinate", where=where, allowed="a variable", fix="data.variable=NAME"
        )
    check_time(field, where=where)
    return of_dataset(field.to_dataset(name=name), [name])


def _columns(several: list[_Stretch], mask: np.ndarray, memory: int) -> Array:
    """Return the unmasked cells of all simulations, (time, cell)."""
    rows, cells = sum(len(s.values) for s in several), int(mask.sum())
    if len(several) == 1 and mask.all() and several[0].values.dtype == np.float64:
        return several[0].values
    out = allocate((rows, cells), np.float64, memory)
    at = 0
    for stretch in several:
        values = stretch.values
        for part in row_blocks(len(values), 8 * cells, memory):
            out[at + part.start : at + part.stop] = values[part][:, mask]
        at += len(values)
    return out


@dataclass(frozen=True)
class _Finite:
    """Cells (cell,) bool with finite values at any time, and at all times."""

    sometimes: np.ndarray
    always: np.ndarray


@dataclass(frozen=True)
class _Stretch:
    """Data of one simulation.

    Attributes:
        field: (time, *space) for coordinates, attributes and shape.
        values: (time, cell) including cells without values.
        finite: cells with values.
        times: (time,) coordinate.
        time: name of the time dim.
        space: names of the spatial dims.
        breakpoints: steps after a gap in time.
    """

    field: xr.DataArray
    values: np.ndarray
    finite: _Finite
    times: xr.DataArray
    time: str
    space: tuple[str, ...]
    breakpoints: tuple[int, ...]


def _stretch(field: xr.DataArray, where: str, memory: int, fill: int = 0) -> _Stretch:
    """Read and check one simulation.

    Raises:
        DataError: infinite values, empty steps, additional dims or an unusable time axis.
    """
    if field.dtype.kind == "b":
        raise DataError(
            "values are true or false, not numbers",
            where=f"{where}: {field.name}",
            fix="write 1 and 0, whose forecast is an expected share",
        )
    check = check_field(field, where=where)
    if check.infinite:
        raise DataError(f"{check.infinite} infinite values", where=f"{where}: {field.name}")
    time, space = time_dim(field), spatial_dims(field)
    if fill:
        field = filled(field, fill)
        check = check_field(field, where=where)
    if not space:
        # A series without space is a field of one cell; its empty steps are gaps.
        steps = np.setdiff1d(np.arange(field.sizes[time]), check.empty_steps)
        field = field.isel({time: steps}).expand_dims(POINT, axis=1)
        check, space = replace(check, empty_steps=()), (POINT,)
    axis = read_time_axis(field)
    _only_time_and_space(field, time, space, where)
    field = field.transpose(time, *space)
    _no_empty_steps(check.empty_steps, field, where)
    times = field[time] if time in field.coords else xr.DataArray(axis.days, dims=time, name=time)
    values, finite = _read(FieldReader(field, time, space), memory)
    return _Stretch(field, values, finite, times, time, space, axis.breakpoint_indices)


def _read(reader: FieldReader, memory: int) -> tuple[np.ndarray, _Finite]:
    """Return all rows of a field, and its cells with values."""
    finite_cells = _Finite(np.zeros(reader.num_cells, bool), np.ones(reader.num_cells, bool))
    dtype = reader.da.dtype if reader.da.dtype.kind == "f" else np.dtype(np.float64)
    values = allocate((reader.num_times, reader.num_cells), dtype, memory)
    for first, block in reader.blocks(reader.rows_within(memory) or 1):
        values[first : first + len(block)] = block
        finite = np.isfinite(block)
        np.logical_or(finite_cells.sometimes, finite.any(axis=0), out=finite_cells.sometimes)
        np.logical_and(finite_cells.always, finite.all(axis=0), out=finite_cells.always)
    return values, finite_cells


def _only_time_and_space(field: xr.DataArray, time: str, space: tuple[str, ...], where: str):
    more = [d for d in field.dims if d != time and d not in space and field.sizes[d] > 1]
    if more:
        raise DataError(
            f"dims {', '.join(map(str, more))} are neither time nor space",
            where=f"{where}: variable {field.name}",
            fix="write a file with one index of each selected",
        )


def _no_empty_steps(empty: Sequence[int], field: xr.DataArray, where: str) -> None:
    if empty:
        raise DataError(
            f"{len(empty)} time steps have no values, the first at index {empty[0]}",
            where=f"{where}: variable {field.name}",
            fix="remove them from the file; windows do not extend across the gaps",
        )


def _mask_of(
    grid: xr.DataArray, field: xr.DataArray, space: tuple[str, ...], always: np.ndarray, where: str
) -> np.ndarray:
    shape = tuple(field.sizes[d] for d in space)
    if shape != grid.shape:
        raise DataError(
            f"a grid of shape {shape}",
            where=f"{where}: variable {field.name}",
            allowed=f"the grid of the training data, {grid.shape}",
        )
    for name in [n for n, c in grid.coords.items() if c.dtype.kind == "U" and n in field.coords]:
        # Series are forecast by their place: another name there is another series.
        labels = field[name].values.astype(str)
        if labels.shape != grid[name].shape or (labels != grid[name].values).any():
            raise DataError(
                f"{name} names {', '.join(np.ravel(labels)[:5])}",
                where=f"{where}: variable {field.name}",
                allowed=f"those of the training data, {', '.join(np.ravel(grid[name])[:5])}",
            )
    for dim in [d for d in space if d in grid.coords and grid[d].dtype.kind != "U"]:
        if dim in field.coords:
            apart = field[dim].values - grid[dim].values
            if "east" in str(grid[dim].attrs.get("units", "")):
                apart = apart - 360.0 * np.round(apart / 360.0)  # 350 degrees east are -10
            if not np.allclose(apart, 0.0, atol=1e-4):
                raise DataError(
                    f"coordinate {dim} differs from that of the training data",
                    where=f"{where}: variable {field.name}",
                )
    mask = grid.values.ravel()
    if not always[mask].all():
        count = int((~always[mask]).sum())
        raise DataError(
            f"{count} cells of the surrogate have missing values",
            where=f"{where}: variable {field.name}",
        )
    return mask


def _refuse_partial_series(
    field: xr.DataArray, space: tuple[str, ...], finite: _Finite, where: str
) -> None:
    """Refuse series with names, of which some have no value at some times.

    Cells of a grid are left out there, as those of sea ice; nobody forecasts a named series to
    learn that it was left out.
    """
    labels = [c for c in field.coords.values() if c.dtype.kind in "UO" and c.dims == space]
    partial = np.flatnonzero(~finite.always)
    if len(space) != 1 or not labels or not len(partial):
        return
    names = labels[0].values.astype(str)
    raise DataError(
        f"{len(partial)} of {len(names)} series have no value at some times: "
        f"{', '.join(names[partial][:5])}",
        where=f"{where}: variable {field.name}",
        allowed="series that begin and end together",
        fix="data.fill for short gaps; files of their own for series of other lengths",
    )


def _area_weights(cells: xr.DataArray) -> Array:
    latitude = find_latitude(cells, cells.dims)
    if latitude is None:
        return np.ones(cells.size)
    weights = latitude.copy(data=area_weights(latitude)).broadcast_like(cells)
    return weights.transpose(*cells.dims).values.ravel()


@dataclass(frozen=True)
class FieldSplits:
    """Split of a series into train, validation and test parts.

    Attributes:
        steps: step range of each part.
        windows: windows of each part. Inputs of validation and test windows may extend into the
            previous part, as in operational use; their targets never do.
    """

    steps: dict[str, range]
    windows: dict[str, Windows]

    @property
    def fit_steps(self) -> range:
        """Train and validation steps, to which the final closed form is fitted."""
        return range(self.steps["train"].start, self.steps["validation"].stop)


def split_field(data: FieldData, config: ForecastingConfig) -> FieldSplits:
    """Return the train, validation and test parts of a series.

    Raises:
        DataError: the series is too short; the message states the required number of steps.
        ConfigError: a split that is impossible or leaks between parts.
    """
    if len(data.simulations) > 1:
        return _split_simulations(data, config)
    count, length = len(data.series.values), config.inputs + config.leads
    needed = 2 * (length + config.leads) + 2 * config.leads + 2
    if count < needed:
        raise DataError(
            f"the series has {count} steps, too few to train, validate and test",
            where=str(config.data.path),
            allowed=f"at least {needed} steps for inputs {config.inputs} and leads {config.leads}",
            fix="a longer file, or smaller inputs and leads",
        )
    split = blocked_split(
        count, 1, config.leads, config.split, breakpoints=data.breakpoints, times=data.times
    )
    if split.steps is None:
        raise DataError("a random split has no test part in time", fix="split.name=blocked")
    return _with_windows(data, config, split.steps)


def _split_simulations(data: FieldData, config: ForecastingConfig) -> FieldSplits:
    """Return the parts of several simulations: whole simulations, in their order.

    Raises:
        DataError: exactly two simulations.
        ConfigError: a split in time, a part without a simulation, or `pod.rank: forecast`.
    """
    if config.pod.rank == "forecast":
        raise ConfigError(
            "forecast requires a single continuous series",
            where="pod.rank",
            allowed="a number of modes or a share of variance for several simulations",
        )
    if len(data.simulations) == 2:
        raise DataError(
            "2 simulations for 3 parts (train, validation, test)",
            where=str(config.data.path),
            allowed="one simulation, which is split in time, or at least three",
        )
    index = SampleIndex(range(len(data.simulations)), [len(s) for s in data.simulations])
    settings = config.split.model_dump(include=config.split.model_fields_set)
    split = CampaignSplit.model_validate({**settings, "by": "simulation"})
    parts = split_campaign(index, config.inputs + config.leads, split, own_test=True)
    missing = [name for name, blocks in parts.items() if not blocks]
    if missing:
        raise ConfigError(
            f"no simulation for {missing[0]}", where=f"split.{missing[0]}", allowed="1 or more"
        )
    steps = {name: range(blocks[0].start, blocks[-1].stop) for name, blocks in parts.items()}
    return _with_windows(data, config, steps)


def _with_windows(
    data: FieldData, config: ForecastingConfig, parts: dict[str, range]
) -> FieldSplits:
    """Return the parts with their windows.

    Raises:
        DataError: a part is too short for a window.
    """
    length = config.inputs + config.leads
    several, windows = len(data.simulations) > 1, {}
    for name, steps in parts.items():
        back = 0 if name == "train" or several else config.inputs
        first = max(0, steps.start - back)
        starts = window_starts(
            range(first, steps.stop), config.inputs, config.leads, list(data.breakpoints)
        )
        if not len(starts):
            raise DataError(
                f"the {name} part of {len(steps)} steps contains no complete window",
                where=str(config.data.path),
                allowed=f"{length} steps without a gap",
                fix=f"a larger split.{name}, or smaller inputs and leads",
            )
        windows[name] = Windows(data.series, starts, config.inputs, config.leads)
    return FieldSplits(parts, windows)
