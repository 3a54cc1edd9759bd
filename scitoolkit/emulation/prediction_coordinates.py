"""Coordinates of predictions: those of the grid and the times, and latitudes over two dims."""

from __future__ import annotations

import numpy as np
import xarray as xr

from scitoolkit.emulation.data import Data
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.campaign.headers import StoredArray
from scitoolkit.io.facts import is_dates
from scitoolkit.io.fields import open_fields
from scitoolkit.io.roles import role_by_metadata


def coordinates_of(layout: Layout, data: Data, times: np.ndarray) -> xr.Dataset:
    """Return the coordinates of a prediction, encoded as those of the file that it starts from.

    Args:
        layout: of the emulator.
        data: the file.
        times: of the prediction.
    """
    dim = layout.sample_dim
    of_grid = {d: data.dataset[d] for d in layout.grid if d in data.dataset.coords}
    coords = {d: (d, c.values, dict(c.attrs)) for d, c in of_grid.items()}
    out = xr.Dataset(coords={dim: (dim, times), **coords, **_curvilinear(layout, data)})
    if dim in data.dataset.coords:
        original = data.dataset[dim]
        out[dim].attrs.update(original.attrs)
        encoding = {k: v for k, v in original.encoding.items() if k in ("units", "calendar")}
        # Uneven times, and those after a single one, are no whole numbers of the file's unit.
        fractions = layout.step_range is not None or len(data.times) == 1
        if fractions and is_dates(times):
            encoding["dtype"] = np.dtype(np.float64)
        out[dim].encoding.update(encoding)
    return out


def _curvilinear(layout: Layout, data: Data) -> dict[str, xr.Variable]:
    """Return latitudes and longitudes over two dims of the grid, as the first file has them.

    Those stored for every time, as by WRF, are returned where they do not change.
    """
    sizes = {d: data.dataset.sizes[d] for d in layout.grid if d not in data.dataset.coords}
    header = data.campaign.segments.header(0)
    names = [n for n, stored in header.variables.items() if _is_place(stored, sizes)]
    out: dict[str, xr.Variable] = {}
    if not names:
        return out
    with open_fields(header.path) as dataset:
        for name in names:
            if name not in dataset.variables:
                continue
            places = dataset[name].variable
            first = places.isel({d: 0 for d in places.dims if d not in sizes})
            if places.dims == first.dims or (places == first).all():
                out[name] = xr.Variable(first.dims, first.values, first.attrs)
    return out


def _is_place(stored: StoredArray, sizes: dict[str, int]) -> bool:
    """Return whether an array holds latitudes or longitudes along two dims of the grid."""
    along = [d for d in stored.dims if d in sizes]
    others = len(stored.dims) - len(along)
    return (
        len(along) > 1
        and (others == 0 or (others == 1 and stored.dims[0] not in sizes))
        and role_by_metadata(stored.attrs) in ("latitude", "longitude")
        and stored.shape[others:] == tuple(sizes[d] for d in along)
    )
