"""Masked nodes: filled for the network, excluded from losses and scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.ndimage import distance_transform_edt

from scitoolkit.superresolution.grid import RectilinearGrid, oriented
from scitoolkit.superresolution.simulations import Simulations

Array = np.ndarray


def valid_nodes(simulations: Simulations, grid: RectilinearGrid) -> Array | None:
    """Return which nodes hold values, bool of length 1 in time; None if all do.

    Args:
        simulations: opened with or without `data.mask`.
        grid: of one of them; the result has its order of dims and directions.
    """
    mask = simulations.opened.found.mask
    if mask is None:
        return None
    dataset, time = simulations.dataset(0), simulations.time
    nodes = {dim: dataset[dim].values for dim in mask.dims}
    valid = xr.DataArray(mask.valid, nodes, mask.dims).expand_dims({time: [0]})
    return oriented(valid, grid).values


def cut(valid: Array, starts: Sequence[int], size: Sequence[int]) -> Array:
    """Return a crop of valid nodes, *size, wrapped around dims that end before the crop.

    Args:
        valid: from `valid_nodes`.
        starts: first node of the crop in each dim.
        size: number of nodes of the crop in each dim.

    Example:
        >>> cut(np.array([[True, False, False]]), [5, 2], [2, 2]).tolist()
        [[False, True], [False, True]]
    """
    places = [
        np.arange(start, start + count) % length
        for start, count, length in zip(starts, size, valid.shape, strict=True)
    ]
    return valid[np.ix_(*places)]


def filled(values: Array, valid: Array) -> Array:
    """Fill invalid nodes with the nearest valid value.

    Args:
        values: (..., *n); arbitrary in invalid nodes.
        valid: bool that broadcasts to *n, True at least once.

    Example:
        >>> filled(np.array([[1.0, np.nan, np.nan, 4.0]]), np.array([True, False, False, True]))
        array([[1., 1., 4., 4.]])
    """
    valid = np.broadcast_to(valid, values.shape[-valid.ndim :])
    if valid.all():
        return values
    # In node numbers, not in coordinates: a fill is no prediction, and only valid nodes are scored.
    nearest = distance_transform_edt(~valid, return_distances=False, return_indices=True)
    return values[(..., *nearest)]
