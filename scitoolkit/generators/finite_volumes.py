"""Finite volumes on equal cells: limited linear reconstruction, local Lax-Friedrichs fluxes.

The semi-discrete central scheme of Kurganov and Tadmor 2000 (J. Comput. Phys. 160, 241), which
needs the largest speed of a wave only, advanced by the third-order strong-stability-preserving
Runge-Kutta steps of Shu and Osher 1988 (J. Comput. Phys. 77, 439).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.generators.conserved_system import ConservedSystem

STEEPEST = 1.5
"""Factor of one-sided slopes in the limiter, from 1 (most diffusive) to 2."""
COURANT = 0.5
"""Largest sum over the dims of speed times step over cell that keeps cells between neighbours."""
_MODES = {"periodic": "wrap", "open": "edge"}


@dataclass(frozen=True)
class VolumeBox:
    """Equal cells of a box.

    Attributes:
        dims: names.
        cells: along each dim.
        length: along each dim.
        edges: {dim: `open`, where states continue unchanged, or the signs (fields) of their
            images}; other dims are periodic.
    """

    dims: tuple[str, ...]
    cells: int
    length: float
    edges: Mapping[str, Any]

    @property
    def width(self) -> float:
        """Of a cell."""
        return self.length / self.cells

    def centres(self) -> np.ndarray:
        """Return the coordinates of the centres of the cells along a dim."""
        return self.width * (np.arange(self.cells) + 0.5)

    def places(self, faces: int | None = None) -> dict[str, np.ndarray]:
        """Return coordinates of cells, or of the faces along an axis, that broadcast to them."""
        made = {}
        for axis, dim in enumerate(self.dims):
            own = self.width * np.arange(self.cells + 1) if axis == faces else self.centres()
            made[dim] = self.along(axis, own)
        return made

    def along(self, axis: int, values: np.ndarray) -> np.ndarray:
        """Return values along an axis, of a shape that broadcasts to cells."""
        shape = [1] * len(self.dims)
        shape[axis] = -1
        return values.reshape(shape)

    def padded(self, state: np.ndarray, axis: int, count: int) -> np.ndarray:
        """Return states (fields, cells...) with cells beyond both ends of an axis."""
        edge = self.edges.get(self.dims[axis], "periodic")
        width = [(0, 0)] * state.ndim
        width[1 + axis] = (count, count)
        if isinstance(edge, str):
            return np.pad(state, width, mode=_MODES[edge])  # type: ignore[call-overload]
        made = np.moveaxis(np.pad(state, width, mode="symmetric"), 1 + axis, 1)
        signs = np.asarray(edge).reshape(-1, *[1] * (state.ndim - 1))
        made[:, :count] *= signs
        made[:, -count:] *= signs
        return np.moveaxis(made, 1, 1 + axis)

    def slopes(self, padded: np.ndarray) -> np.ndarray:
        """Return limited differences across cells along axis 1, of all but the first and last."""
        steps = np.diff(padded, axis=1)
        left, right = steps[:, :-1], steps[:, 1:]
        least = np.minimum(STEEPEST * np.minimum(abs(left), abs(right)), abs(left + right) / 2)
        return np.where(left * right > 0, np.sign(left) * least, 0.0)

    def coarsened(self, state: np.ndarray, ratio: int) -> np.ndarray:
        """Return averages (..., cells...) over cells of `ratio` times the width."""
        for axis in range(-len(self.dims), 0):
            size = list(state.shape)
            size[axis : axis + 1 or None] = [size[axis] // ratio, ratio]
            state = state.reshape(size).mean(axis)
        return state


def stepper(
    system: ConservedSystem, box: VolumeBox, time_step: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that advances states (fields, cells...) by one time step.

    It returns NaN where `COURANT` is exceeded, or a speed is not finite.
    """
    axes, width = range(len(box.dims)), box.width
    faces, cells = [box.places(axis) for axis in axes], box.places()

    def speeds(padded: np.ndarray, axis: int) -> np.ndarray:
        """Return the speeds at the faces, of states with one more cell at each end."""
        centres = box.along(axis, width * (np.arange(-1, box.cells + 1) + 0.5))
        places = {**cells, box.dims[axis]: centres}
        own = np.moveaxis(system.speed(axis, padded, places), axis, 0)
        return np.asarray(np.maximum(own[:-1], own[1:]))

    def rate(state: np.ndarray) -> tuple[np.ndarray, float]:
        total, courant = system.source(state, cells), 0.0
        for axis in axes:
            padded = box.padded(state, axis, 2)
            moved = np.moveaxis(padded, 1 + axis, 1)
            inner = moved[:, 1:-1]
            half = box.slopes(moved) / 2
            left, right = (
                np.moveaxis(v, 1, 1 + axis) for v in ((inner + half)[:, :-1], (inner - half)[:, 1:])
            )
            largest = speeds(np.moveaxis(inner, 1, 1 + axis), axis)
            courant += float(largest.max()) * time_step / width
            both = sum(system.flux(axis, side, faces[axis]) for side in (left, right))
            jump = np.moveaxis(largest, 0, axis) * (right - left)
            total -= np.diff((both - jump) / 2, axis=1 + axis) / width
        return total + _second(system, box, state), courant

    def step(state: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            first, courant = rate(state)
            if not courant <= COURANT:
                return np.full(state.shape, np.nan)
            one = state + time_step * first
            two = 0.75 * state + 0.25 * (one + time_step * rate(one)[0])
            return np.asarray(state / 3 + 2 / 3 * (two + time_step * rate(two)[0]))

    return step


def _second(system: ConservedSystem, box: VolumeBox, state: np.ndarray) -> np.ndarray:
    """Return the second derivatives of a rate by central differences."""
    total = np.zeros(state.shape)
    if not any(law.second for law in system.laws.values()):
        return total
    padded = state
    for axis in range(len(box.dims)):
        padded = box.padded(padded, axis, 1)
    at = dict(zip(system.laws, padded, strict=True))
    for own, law in zip(total, system.laws.values(), strict=True):
        for (first, other), program in law.second:
            values = np.broadcast_to(program(at, {}), padded.shape[1:])
            inner: Sequence[slice] = [slice(1, -1)] * len(box.dims)
            if first == other:
                part = np.diff(values, 2, first)
                index = list(inner)
                index[first] = slice(None)
            else:
                part = values
                for axis in (first, other):
                    ends = (np.take(part, range(n, box.cells + n), axis) for n in (2, 0))
                    part = np.subtract(*ends) / 2
                index = list(inner)
                index[first] = index[other] = slice(None)
            own += part[tuple(index)] / box.width**2
    return total
