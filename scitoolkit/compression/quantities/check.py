"""Evaluation of a derived quantity, its tolerance, and the points where it is violated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.compression.quantities.stencil import DerivativeStencil
from scitoolkit.compression.quantities.text import QuantityText
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import compiled, derivative_of, sympy, unknowns
from scitoolkit.core.suggest import nearest_name

# Fraction of the tolerance reserved for readers that compute the quantity in another order.
GUARD = 1e-6
Fields = Mapping[str, np.ndarray]
Points = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class QuantityGrid:
    """Common grid of variables.

    Args:
        shape: of every variable.
        dims: names of the dims.
        coordinates: dim -> positions; 0, 1, 2, ... by default.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    coordinates: Mapping[str, np.ndarray]


class Quantity:
    """Derived quantity on a grid, with its values computed from the original arrays.

    Args:
        text: expression, region and bound.
        grid: of the variables.
        original: variable -> float64 array, NaN where a value is missing.

    Attributes:
        fields: the variables that it depends on.
        value: computed from the original arrays, in the region.
        original_points: `value` before averaging.
        tolerance: largest allowed change, a scalar or one per point of `value`.
    """

    def __init__(self, text: QuantityText, grid: QuantityGrid, original: Fields) -> None:
        self.text, self.grid = text, grid
        expression, self.averaged = text.parsed(list(original), grid.dims)
        self.arguments: dict[str, tuple[str, DerivativeStencil]] = {}
        place: dict[sympy.Symbol, str] = {}
        # Sorted, because sets of symbols are ordered by a hash that differs between processes, and
        # sums in another order round differently.
        for node in sorted(unknowns(expression), key=str):
            name, orders = derivative_of(node, grid.dims)
            symbol = sympy.Dummy(f"a{len(place)}", real=True)
            place[symbol] = key = str(symbol)
            expression = expression.xreplace({node: symbol})
            stencil = DerivativeStencil(grid.shape, grid.dims, orders, grid.coordinates)
            self.arguments[key] = name, stencil
        self.fields: list[str] = sorted({name for name, _ in self.arguments.values()})
        self._program = compiled(expression, place)
        self.region: tuple[slice, ...] = _region(text, grid)
        self._axes = _axes(self.averaged, grid.dims)
        self.value: np.ndarray = self.evaluate(original)
        self.original_points: np.ndarray = self.of_arguments(self.arguments_of(original))
        with np.errstate(invalid="ignore"):
            finite = self.value[np.isfinite(self.value)]
        self.tolerance: float | np.ndarray = text.value
        if text.mode == "rel":
            self.tolerance = text.value * float(np.ptp(finite)) if finite.size else 0.0
        elif text.mode == "pw_rel":
            self.tolerance = text.value * np.where(np.isfinite(self.value), abs(self.value), 0.0)

    @property
    def local(self) -> bool:
        """Whether all points are bounded alike, so that a block is representative of the arrays."""
        return self._axes is None and not self.text.region

    def evaluate(self, fields: Fields) -> np.ndarray:
        """Return the quantity in its region; means exclude missing points."""
        arguments = self.arguments_of(fields)
        values = self.of_arguments(arguments)
        if self._axes is None:
            return values
        missing = np.any([np.isnan(a) for a in arguments.values()], 0)
        count = (~missing).sum(self._axes)
        with np.errstate(all="ignore"):
            total = np.where(missing, 0.0, values).sum(self._axes)
            return np.asarray(np.where(count > 0, total / count, np.nan))

    def arguments_of(self, fields: Fields) -> dict[str, np.ndarray]:
        """Return the variables and derivatives of the expression, in the region."""
        return {key: d(fields[f])[self.region] for key, (f, d) in self.arguments.items()}

    def of_arguments(self, arguments: Mapping[str, np.ndarray], at: Points = ()) -> np.ndarray:
        """Return the expression before averaging, in the region or at points of the grid."""
        coordinates = {}
        for axis, (dim, n) in enumerate(zip(self.grid.dims, self.grid.shape, strict=True)):
            x = np.asarray(self.grid.coordinates.get(dim, np.arange(n)), np.float64)
            spread = [-1 if i == axis else 1 for i in range(len(self.grid.dims))]
            coordinates[dim] = x[at[axis]] if at else x[self.region[axis]].reshape(spread)
        with np.errstate(all="ignore"):
            return np.asarray(self._program(arguments, coordinates), np.float64)

    def broken(self, value: np.ndarray) -> np.ndarray:
        """Return True where a decoded value of the quantity violates the tolerance."""
        with np.errstate(invalid="ignore"):
            inside = np.abs(value - self.value) <= np.asarray(self.tolerance) * (1 - GUARD)
        same = (value == self.value) | (np.isnan(value) & np.isnan(self.value))
        return ~(inside | same)

    def largest_error(self, value: np.ndarray) -> tuple[float, bool]:
        """Return the largest finite error, and whether the bound holds (without the guard)."""
        with np.errstate(invalid="ignore"):
            error = np.abs(value - self.value)
        same = (value == self.value) | (np.isnan(value) & np.isnan(self.value))
        error = np.where(same, 0.0, error)
        holds = bool((same | (error <= self.tolerance)).all())
        finite = error[np.isfinite(error)]
        return float(finite.max()) if finite.size else 0.0, holds

    def spread(self, excess: np.ndarray) -> np.ndarray:
        """Broadcast a number per mean to all points of the region that the mean averages."""
        if self._axes is None:
            return excess
        shape = [len(range(n)[s]) for n, s in zip(self.grid.shape, self.region, strict=True)]
        by_point = np.broadcast_to(excess, self.value.shape)
        return np.broadcast_to(np.expand_dims(by_point, self._axes), shape)

    @property
    def num_averaged(self) -> int:
        """Number of points per mean; 1 without averaging."""
        if self._axes is None:
            return 1
        counts = [len(range(n)[s]) for n, s in zip(self.grid.shape, self.region, strict=True)]
        return int(np.prod([counts[axis] for axis in self._axes]))

    def points(self, chosen: np.ndarray) -> Points:
        """Return the grid indices of the points marked in a mask of the region."""
        begins = [range(n)[s].start for n, s in zip(self.grid.shape, self.region, strict=True)]
        return tuple(i + b for i, b in zip(np.nonzero(chosen), begins, strict=True))


def grid_of(
    shapes: Mapping[str, tuple[int, ...]],
    dims: Sequence[str] | None,
    coordinates: Mapping[str, np.ndarray] | None,
) -> QuantityGrid:
    """Return the common grid of variables.

    Args:
        shapes: variable -> shape.
        dims: names of the dims; (..., t, z, y, x) by default.
        coordinates: dim -> positions.

    Raises:
        ConfigError: shapes differ, or names do not match the dims.
    """
    distinct = sorted(set(shapes.values()))
    if len(distinct) != 1:
        described = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ConfigError(f"quantities of variables of different shape: {described}")
    (shape,) = distinct
    if not shape:
        raise ConfigError("quantities of single numbers", allowed="arrays")
    if dims is None:
        dims = [*(f"d{i}" for i in range(len(shape) - 4)), *"tzyx"][-len(shape) :]
    if len(dims) != len(shape) or len(set(dims)) != len(shape):
        raise ConfigError(f"dims {', '.join(dims)}", allowed=f"one name for each of {len(shape)}")
    arrays = {k: np.asarray(v) for k, v in (coordinates or {}).items()}
    if foreign := sorted(set(arrays) - set(dims)):
        raise ConfigError(
            f"coordinate {foreign[0]!r}",
            allowed=", ".join(dims),
            fix=nearest_name(foreign[0], list(dims)) or "",
        )
    return QuantityGrid(shape, tuple(dims), arrays)


def _region(text: QuantityText, grid: QuantityGrid) -> tuple[slice, ...]:
    for dim, span in text.region.items():
        if dim not in grid.dims:
            raise ConfigError(
                f"region of quantity {text.text!r} names {dim!r}", allowed=", ".join(grid.dims)
            )
        n = grid.shape[grid.dims.index(dim)]
        ends = [abs(i) for i in (span.start, span.stop) if i is not None]
        if not len(range(n)[span]) or max(ends, default=0) > n:
            raise ConfigError(
                f"region of quantity {text.text!r}: {dim} has {n} points", allowed=f"0:{n}"
            )
    return tuple(
        slice(*text.region.get(dim, slice(None)).indices(n))
        for dim, n in zip(grid.dims, grid.shape, strict=True)
    )


def _axes(averaged: tuple[str, ...] | None, dims: Sequence[str]) -> tuple[int, ...] | None:
    return None if averaged is None else tuple(sorted(dims.index(dim) for dim in averaged))


def compared(
    text: QuantityText, grid: QuantityGrid, original: Fields, decoded: Fields
) -> dict[str, float | bool | str]:
    """Return the error record of a quantity: name, max_error, allowed, psnr, holds, problem.

    With pw_rel, errors are relative to the quantity's values. The PSNR is reported as infinite.

    Args:
        text: expression, region and bound.
        grid: of the variables.
        original: variable -> float64 array, NaN where a value is missing.
        decoded: variable -> decoded array, likewise.
    """
    quantity = Quantity(text, grid, original)
    value = quantity.evaluate(decoded)
    largest, holds = quantity.largest_error(value)
    allowed = float(np.max(quantity.tolerance, initial=0.0))
    if text.mode == "pw_rel":
        with np.errstate(all="ignore"):
            share = np.abs(value - quantity.value) / np.abs(quantity.value)
        share = np.where(value == quantity.value, 0.0, share)
        largest, allowed = float(np.max(share[np.isfinite(share)], initial=0.0)), text.value
    return {
        "name": text.text,
        "max_error": largest,
        "allowed": allowed,
        "psnr": math.inf,
        "holds": holds,
        "problem": "",
    }
