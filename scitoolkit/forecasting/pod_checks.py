"""Validation of the parameters, fields and coefficients of a POD."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from logging import Logger
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.field_matrix import FieldReader
from scitoolkit.forecasting.streaming_svd import CellStatistics

logger: Logger = get_logger(__name__)


def check_parameters(rank: object, seasonal_cycle: object) -> None:
    """Check rank and number of harmonics.

    Raises:
        ConfigError: an invalid rank or number of harmonics.
    """
    is_int = isinstance(rank, (int, np.integer)) and not isinstance(rank, bool) and rank >= 1
    is_share = isinstance(rank, (float, np.floating)) and 0.0 < rank < 1.0
    if not (is_int or is_share or rank == "forecast"):
        raise ConfigError(
            f"rank={rank!r}",
            allowed="a number of modes >= 1, a share of variance in (0, 1), or 'forecast'",
            fix="rank=10",
        )
    cycle: Any = seasonal_cycle
    if cycle is not None and (isinstance(cycle, bool) or not 0 <= int(cycle) <= 180):
        raise ConfigError(
            f"seasonal_cycle={cycle!r}",
            allowed="None, or a number of harmonics 0..180",
            fix="seasonal_cycle=3",
        )


def check_extents(da: xr.DataArray, time_dim: Hashable, where: str) -> None:
    """Check that a field has a spatial dimension and at least two time steps.

    Raises:
        DataError: it has not.
    """
    if da.ndim < 2:
        raise DataError(
            "no space dimension",
            where=where,
            allowed="(time, one or more dimensions)",
            fix="da.expand_dims('cell')",
        )
    if da.sizes[time_dim] < 2:
        raise DataError(
            f"{da.sizes[time_dim]} time step",
            where=where,
            allowed="two or more",
            fix="fit on more of the series",
        )


def check_design(design: np.ndarray, seasonal_cycle: int | None, where: str) -> None:
    """Check that the time steps determine the regressors (time, regressor).

    Raises:
        DataError: the design is rank-deficient.
    """
    regressors = design.shape[1]
    if regressors >= len(design) or np.linalg.matrix_rank(design) < regressors:
        raise DataError(
            f"{len(design)} time steps do not determine a mean and {seasonal_cycle or 0} harmonics",
            where=where,
            fix="fit on a longer series, or seasonal_cycle=None",
        )


def usable_cells(
    statistics: CellStatistics,
    reader: FieldReader,
    mask: xr.DataArray | None,
    space_dims: Sequence[Hashable],
    where: str,
) -> tuple[np.ndarray, int]:
    """Return the indices of the cells to decompose and the number of partly missing cells.

    Args:
        statistics: of all cells.
        reader: of the field.
        mask: (*space) True where a cell may be used; None for all cells.
        space_dims: of the field.
        where: name of the field, for messages.

    Raises:
        DataError: a mask on a different grid, no usable cell, infinite or constant values.
    """
    usable = statistics.nan_count == 0
    if mask is not None:
        usable &= _given_mask(mask, reader, space_dims, where)
    cells = np.flatnonzero(usable)
    partly = (statistics.nan_count > 0) & (statistics.nan_count < reader.num_times)
    num_partly = int(partly.sum())
    if not cells.size:
        raise DataError(
            f"all {reader.num_cells} cells are masked "
            f"({num_partly} of them are NaN at some times only)",
            where=where,
            fix="fill the gaps first, or check the mask and the fill value",
        )
    if num_partly:
        logger.warning(
            "%s: %d cells are NaN at some times only and are masked; %d are used",
            where,
            num_partly,
            cells.size,
        )
    infinite = int((~np.isfinite(statistics.scale[cells])).sum())
    if infinite:
        raise DataError(
            f"infinite or overflowing values in {infinite} cells",
            where=where,
            fix="mask them as NaN: da.where(np.isfinite(da))",
        )
    # The regression residual of a constant field is rounding error, not exactly zero.
    level = np.abs(statistics.coefficients[:, cells]).max(initial=0.0)
    rounding = (np.finfo(np.float64).eps * level) ** 2 * reader.num_times * cells.size
    rounding += 1e-24 * statistics.scale[cells].sum()
    if statistics.residual[cells].sum() <= rounding:
        raise DataError(
            "the field is constant in time and has no anomalies to decompose",
            where=where,
            fix="check the variable and the time range",
        )
    return cells, num_partly


def _given_mask(
    mask: xr.DataArray, reader: FieldReader, space_dims: Sequence[Hashable], where: str
) -> np.ndarray:
    sizes = {d: reader.da.sizes[d] for d in space_dims}
    if dict(mask.sizes) != sizes:
        raise DataError(
            f"mask of dimensions {dict(mask.sizes)}",
            where=where,
            allowed=str(sizes),
            fix="a mask on the grid of the field",
        )
    return mask.transpose(*space_dims).values.astype(bool).ravel()


def check_grid(da: xr.DataArray, time_dim: Hashable, mask: xr.DataArray, where: str) -> None:
    """Check that a field is on the grid of the fit, given by its mask (*space).

    Raises:
        DataError: different dimensions, sizes or coordinates.
    """
    expected = dict(mask.sizes)
    sizes = {d: n for d, n in da.sizes.items() if d != time_dim}
    if sizes != expected or time_dim not in da.dims:
        raise DataError(
            f"field of dimensions {dict(da.sizes)}",
            where=where,
            allowed=f"{time_dim} and {expected}, as in fit",
            fix="select or interpolate to the grid of fit",
        )
    for dim in mask.dims:
        if dim in da.coords and dim in mask.coords:
            ours, theirs = mask[dim].values, da[dim].values
            same = np.array_equal(ours, theirs) or (
                ours.dtype.kind in "fiu" and np.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            )
            if not same:
                raise DataError(
                    f"coordinate {dim!r} differs from the one in fit",
                    where=where,
                    fix=f"da.sortby({dim!r}) or da.reindex({dim}=pod.mask_[{dim!r}])",
                )


def check_coefficients(
    values: np.ndarray, da: xr.DataArray, time_dim: Hashable, mask: xr.DataArray, where: str
) -> None:
    """Check that coefficients (time, mode) are finite.

    Raises:
        DataError: missing or infinite values at unmasked cells, with the first such time.
    """
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if not bad.size:
        return
    first = int(bad[0])
    row = FieldReader(da, time_dim, mask.dims).read(first, first + 1)[0]
    count = int((~np.isfinite(row[np.flatnonzero(mask.values.ravel())])).sum())
    at = da[time_dim].values[first] if time_dim in da.coords else first
    raise DataError(
        f"{count} missing or infinite values at unmasked cells at {time_dim} {at} "
        f"({bad.size} such times)",
        where=where,
        allowed="finite values at all cells with training data",
        fix="fill the gaps, or fit on data with these gaps, which masks their cells",
    )
