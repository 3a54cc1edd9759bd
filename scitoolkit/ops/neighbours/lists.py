"""The compiled neighbour list, called with numpy arrays."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError
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
    """Return whether the list can be compiled here; log once why not."""
    try:
        _function()
    except BackendError as error:
        warn_once("neighbour_list", str(error), "vesin makes neighbour lists")
        return False
    return True


def neighbour_list(
    positions: Array, types: Array, num_types: int, cell: Array, pbc: Array, cutoff: float,
    *, threads: int = 1,
) -> tuple[Array, Array, Array, Array, tuple[float, int, int]]:  # fmt: skip
    """Return all ordered pairs closer than `cutoff`, images included.

    Args:
        positions: (N, 3) float64, Å, anywhere: atoms outside the cell are wrapped on the way.
        types: (N,) int64. num_types: edges of a centre are grouped by these.
        cell: (3, 3), rows are lattice vectors; must be regular, also along directions that are
            not periodic.
        pbc: (3,) bool.
        cutoff: Å.
        threads: of OpenMP; the list is the same for any number.

    Returns:
        centre (E,), neighbour (E,), shift (E, 3) in Å such that the edge vector is
        positions[neighbour] + shift - positions[centre], segments (N * num_types + 1,), and the
        smallest distance with its two atoms.

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
    inverse = np.ascontiguousarray(np.linalg.inv(cell))
    height = np.ascontiguousarray(1.0 / np.linalg.norm(inverse, axis=0))
    periodic = np.asarray(pbc, dtype=np.int64)
    segments = np.empty(atoms * num_types + 1, dtype=np.int64)
    closest, radius = np.empty(3), np.array([cutoff], dtype=np.float64)
    density = atoms / abs(np.linalg.det(cell)) if periodic.all() else 0.15
    capacity = int(atoms * (5.0 * density * cutoff**3 + 8)) + 64
    while True:
        centre, neighbour = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        shift = np.empty((capacity, 3))
        edges = _function()(
            ctypes.c_int64(atoms), ctypes.c_int64(num_types),
            *(a.ctypes.data_as(ctypes.c_void_p) for a in
              (positions, kinds, cell, inverse, height, periodic, radius)),
            ctypes.c_int64(capacity),
            *(a.ctypes.data_as(ctypes.c_void_p) for a in
              (centre, neighbour, shift, segments, closest)),
            ctypes.c_int64(threads),
        )  # fmt: skip
        if edges <= capacity:
            break
        capacity = edges
    nearest = (float(closest[0]), int(closest[1]), int(closest[2])) if edges else (np.inf, 0, 0)
    return centre[:edges], neighbour[:edges], shift[:edges], segments, nearest
