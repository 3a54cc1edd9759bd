"""Filling of short gaps in time by linear interpolation."""

from __future__ import annotations

from itertools import pairwise
from logging import Logger

import numpy as np
import xarray as xr

from scitoolkit.core.log import get_logger
from scitoolkit.io.calendar_steps import times_after
from scitoolkit.io.coordinates import time_dim
from scitoolkit.io.time_axis import read_time_axis

log: Logger = get_logger(__name__)


def filled(field: xr.DataArray, longest: int) -> xr.DataArray:
    """Return a field whose gaps of at most `longest` steps are interpolated, cell by cell.

    A gap is a step that the file does not have, or a missing value between two values. Longer gaps
    stay as they are.

    Example:
        >>> u = xr.DataArray([0.0, 1.0, np.nan, 3.0, 6.0], dims="time",
        ...                  coords={"time": [0.0, 1.0, 2.0, 3.0, 6.0]}, name="u")
        >>> filled(u, 2).values.tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    time = time_dim(field)
    inserted = _missing_times(field, time, longest)
    if inserted:
        every = np.concatenate([field[time].values, *inserted])
        field = field.reindex({time: np.sort(every)})
    values = field.transpose(time, ...).values.astype(np.float64)
    flat = values.reshape(len(values), -1)
    count = sum(_fill(flat[:, cell], longest) for cell in range(flat.shape[1]))
    if count:
        log.info("%s: %d missing values interpolated in time", field.name, count)
    return field.transpose(time, ...).copy(data=values)


def _missing_times(field: xr.DataArray, time: str, longest: int) -> list[np.ndarray]:
    """Return the times of each gap of at most `longest` whole steps."""
    if time not in field.coords:
        return []
    times, inserted = field[time].values, []
    for index in read_time_axis(field).breakpoint_indices:
        if index < 2:
            continue
        ahead = times_after(times[:index], longest + 1)
        step = ahead[1] - ahead[0]
        close = np.flatnonzero(abs(ahead - times[index]) <= abs(step) * 0.01)
        if len(close) and close[0] > 0:
            inserted.append(ahead[: close[0]])
    return inserted


def _fill(values: np.ndarray, longest: int) -> int:
    """Interpolate short runs of NaN between values (T,) in place; return their number."""
    present = np.flatnonzero(np.isfinite(values))
    count = 0
    for left, right in pairwise(present):
        if 1 < right - left <= longest + 1:
            share = np.arange(1, right - left) / (right - left)
            values[left + 1 : right] = values[left] + share * (values[right] - values[left])
            count += int(right - left - 1)
    return count
