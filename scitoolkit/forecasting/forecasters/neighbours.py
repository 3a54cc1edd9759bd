"""Neighbourhoods on a periodic grid."""

from __future__ import annotations

from itertools import product

import numpy as np

from scitoolkit.forecasting.forecasters.base import Setting
from scitoolkit.forecasting.windows import Array


def neighbours(values: Array, shape: tuple[int, ...], radius: int) -> Array:
    """Return the values (..., cell, neighbour) in a box around every cell of a periodic grid.

    Dims too short for the box contribute no neighbours.

    Args:
        values: (..., cell).
        shape: of the grid.
        radius: of the box, in cells.

    Example:
        >>> neighbours(np.arange(4.0), (4,), 1)[0]
        array([3., 0., 1.])
    """
    grid = values.reshape(*values.shape[:-1], *shape)
    reach = [range(-radius, radius + 1) if n > 2 * radius else range(1) for n in shape]
    axes = tuple(range(-len(shape), 0))
    shifted = [
        np.roll(grid, [-s for s in shifts], axis=axes).reshape(values.shape)
        for shifts in product(*reach)
    ]
    return np.stack(shifted, axis=-1)


def num_neighbours(shape: tuple[int, ...], radius: int) -> int:
    """Return the number of cells in the box, including its centre."""
    return int(np.prod([2 * radius + 1 if n > 2 * radius else 1 for n in shape]))


def no_grid(setting: Setting) -> str:
    """Return the reason why cells have no neighbours, "" if they have."""
    if setting.shape is None:
        return "masked cells have no neighbours"
    if max(setting.shape) < 5:
        return "the grid is too small for a stencil"
    return ""
