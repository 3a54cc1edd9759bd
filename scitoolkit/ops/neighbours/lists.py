"""Neighbour list of numpy arrays, computed by a compiled kernel."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.ops.codegen import load_library, warn_once
from scitoolkit.ops.codegen.compile import read

Array = np.ndarray[Any, Any]


@functools.cache
def _function() -> Any:
    function = load_library(read(__file__, "neighbour_list.c")).neighbour_list
    function.restype = ctypes.c_int64
    return function


@functools.cache
def available() -> bool:
    """Return whether the kernel can be compiled; if not, log the reason once."""
    try:
        _function()
    except BackendError as error:
        warn_once("neighbour_list", str(error), "vesin computes neighbour lists")
        return False
    return True


def neighbour_list(
    positions: Array,
    types: Array,
    num_types: int,
    cell: Array,
    pbc: Array,
    cutoff: float,
    *,
    threads: int = 1,
) -> tuple[Array, Array, Array, Array, tuple[float, int, int]]:
    """Return all ordered pairs of atoms closer than `cutoff`, with periodic images.

    Args:
        positions: (N, 3) float64, Å; atoms outside of the cell are wrapped.
        types: (N,) int64, from 0 to num_types - 1.
        num_types: number of types, by which the edges of a centre are grouped.
        cell: (3, 3) Å, lattice vectors as rows; must be regular, also along non-periodic
            directions.
        pbc: (3,) bool, or one bool for all directions.
        cutoff: Å.
        threads: number of OpenMP threads, which does not change the list.

    Returns:
        centre (E,), neighbour (E,), shift (E, 3) in Å such that the edge vector is
        positions[neighbour] + shift - positions[centre], segments (N * num_types + 1,) with the
        first edge of each centre and neighbour type, and the smallest distance in Å with its two
        atoms.

    Raises:
        ConfigError: a cutoff that is not positive and finite.
        DataError: shapes that do not match, a type out of range, positions that are not finite, or
            a singular cell.

    Example:
        >>> if available():
        ...     found = neighbour_list(np.zeros((1, 3)), np.zeros(1, int), 1, np.eye(3),
        ...                            np.ones(3, bool), 1.1)
        ...     assert len(found[0]) == 6
    """
    atoms = len(positions)
    positions = np.ascontiguousarray(positions, dtype=np.float64)
    kinds = np.ascontiguousarray(types, dtype=np.int64)
    cell = np.ascontiguousarray(cell, dtype=np.float64)
    _check(positions, kinds, num_types, cell, cutoff)
    inverse = np.ascontiguousarray(np.linalg.inv(cell))
    # Distances of opposite faces, not lengths of edges: a skewed cell needs more images.
    height = np.ascontiguousarray(1.0 / np.linalg.norm(inverse, axis=0))
    periodic = np.ascontiguousarray(np.broadcast_to(pbc, 3), dtype=np.int64)
    segments = np.empty(atoms * num_types + 1, dtype=np.int64)
    closest, radius = np.empty(3), np.array([cutoff], dtype=np.float64)
    # Without periods the cell may be of any size; 0.15 atoms per cubic Å is about that of a dense
    # solid. A wrong guess costs a second call, as the kernel counts beyond its capacity.
    density = atoms / abs(np.linalg.det(cell)) if periodic.all() else 0.15
    capacity = int(atoms * (5.0 * density * cutoff**3 + 8)) + 64
    while True:
        centre, neighbour = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        shift = np.empty((capacity, 3))
        edges = _function()(
            ctypes.c_int64(atoms),
            ctypes.c_int64(num_types),
            *(
                a.ctypes.data_as(ctypes.c_void_p)
                for a in (positions, kinds, cell, inverse, height, periodic, radius)
            ),
            ctypes.c_int64(capacity),
            *(
                a.ctypes.data_as(ctypes.c_void_p)
                for a in (centre, neighbour, shift, segments, closest)
            ),
            ctypes.c_int64(threads),
        )
        if edges <= capacity:
            break
        capacity = edges
    nearest = (float(closest[0]), int(closest[1]), int(closest[2])) if edges else (np.inf, 0, 0)
    return centre[:edges], neighbour[:edges], shift[:edges], segments, nearest


def _check(positions: Array, types: Array, num_types: int, cell: Array, cutoff: float) -> None:
    """Check the arguments of the C function, which would read or write out of bounds."""
    if not 0 < cutoff < np.inf:
        raise ConfigError(f"cutoff={cutoff}", allowed="a positive number (Å)")
    for name, array, shape in (
        ("positions", positions, (len(positions), 3)),
        ("types", types, (len(positions),)),
        ("cell", cell, (3, 3)),
    ):
        if array.shape != shape:
            raise DataError(f"expected {name} of shape {shape}, got {array.shape}")
    if not np.isfinite(positions).all():
        raise DataError(
            f"position of atom {np.argwhere(~np.isfinite(positions))[0, 0]} is not finite"
        )
    if not (np.isfinite(cell).all() and np.linalg.det(cell)):
        raise DataError(f"cell {cell.tolist()}", allowed="three independent lattice vectors")
    if len(types) and not 0 <= types.min() <= types.max() < num_types:
        raise DataError(
            f"types from {types.min()} to {types.max()}", allowed=f"0 to {num_types - 1}"
        )
