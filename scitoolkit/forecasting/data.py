"""From a file to what forecasters work on: unmasked cells as columns, time by the calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.config import FieldConfig, ForecastingConfig
from scitoolkit.forecasting.field_matrix import area_weights, find_latitude
from scitoolkit.forecasting.windows import Array, Series, Windows
from scitoolkit.io.coordinates import check_field, spatial_dims, time_dim
from scitoolkit.io.fields import open_fields
from scitoolkit.io.split import blocked_split, window_starts
from scitoolkit.io.time_axis import decimal_years, read_time_axis


@dataclass(frozen=True)
class FieldData:
    """A field in memory as (time, cell), and the inverse map to its grid.

    Attributes:
        series: values (time, cell) of the unmasked cells, and decimal years.
        times: (time,) coordinate as in the file.
        grid: (*space) True at unmasked cells, with the coordinates of the file.
        weights: (cell,) area weights: cos(latitude) where there is one.
        breakpoints: steps that no window may cross.
        time_name: name of the time dim.
        name: name of the variable.
        units: unit of the values, "" when unknown.
        partly_missing: cells left out although some of their times hold values.
    """

    series: Series
    times: xr.DataArray
    grid: xr.DataArray
    weights: Array
    breakpoints: tuple[int, ...]
    time_name: str
    name: str
    units: str
    partly_missing: int

    def to_grid(self, values: Array, dims: Sequence[str]) -> xr.DataArray:
        """Return (*dims, *space) with NaN at masked cells from (..., cell)."""
        return to_grid(self.grid, values, dims)

    def segments(self, steps: range) -> list[Series]:
        """Return the unbroken stretches of some steps."""
        cuts = [steps.start, *(s for s in self.breakpoints if s in steps[1:]), steps.stop]
        return [Series(self.series.values[a:b], self.series.years[a:b]) for a, b in pairwise(cuts)]


def to_grid(grid: xr.DataArray, values: Array, dims: Sequence[str]) -> xr.DataArray:
    """Return (*dims, *space) on the grid of a mask, NaN where it is False."""
    full = np.full((*values.shape[:-1], grid.size), np.nan, dtype=np.float32)
    full[..., grid.values.ravel()] = values
    return xr.DataArray(
        full.reshape(values.shape[:-1] + grid.shape), dims=(*dims, *grid.dims), coords=grid.coords
    )


def read_field(config: FieldConfig, grid: xr.DataArray | None = None) -> FieldData:
    """Read a field whole, as float64 columns.

    Args:
        config: which field.
        grid: mask of a fitted surrogate, to be used instead of the file's own.

    Raises:
        DataError: what is wrong with the file, the variable, its times, units or grid.
    """
    units = {config.variable: config.units} if config.units else None
    with open_fields(config.path, [config.variable], units=units, dims=config.dims) as dataset:
        field = dataset[config.variable]
        where = str(config.path)
        check = check_field(field, where=where)
        if check.infinite:
            raise DataError(f"{check.infinite} infinite values", where=f"{where}: {field.name}")
        axis = read_time_axis(field)
        time, space = time_dim(field), spatial_dims(field)
        _only_time_and_space(field, time, space, where)
        field = field.transpose(time, *space).load()
    values = field.values.reshape(field.sizes[time], -1)
    _no_empty_steps(check.empty_steps, field, where)
    finite = np.isfinite(values)
    mask = finite.all(axis=0) if grid is None else _mask_of(grid, field, space, finite, where)
    if not mask.any():
        raise DataError(
            "no cell holds values at all times", where=f"{where}: variable {field.name}",
            fix="fill the missing values, or choose a period without them",
        )  # fmt: skip
    drop = [n for n in field.coords if time in field[n].dims]
    shape = tuple(field.sizes[d] for d in space)
    cells = xr.DataArray(mask.reshape(shape), dims=space, coords=field.drop_vars(drop).coords)
    times = field[time] if time in field.coords else xr.DataArray(axis.days, dims=time, name=time)
    return FieldData(
        series=Series(values[:, mask].astype(np.float64), decimal_years(times.values)),
        times=times, grid=cells, weights=_area_weights(cells)[mask],
        breakpoints=axis.breakpoint_indices, time_name=time, name=str(field.name),
        units=str(field.attrs.get("units", config.units or "")),
        partly_missing=int((finite.any(axis=0) & ~finite.all(axis=0)).sum()),
    )  # fmt: skip


def _only_time_and_space(field: xr.DataArray, time: str, space: tuple[str, ...], where: str):
    more = [d for d in field.dims if d != time and d not in space and field.sizes[d] > 1]
    if more:
        raise DataError(
            f"dims {', '.join(map(str, more))} are neither time nor space",
            where=f"{where}: variable {field.name}",
            fix="write a file with one of them selected",
        )


def _no_empty_steps(empty: Sequence[int], field: xr.DataArray, where: str) -> None:
    if empty:
        raise DataError(
            f"{len(empty)} time steps hold no value at all, the first at index {empty[0]}",
            where=f"{where}: variable {field.name}",
            fix="drop them from the file; windows will not cross the breakpoints",
        )


def _mask_of(
    grid: xr.DataArray, field: xr.DataArray, space: tuple[str, ...], finite: np.ndarray, where: str
) -> np.ndarray:
    shape = tuple(field.sizes[d] for d in space)
    if shape != grid.shape:
        raise DataError(
            f"a grid of shape {shape}", where=f"{where}: variable {field.name}",
            allowed=f"the grid of the training data, {grid.shape}",
        )  # fmt: skip
    for dim in space:
        if dim in field.coords and dim in grid.coords:
            if not np.allclose(field[dim].values, grid[dim].values, atol=1e-4):
                raise DataError(
                    f"coordinate {dim} differs from that of the training data",
                    where=f"{where}: variable {field.name}",
                )
    mask = grid.values.ravel()
    if not finite[:, mask].all():
        count = int((~finite[:, mask]).any(axis=0).sum())
        raise DataError(
            f"{count} cells that the surrogate needs hold missing values",
            where=f"{where}: variable {field.name}",
        )
    return mask


def _area_weights(cells: xr.DataArray) -> Array:
    latitude = find_latitude(cells, cells.dims)
    if latitude is None:
        return np.ones(cells.size)
    weights = latitude.copy(data=area_weights(latitude)).broadcast_like(cells)
    return weights.transpose(*cells.dims).values.ravel()


@dataclass(frozen=True)
class FieldSplits:
    """The division of a series.

    Attributes:
        steps: train, validation and test steps.
        windows: the windows of each. Inputs of validation and test windows may reach back into
            the part before, as a forecaster's would; what they forecast never does.
    """

    steps: dict[str, range]
    windows: dict[str, Windows]

    @property
    def fit_steps(self) -> range:
        """Train and validation steps: what the final closed-form fit may see."""
        return range(self.steps["train"].start, self.steps["validation"].stop)


def split_field(data: FieldData, config: ForecastingConfig) -> FieldSplits:
    """Return train, validation and test parts.

    Raises:
        DataError: the series is too short; the message says how many steps are needed.
        ConfigError: a split that cannot be made, or that leaks.
    """
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
        raise DataError("a random split leaves no test part in time", fix="split.name=blocked")
    windows = {}
    for name, steps in split.steps.items():
        first = steps.start if name == "train" else max(0, steps.start - config.inputs)
        starts = window_starts(
            range(first, steps.stop), config.inputs, config.leads, list(data.breakpoints)
        )
        if not len(starts):
            raise DataError(
                f"the {name} part of {len(steps)} steps holds no whole window",
                where=str(config.data.path),
                allowed=f"{length} steps without a breakpoint",
                fix=f"a larger split.{name}, or smaller inputs and leads",
            )
        windows[name] = Windows(data.series, starts, config.inputs, config.leads)
    return FieldSplits(split.steps, windows)
