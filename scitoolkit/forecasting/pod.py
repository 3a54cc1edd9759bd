"""Proper orthogonal decomposition (POD, EOF analysis) of a gridded field of any size.

A field x(t, cell) is the climatology plus the sum over modes of coefficients a(t, mode) times
modes(mode, cell). The modes are orthonormal under the area weights, so that distances between
coefficients are area-weighted distances between fields. Mean, seasonal cycle, mask and modes are
estimated from the data passed to `fit` only, which should be the training part.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.field_matrix import (
    FieldReader,
    area_weights,
    calendar_design,
    check_numeric,
    find_latitude,
    find_time_dim,
    parse_bytes,
)
from scitoolkit.forecasting.pod_arrays import PODState
from scitoolkit.forecasting.pod_checks import (
    check_coefficients,
    check_design,
    check_extents,
    check_grid,
    check_parameters,
    usable_cells,
)
from scitoolkit.forecasting.pod_rank import choose_rank, rank_of
from scitoolkit.forecasting.streaming_svd import (
    Anomalies,
    CellStatistics,
    Decomposition,
    RowProcesses,
    cell_statistics,
    exact_svd,
    randomized_svd,
)

logger: Logger = get_logger(__name__)

# Up to this many multiplications the exact decomposition takes about a second.
_EXACT_WORK = 2e10
_TILE_BYTES = 8 * 2**20
_VECTORS = ("singular_values_", "explained_variance_ratio_", "error_estimate_", "error_bound_")
_SCALARS = (
    "name_",
    "attrs_",
    "method_",
    "truncation_error_",
    "num_partly_missing_",
    "num_passes_",
    "time_dim_",
    "_uses_constant",
)


class POD:
    """Proper orthogonal decomposition with scikit-learn's interface for xarray fields.

    Args:
        rank: number of modes; or a share of variance in (0, 1), for the smallest number of modes
            that explains it; or "forecast", for the number with the least forecast error on the
            last part of the training data (`choose_rank`).
        area_weights: weight cells by cos(latitude). Without a latitude all cells have equal
            weights, which is logged.
        mean: remove each cell's mean over the training data.
        seasonal_cycle: number of annual harmonics to remove, by the calendar; None for none.
        max_memory: memory limit of `fit` and `transform`, in bytes or as text such as "512MiB".
            A field that fits several times is decomposed exactly; a larger one is streamed.
        tolerance: relative error of the singular values at which streaming stops.
        oversampling: sketch columns in addition to `rank` when streaming.
        max_passes: largest number of passes over the data when streaming.
        candidate_ranks: ranks compared by rank="forecast".
        horizon: largest lead, in steps, of the error measured by rank="forecast".
        seed: of the random initial subspace when streaming.

    Attributes:
        modes_: (mode, *space) patterns, NaN at masked cells; the largest entry is positive.
        singular_values_: (mode,) of the weighted anomalies, in the field's unit.
        explained_variance_ratio_: (mode,) share of the weighted variance.
        mean_: (*space) training mean.
        mask_: (*space) True at the cells used.
        weights_: (*space) area weights, up to a constant factor.
        rank_: number of modes.
        truncation_error_: area-weighted RMSE of the training data after truncation, field's unit.
        method_: "snapshots", "lapack" or "randomized".
        error_estimate_, error_bound_: (mode,) estimated error and certified bound of the singular
            values, relative (see `streaming_svd.randomized_svd`).
        num_partly_missing_: number of cells masked because some of their times are missing.
        rank_table_: with rank="forecast", one row per candidate (see `choose_rank`).

    Example:
        >>> values = np.outer(np.sin(np.arange(12.0)), [1.0, 2.0, 3.0])
        >>> field = xr.DataArray(values, dims=("time", "x"), attrs={"units": "K"}, name="t")
        >>> pod = POD(rank=1, area_weights=False).fit(field)
        >>> pod.transform(field).shape, bool(pod.truncation_error_ < 1e-6)
        ((12, 1), True)
        >>> bool(abs(pod.inverse_transform(pod.transform(field)) - field).max() < 1e-9)
        True
    """

    dtype_: np.dtype
    mask_: xr.DataArray
    modes_: xr.DataArray
    weights_: xr.DataArray
    mean_: xr.DataArray

    def __init__(
        self,
        rank: int | float | str = 10,
        *,
        area_weights: bool = True,
        mean: bool = True,
        seasonal_cycle: int | None = None,
        max_memory: int | str = "1GiB",
        tolerance: float = 1e-4,
        oversampling: int = 10,
        max_passes: int = 12,
        candidate_ranks: Sequence[int] = (1, 2, 3, 5, 8, 12, 20, 30),
        horizon: int = 8,
        seed: int = 0,
    ) -> None:
        self.rank = rank
        self.area_weights = area_weights
        self.mean = mean
        self.seasonal_cycle = seasonal_cycle
        self.max_memory = max_memory
        self.tolerance = tolerance
        self.oversampling = oversampling
        self.max_passes = max_passes
        self.candidate_ranks = candidate_ranks
        self.horizon = horizon
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments; `deep` exists for scikit-learn and has no effect."""
        return {name: getattr(self, name) for name in _parameter_names()}

    def set_params(self, **params: Any) -> POD:
        """Set constructor arguments; return self.

        Raises:
            ConfigError: unknown argument.
        """
        for name, value in params.items():
            if name not in _parameter_names():
                raise ConfigError(
                    f"POD has no parameter {name!r}", allowed=", ".join(_parameter_names())
                )
            setattr(self, name, value)
        return self

    def fit(
        self,
        da: xr.DataArray,
        time_dim: Hashable | None = None,
        *,
        mask: xr.DataArray | None = None,
        process_group: Any = None,
    ) -> POD:
        """Compute mean, seasonal cycle and modes of the training data; return self.

        Args:
            da: training field, (time, *space) in any order, in memory, lazily opened or dask.
                Cells that are NaN at any time are masked.
            time_dim: time dimension, if it is not recognised by its name or attributes.
            mask: (*space) True where a cell may be used, for files that fill land with numbers.
            process_group: `torch.distributed` group. Every process calls `fit` with the same
                arguments, reads a part of the times, and obtains the same result.

        Raises:
            DataError: no time dimension, a single time step, all cells masked, constant or
                infinite values.
            ConfigError: invalid parameters, more modes than the data have, or too little memory.
        """
        check_parameters(self.rank, self.seasonal_cycle)
        parse_bytes(self.max_memory)
        check_numeric(da)
        self._describe(da, time_dim)
        reader = FieldReader(da, self.time_dim_, self.space_dims_)
        processes = RowProcesses(process_group)
        design = self._design(da[self.time_dim_] if self.time_dim_ in da.coords else None, da)
        statistics, cells = self._statistics(reader, design, mask, processes)
        weights = self._weights(da)
        wanted = self._wanted_rank(da, cells)
        anomalies = Anomalies(
            reader,
            cells,
            design,
            statistics.coefficients[:, cells],
            np.sqrt(weights[cells]),
            1,
            processes,
        )
        total = float(statistics.residual[cells] @ weights[cells])
        decomposition = self._decompose(
            anomalies, wanted, total, self._max_rank(anomalies.shape, design)
        )
        self._store(da, decomposition, statistics, cells, weights, total)
        return self

    def transform(self, da: xr.DataArray) -> xr.DataArray:
        """Return the coefficients (time, mode), float64, of a field on the grid of `fit`.

        Values at masked cells are ignored.

        Raises:
            DataError: different grid, or a missing or infinite value at an unmasked cell.
        """
        self._check_fitted()
        anomalies = self._anomalies(da)
        patterns = self._patterns() * anomalies.weights[:, None]
        with np.errstate(invalid="ignore"):  # reported below with the offending time step
            values = anomalies.project(patterns)
        where = str(da.name or self.name_)
        check_coefficients(values, da, self.time_dim_, self.mask_, where)
        coords = {k: v for k, v in da.coords.items() if v.dims == (self.time_dim_,)}
        coords["mode"] = self.modes_["mode"]
        return xr.DataArray(
            values,
            dims=(self.time_dim_, "mode"),
            coords=coords,
            name=f"{self.name_}_coefficients",
            attrs={"long_name": f"POD coefficients of {self.name_}"} | self._units(),
        )

    def inverse_transform(self, coefficients: xr.DataArray) -> xr.DataArray:
        """Return the field, in physical units, of coefficients (..., mode).

        Args:
            coefficients: any dimensions in addition to `mode`, e.g. (sample, time, mode). A subset
                of the modes is selected by the coordinate `mode` (1, 2, ...), without it the
                first ones. With a seasonal cycle the time coordinate is required.

        Returns:
            The field (..., *space), NaN at masked cells, float32 if `fit` had float32, else
            float64.

        Raises:
            DataError: no dimension `mode`, unknown modes, or no dates for the seasonal cycle.
        """
        self._check_fitted()
        if "mode" not in coefficients.dims or coefficients.sizes["mode"] > self.rank_:
            raise DataError(
                f"coefficients of dimensions {dict(coefficients.sizes)}",
                allowed=f"a dimension 'mode' of at most {self.rank_}",
                fix="pass what POD.transform returned, or a forecast of it",
            )
        outer = [d for d in coefficients.dims if d != "mode"]
        values = coefficients.transpose(*outer, "mode").values.astype(np.float64)
        patterns = self._patterns()[:, self._mode_indices(coefficients)]
        cells = self._cells()
        flat = np.full((*values.shape[:-1], self.mask_.size), np.nan, dtype=self.dtype_)
        flat[..., cells] = values @ patterns.T + self._climatology(coefficients)[..., cells]
        shape = values.shape[:-1] + tuple(self.mask_.shape)
        coords = {k: v for k, v in coefficients.coords.items() if "mode" not in v.dims}
        return xr.DataArray(
            flat.reshape(shape),
            dims=(*outer, *self.space_dims_),
            coords=coords | dict(self.mask_.coords),
            name=self.name_,
            attrs=dict(self.attrs_),
        )

    def anomaly_variance(self, da: xr.DataArray) -> float:
        """Return the time mean of the area-weighted sum of squared anomalies of a field.

        Its difference from the mean squared norm of the coefficients is the truncation error.
        """
        self._check_fitted()
        return self._anomalies(da).energy() / da.sizes[self.time_dim_]

    def climatology(self, time: xr.DataArray) -> xr.DataArray:
        """Return mean plus seasonal cycle of the training data at `time`, in physical units.

        Args:
            time: dates of any shape; the result is (*time.dims, *space).
        """
        self._check_fitted()
        zero = xr.DataArray(
            np.zeros((*time.shape, self.rank_)), dims=(*time.dims, "mode"), coords=time.coords
        )
        return self.inverse_transform(zero.assign_coords({self.time_dim_: time}))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted state as plain arrays, with scalars as JSON bytes under "header"."""
        self._check_fitted()
        state = PODState(
            params=self.get_params(),
            scalars={name: getattr(self, name) for name in _SCALARS},
            vectors={name: getattr(self, name) for name in _VECTORS},
            mask=self.mask_,
            modes=self.modes_.values,
            weights=self.weights_.values,
            coefficients=self._coefficients,
            dtype=self.dtype_,
        )
        return state.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> POD:
        """Return the fitted POD from the arrays of `to_arrays`.

        Raises:
            DataError: the arrays are not those of a POD.
        """
        state = PODState.from_arrays(arrays, _SCALARS, _VECTORS)
        try:
            pod = cls(**state.params)
        except TypeError as error:
            raise DataError(f"not the arrays of a POD ({error!r})", fix="POD.to_arrays()") from None
        for name, value in (state.scalars | state.vectors).items():
            setattr(pod, name, value)
        pod.space_dims_, pod.dtype_, pod.mask_ = state.mask.dims, state.dtype, state.mask
        pod._coefficients = state.coefficients
        pod._set_fields(state.modes, state.weights)
        return pod

    def save(self, path: str | Path) -> Path:
        """Write the fitted POD to a safetensors file; return its path."""
        from safetensors.numpy import save_file

        arrays = {k: np.ascontiguousarray(v) for k, v in self.to_arrays().items()}
        save_file(arrays, str(path))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> POD:
        """Return the fitted POD from a file written by `save`.

        Raises:
            DataError: the file cannot be read or does not contain a POD.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return cls.from_arrays(load_file(str(path)))
        except (OSError, SafetensorError) as error:
            raise DataError(f"cannot be read ({error})", where=str(path)) from None

    # -- steps of fit ------------------------------------------------------------------------

    def _wanted_rank(self, da: xr.DataArray, cells: np.ndarray) -> int | float:
        if self.rank != "forecast":
            return self.rank  # type: ignore[return-value]
        shape = tuple(da.sizes[d] for d in self.space_dims_)
        used = np.isin(np.arange(int(np.prod(shape))), cells).reshape(shape)
        mask = xr.DataArray(used, dims=self.space_dims_)

        def fit(rank: int, field: xr.DataArray) -> POD:
            return POD(**self.get_params() | {"rank": rank}).fit(field, self.time_dim_, mask=mask)

        self.rank_table_: list[dict[str, float]] = choose_rank(
            da,
            fit,
            candidates=[min(int(rank), cells.size) for rank in self.candidate_ranks],
            horizon=self.horizon,
            harmonics=self.seasonal_cycle or 0,
            time_dim=self.time_dim_,
        )
        return int(min(self.rank_table_, key=lambda row: row["forecast_rmse"])["rank"])

    def _describe(self, da: xr.DataArray, time_dim: Hashable | None) -> None:
        self.time_dim_: Hashable = find_time_dim(da, time_dim)
        self.space_dims_: tuple[Hashable, ...] = tuple(d for d in da.dims if d != self.time_dim_)
        self.name_: str = str(da.name) if da.name is not None else "field"
        self.attrs_: dict[str, Any] = {str(k): v for k, v in da.attrs.items()}
        self.dtype_ = np.dtype(np.float32 if da.dtype == np.float32 else np.float64)
        check_extents(da, self.time_dim_, self.name_)

    def _design(self, time: xr.DataArray | None, da: xr.DataArray) -> np.ndarray:
        if time is None:
            count = np.arange(da.sizes[self.time_dim_])
            time = xr.DataArray(count, dims=[self.time_dim_], name=str(self.time_dim_))
        self._uses_constant = bool(self.mean)
        return calendar_design(time, self.seasonal_cycle, mean=self.mean)

    def _statistics(
        self,
        reader: FieldReader,
        design: np.ndarray,
        mask: xr.DataArray | None,
        processes: RowProcesses,
    ) -> tuple[CellStatistics, np.ndarray]:
        check_design(design, self.seasonal_cycle, self.name_)
        fixed = (2 * design.shape[1] + 5) * reader.num_cells * 8 + _TILE_BYTES
        rows = self._rows(reader, fixed, reader.num_cells)
        statistics = cell_statistics(reader, design, rows, processes)
        cells, num_partly = usable_cells(statistics, reader, mask, self.space_dims_, self.name_)
        self.num_partly_missing_: int = num_partly
        return statistics, cells

    def _weights(self, da: xr.DataArray) -> np.ndarray:
        shape = tuple(da.sizes[d] for d in self.space_dims_)
        latitude = find_latitude(da, self.space_dims_) if self.area_weights else None
        if latitude is None:
            if self.area_weights:
                logger.info("%s: no latitude found, all cells weigh the same", self.name_)
            return np.ones(int(np.prod(shape)))
        values = latitude.copy(data=area_weights(latitude)).drop_vars(list(latitude.coords))
        like = xr.DataArray(np.zeros(shape, np.int8), dims=self.space_dims_)
        return values.broadcast_like(like).transpose(*self.space_dims_).values.ravel()

    def _max_rank(self, shape: tuple[int, int], design: np.ndarray) -> int:
        return min(shape[0] - design.shape[1], shape[1])

    def _rows(self, reader: FieldReader, fixed: int, num_cells: int) -> int:
        limit = parse_bytes(self.max_memory)
        # A block, its encoded form and its unmasked cells exist at the same time.
        copies = 2 if num_cells == reader.num_cells else 3
        rows = reader.rows_within(limit - fixed, copies=copies)
        if rows < 1:
            row = reader.num_cells * max(reader.da.dtype.itemsize, 4) * copies
            raise ConfigError(
                f"max_memory={self.max_memory!r} is too small for {reader.num_cells} cells",
                where=self.name_,
                allowed=f"at least {(fixed + row) / 2**20:.1f} MiB",
                fix=f"max_memory='{int((fixed + 16 * row) / 2**20) + 1}MiB'",
            )
        return rows

    def _decompose(
        self, anomalies: Anomalies, wanted: int | float, total: float, largest: int
    ) -> Decomposition:
        if not isinstance(wanted, float) and wanted > largest:
            raise ConfigError(
                f"rank={wanted} exceeds the {largest} modes of {anomalies.shape[0]} time steps "
                f"and {anomalies.shape[1]} cells",
                where=self.name_,
                fix=f"rank={largest} or less",
            )
        num_times, num_cells = anomalies.shape
        small = 4 * 8 * num_times * num_cells <= parse_bytes(self.max_memory)
        alone = anomalies.processes.group is None
        if small and alone and min(anomalies.shape) * num_times * num_cells <= _EXACT_WORK:
            anomalies.rows = num_times
            return exact_svd(anomalies, lambda values: rank_of(values, wanted, total, largest))
        # For a share of variance, double the sketch until its modes explain the share.
        rank = min(16, largest) if isinstance(wanted, float) else wanted
        start = None
        while True:
            fixed = 6 * 8 * num_cells * (rank + self.oversampling) + _TILE_BYTES
            anomalies.rows = self._rows(anomalies.reader, fixed, num_cells)
            decomposition = randomized_svd(
                anomalies,
                rank,
                oversampling=self.oversampling,
                tolerance=self.tolerance,
                max_passes=self.max_passes,
                seed=self.seed,
                start=start,
            )
            share = float((decomposition.singular_values**2).sum()) / total
            if not isinstance(wanted, float) or share >= wanted or rank == largest:
                return decomposition.leading(
                    rank_of(decomposition.singular_values, wanted, total, largest)
                )
            rank, start = min(2 * rank, largest), decomposition.patterns

    def _store(
        self,
        da: xr.DataArray,
        decomposition: Decomposition,
        statistics: CellStatistics,
        cells: np.ndarray,
        weights: np.ndarray,
        total: float,
    ) -> None:
        shape = tuple(da.sizes[d] for d in self.space_dims_)
        coords = {k: v for k, v in da.coords.items() if set(v.dims) <= set(self.space_dims_)}
        coords = {
            k: v.drop_vars([c for c in v.coords if c not in coords]) for k, v in coords.items()
        }
        used = np.zeros(weights.size, dtype=bool)
        used[cells] = True
        self.mask_ = xr.DataArray(used.reshape(shape), dims=self.space_dims_, coords=coords)
        self.mask_.name = "mask"
        physical = decomposition.patterns / np.sqrt(weights[cells])[:, None]
        largest = np.abs(physical).argmax(axis=0)
        physical *= np.where(np.take_along_axis(physical, largest[None], 0) < 0, -1.0, 1.0)
        modes = np.full((physical.shape[1], weights.size), np.nan)
        modes[:, cells] = physical.T
        self._coefficients = np.where(used, statistics.coefficients, np.nan)
        self.singular_values_: np.ndarray = decomposition.singular_values
        self.explained_variance_ratio_: np.ndarray = decomposition.singular_values**2 / total
        self.error_estimate_: np.ndarray = decomposition.error_estimate
        self.error_bound_: np.ndarray = decomposition.error_bound
        self.method_: str = decomposition.method
        self.num_passes_: int = decomposition.num_passes
        lost = max(total - float((decomposition.singular_values**2).sum()), 0.0)
        area = float(weights[cells].sum())
        self.truncation_error_: float = float(np.sqrt(lost / (da.sizes[self.time_dim_] * area)))
        self._set_fields(modes.reshape(-1, *shape), weights.reshape(shape))

    def _set_fields(self, modes: np.ndarray, weights: np.ndarray) -> None:
        """Set the labelled attributes from `mask_`'s grid; also sets `rank_` and `mean_`."""
        self.rank_: int = len(modes)
        grid = self.mask_.coords
        number = xr.DataArray(np.arange(1, self.rank_ + 1), dims="mode")
        self.modes_ = xr.DataArray(
            modes,
            dims=("mode", *self.space_dims_),
            coords=dict(grid) | {"mode": number},
            name="modes",
        )
        self.weights_ = xr.DataArray(weights, dims=self.space_dims_, coords=grid, name="weights")
        constant = self._coefficients[0] if self._uses_constant else np.zeros(self.mask_.size)
        mean = np.where(self.mask_.values.ravel(), constant, np.nan).reshape(self.mask_.shape)
        self.mean_ = xr.DataArray(
            mean, dims=self.space_dims_, coords=grid, name=self.name_, attrs=dict(self.attrs_)
        )

    # -- helpers after fit -------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "modes_"):
            raise ConfigError("this POD has not been fitted", fix="pod.fit(training_field)")

    def _anomalies(self, da: xr.DataArray) -> Anomalies:
        """Return the weighted anomalies of another field on the grid of `fit`."""
        check_numeric(da)
        check_grid(da, self.time_dim_, self.mask_, str(da.name or self.name_))
        reader = FieldReader(da, self.time_dim_, self.space_dims_)
        time = da[self.time_dim_] if self.time_dim_ in da.coords else None
        cells = self._cells()
        fixed = 2 * cells.size * self.rank_ * 8 + _TILE_BYTES
        return Anomalies(
            reader,
            cells,
            self._design(time, da),
            self._coefficients[:, cells],
            np.sqrt(self.weights_.values.ravel()[cells]),
            self._rows(reader, fixed, cells.size),
        )

    def _climatology(self, coefficients: xr.DataArray) -> np.ndarray:
        """Return mean plus seasonal cycle, (*outer, cell), or (cell,) without a cycle."""
        outer = [d for d in coefficients.dims if d != "mode"]
        if not self.seasonal_cycle:
            return np.nan_to_num(self.mean_.values.ravel())
        if self.time_dim_ not in coefficients.coords:
            raise DataError(
                f"a POD with a seasonal cycle needs the coordinate {self.time_dim_!r}",
                fix=f"coefficients.assign_coords({self.time_dim_}=dates)",
            )
        time = coefficients[self.time_dim_]
        design = calendar_design(time, self.seasonal_cycle, mean=self._uses_constant)
        values = np.einsum("...k,kc->...c", design, self._coefficients)
        # Dimensions of the coefficients that time lacks (samples) get length one.
        shape = [coefficients.sizes[d] if d in time.dims else 1 for d in outer]
        order = [time.dims.index(d) for d in outer if d in time.dims]
        return values.transpose(*order, values.ndim - 1).reshape(*shape, -1)

    def _mode_indices(self, coefficients: xr.DataArray) -> np.ndarray:
        """Return the indices of the modes in the coordinate `mode`, without it the first ones."""
        if "mode" not in coefficients.coords:
            return np.arange(coefficients.sizes["mode"])
        numbers = coefficients["mode"].values
        if not np.isin(numbers, self.modes_["mode"].values).all():
            raise DataError(
                f"the coordinate 'mode' has the values {', '.join(map(str, numbers))}",
                allowed=f"1 to {self.rank_}",
                fix="coefficients.drop_vars('mode')",
            )
        return numbers.astype(np.int64) - 1

    def _cells(self) -> np.ndarray:
        return np.flatnonzero(self.mask_.values.ravel())

    def _patterns(self) -> np.ndarray:
        return self.modes_.values.reshape(self.rank_, -1)[:, self._cells()].T

    def _units(self) -> dict[str, Any]:
        return {"units": self.attrs_["units"]} if "units" in self.attrs_ else {}


def _parameter_names() -> list[str]:
    return [name for name in inspect.signature(POD.__init__).parameters if name != "self"]
