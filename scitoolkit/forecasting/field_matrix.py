"""Block-wise access to a gridded field as a matrix (time, cell).

At most one block of the field is in memory, so that files larger than memory, dask arrays and
in-memory arrays are treated alike. Cells are the flattened spatial dimensions in the order of the
field; dimensions are identified by name, never by position.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.units import parse_bytes as parse_bytes
from scitoolkit.io import coordinates
from scitoolkit.io.time_axis import decimal_years


def find_time_dim(da: xr.DataArray, time_dim: Hashable | None = None) -> Hashable:
    """Return the name of the time dimension of a field.

    Args:
        da: the field.
        time_dim: its name, if known; otherwise it is the dimension called `time`, or the one whose
            coordinate has dates or CF attributes of time.

    Raises:
        DataError: no such dimension, or several.

    Example:
        >>> find_time_dim(xr.DataArray(np.zeros((2, 3)), dims=("x", "time")))
        'time'
    """
    if time_dim is None:
        return coordinates.time_dim(da)
    coordinates.require_dims(da, [str(time_dim)])
    return time_dim


def find_latitude(da: xr.DataArray, space_dims: tuple[Hashable, ...]) -> xr.DataArray | None:
    """Return the latitude coordinate (degrees) over the space dimensions, or None.

    It is identified by its CF `standard_name`, its units (`degrees_north`) or common names, and may
    be one-dimensional or curvilinear.
    """
    off_grid = [
        name
        for name, coord in da.coords.items()
        if not (coord.ndim and set(coord.dims) <= set(space_dims) and coord.dtype.kind in "iuf")
    ]
    name = coordinates.latitude_name(da.drop_vars(off_grid))
    return None if name is None else da[name]


def area_weights(latitude: xr.DataArray) -> np.ndarray:
    """Return cos(latitude), the cell area up to a constant factor; same shape, always positive.

    A row of points at the pole represents a polar cap with a radius of half a cell, whose area is
    that of a row at 1/8 of the spacing from the pole; cos(90°) = 0 would ignore it.

    Raises:
        DataError: a latitude is outside -90..90 degrees or not finite.

    Example:
        >>> area_weights(xr.DataArray([0.0, 60.0], dims="lat")).round(3)
        array([1. , 0.5])
    """
    degrees = latitude.values.astype(np.float64)
    if not (np.abs(degrees) <= 90.0 + 1e-4).all():
        raise DataError(
            "latitudes outside -90..90 degrees",
            where=_name(latitude),
            fix="area_weights=False, or a latitude coordinate in degrees",
        )
    distinct = np.unique(np.abs(degrees))
    spacing = np.radians(np.diff(distinct).max()) if distinct.size > 1 else np.radians(1.0)
    return np.maximum(np.cos(np.radians(degrees)), np.sin(spacing / 8))


def calendar_design(
    time: xr.DataArray, num_harmonics: int | None, *, mean: bool = True
) -> np.ndarray:
    """Return the regressors of mean and seasonal cycle, float64 of shape (*time.shape, k).

    The columns are 1 (with `mean`), then cos and sin of 1..num_harmonics cycles per year. The phase
    is the elapsed fraction of the date's calendar year, so that leap years, months of different
    lengths and 360-day calendars are correct.

    Args:
        time: dates (datetime64 or cftime) of any shape; without harmonics only its shape is used.
        num_harmonics: number of annual harmonics; None or 0 for none.
        mean: whether to include a constant column.

    Raises:
        DataError: `num_harmonics` is positive and `time` has no dates.

    Example:
        >>> days = xr.date_range("2001-01-01", periods=3, freq="D")
        >>> calendar_design(xr.DataArray(days, dims="time"), 1).shape
        (3, 3)
    """
    columns = [np.ones(time.shape)] if mean else []
    if num_harmonics:
        if not _holds_dates(time):
            raise DataError(
                f"a seasonal cycle needs dates, not {time.dtype}",
                where=_name(time),
                fix="open the file with xarray's decode_times=True, or seasonal_cycle=None",
            )
        angle = 2 * np.pi * (decimal_years(time.values) % 1.0)
        for order in range(1, num_harmonics + 1):
            columns += [np.cos(order * angle), np.sin(order * angle)]
    return np.stack(columns, axis=-1) if columns else np.zeros((*time.shape, 0))


@dataclass(frozen=True)
class FieldReader:
    """Reader of a field as a matrix (time, cell), one block of times at a time.

    Args:
        da: the field, in memory, lazily opened or dask, with its dimensions in any order.
        time_dim: time dimension.
        space_dims: spatial dimensions, in the order in which cells are numbered.
    """

    da: xr.DataArray
    time_dim: Hashable
    space_dims: tuple[Hashable, ...]

    @property
    def num_times(self) -> int:
        """Number of rows."""
        return int(self.da.sizes[self.time_dim])

    @property
    def num_cells(self) -> int:
        """Number of columns, including masked cells."""
        return math.prod(int(self.da.sizes[d]) for d in self.space_dims)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows start..stop, shape (stop - start, num_cells), with a floating-point dtype."""
        part = self.da.isel({self.time_dim: slice(start, stop)})
        block = part.transpose(self.time_dim, *self.space_dims).values
        if not np.issubdtype(block.dtype, np.floating) or block.dtype.itemsize < 4:
            block = block.astype(np.float64)
        return block.reshape(stop - start, self.num_cells)

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, block) over start..stop in blocks of at most `rows` rows."""
        stop = self.num_times if stop is None else stop
        for first in range(start, stop, rows):
            yield first, self.read(first, min(first + rows, stop))

    def rows_within(self, budget: int, *, copies: int = 3) -> int:
        """Return the number of rows for which `copies` of a block fit into `budget` bytes.

        It is a multiple of the storage chunk if possible, because a compressed chunk that is read
        in two parts is decompressed twice.
        """
        itemsize = max(self.da.dtype.itemsize, 4)
        rows = min(budget // (self.num_cells * itemsize * copies), self.num_times)
        chunk = self._chunk_rows()
        return int(rows // chunk * chunk if rows > chunk else rows)

    def _chunk_rows(self) -> int:
        chunks = self.da.chunksizes.get(self.time_dim) if self.da.chunks else None
        if chunks:
            return max(int(chunks[0]), 1)
        preferred = self.da.encoding.get("preferred_chunks") or {}
        return max(int(preferred.get(self.time_dim, 1)), 1)


def check_numeric(da: xr.DataArray) -> None:
    """Check that a field has real numbers.

    Raises:
        DataError: another dtype.
    """
    kinds = (np.floating, np.integer, np.bool_)
    if not any(np.issubdtype(da.dtype, kind) for kind in kinds):
        raise DataError(
            f"values of type {da.dtype}",
            where=_name(da),
            allowed="real numbers",
            fix="convert the variable first, e.g. da.astype('float32')",
        )


def _holds_dates(coord: xr.DataArray) -> bool:
    return bool(np.isfinite(decimal_years(coord.values.ravel()[:1])).all())


def _name(da: xr.DataArray) -> str:
    return str(da.name) if da.name is not None else "field"
