"""Nodes that hold no values: filled for the network, left out of losses and scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.ndimage import distance_transform_edt

from scitoolkit.superresolution.grid import Grid, oriented
from scitoolkit.superresolution.simulations import Simulations

Array = np.ndarray


def valid_nodes(simulations: Simulations, grid: Grid) -> Array | None:
    """Return which nodes hold values, bool, one long in time; None where all do.

    Args:
        simulations: opened with `data.mask`, or without.
        grid: of one of them, whose order and directions the result has.
    """
    mask = simulations.opened.found.mask
    if mask is None:
        return None
    dataset, time = simulations.dataset(0), simulations.time
    nodes = {dim: dataset[dim].values for dim in mask.dims}
    valid = xr.DataArray(mask.valid, nodes, mask.dims).expand_dims({time: [0]})
    return oriented(valid, grid).values


def cut(valid: Array, starts: Sequence[int], size: Sequence[int]) -> Array:
    """Return a crop of valid nodes, *size, wrapped around the dims that end before the crop does.

    Args:
        valid: from `valid_nodes`.
        starts: the crop's first node in each dim.
        size: its nodes.

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
    """Return values (..., *n) that in other nodes are those of the nearest valid one.

    Args:
        values: anything where `valid` is False.
        valid: bool, *n or what broadcasts to it; at least one is True.

    Example:
        >>> filled(np.array([[1.0, np.nan, np.nan, 4.0]]), np.array([True, False, False, True]))
        array([[1., 1., 4., 4.]])
    """
    valid = np.broadcast_to(valid, values.shape[-valid.ndim :])
    if valid.all():
        return values
    nearest = distance_transform_edt(~valid, return_distances=False, return_indices=True)
    return values[(..., *nearest)]
