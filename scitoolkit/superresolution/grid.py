"""Rectilinear grids: dims, node coordinates and periods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.superresolution.differentiate import is_even

Array = np.ndarray


@dataclass(frozen=True)
class RectilinearGrid:
    """Rectilinear grid.

    Attributes:
        dims: names, in order.
        nodes: ascending float64 coordinates of each dim.
        periods: length of each periodic dim, None for others.
        units: of each dim, as in the file.
    """

    dims: tuple[str, ...]
    nodes: tuple[Array, ...]
    periods: tuple[float | None, ...]
    units: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes of each dim."""
        return tuple(len(n) for n in self.nodes)

    def quadrature(self) -> list[Array]:
        """Return quadrature weights of the nodes of each dim, with a sum of 1."""
        return [cell_widths(n, p) for n, p in zip(self.nodes, self.periods, strict=True)]

    def with_nodes(self, nodes: Sequence[Array]) -> RectilinearGrid:
        """Return the same dims with other nodes."""
        return RectilinearGrid(self.dims, tuple(nodes), self.periods, self.units)


def cell_widths(nodes: Array, period: float | None) -> Array:
    """Return the trapezoidal weights of the nodes, scaled to a sum of 1.

    Example:
        >>> cell_widths(np.array([0.0, 1.0, 3.0]), None).round(3).tolist()
        [0.167, 0.5, 0.333]
    """
    if len(nodes) == 1:
        return np.ones(1)
    if period is not None:
        steps = np.diff(np.append(nodes, nodes[0] + period))
        return (steps + np.roll(steps, 1)) / 2 / period
    steps = np.diff(nodes)
    widths = np.zeros(len(nodes))
    widths[:-1] += steps / 2
    widths[1:] += steps / 2
    return widths / widths.sum()


def grid_of(
    dataset: xr.Dataset,
    fields: Sequence[str],
    dims: Sequence[str] | None = None,
    periodic: Mapping[str, float] | None = None,
    where: str = "dataset",
) -> RectilinearGrid:
    """Return the grid of the fields of a dataset.

    Args:
        dataset: every field has the same dims, each with a 1-D coordinate.
        fields: names of variables.
        dims: names in the order to use; by default that of the first field.
        periodic: {dim: length} of periodic dims, in addition to coordinates with an attribute
            `period`.
        where: file to name in messages.

    Raises:
        DataError: a missing variable, dims that differ, or coordinates that are not strictly
            monotonic.
        ConfigError: an unknown dim, or a period that does not match the nodes.
    """
    for name in fields:
        if name not in dataset.data_vars:
            present = [str(v) for v in dataset.data_vars]
            near = nearest_name(name, present)
            raise DataError(
                f"variable {name!r} not found",
                where=where,
                allowed=", ".join(present),
                fix=f"did you mean {near}?" if near else "",
            )
    first_dims = [str(d) for d in dataset[fields[0]].dims]
    order = list(dims) if dims is not None else first_dims
    for name in fields:
        if sorted(map(str, dataset[name].dims)) != sorted(order):
            raise DataError(
                f"dims ({', '.join(map(str, dataset[name].dims))}) do not match "
                f"({', '.join(order)})",
                where=f"{where}: variable {name}",
            )
    if not 1 <= len(order) <= 4:
        raise DataError(f"{len(order)} dims", where=where, allowed="1 to 4")
    unknown = [d for d in periodic or {} if d not in order]
    if unknown:
        raise ConfigError(f"periodic dim {unknown[0]!r} is not a dim", allowed=", ".join(order))
    nodes = [_nodes(dataset, d, where) for d in order]
    periods = [
        _period(dataset, d, n, periodic or {}, where) for d, n in zip(order, nodes, strict=True)
    ]
    units = [_units(dataset, d) for d in order]
    return RectilinearGrid(tuple(order), tuple(nodes), tuple(periods), tuple(units))


def _nodes(dataset: xr.Dataset, dim: str, where: str) -> Array:
    place = f"{where}: coordinate {dim}"
    if dim not in dataset.coords:
        raise DataError(
            "a dim without coordinates, which equations require",
            where=place,
            fix=f"dataset.assign_coords({dim}=...)",
        )
    raw = dataset[dim].values
    if raw.dtype.kind == "M":
        # Seconds from the first time: dates in nanoseconds exceed the precision of derivatives.
        raw = (raw - raw[0]) / np.timedelta64(1, "s")
    nodes = raw.astype(np.float64)
    if not np.isfinite(nodes).all():
        raise DataError("NaN among the coordinates", where=place)
    steps = np.diff(nodes)
    if len(nodes) > 1 and not (steps > 0).all() and not (steps < 0).all():
        bad = int(np.argmax(steps * np.sign(steps[0]) <= 0)) + 1
        raise DataError(
            f"not monotonic: {nodes[bad - 1]:g} then {nodes[bad]:g} at index {bad}",
            where=place,
            allowed="strictly ascending or descending",
        )
    return nodes[::-1].copy() if len(nodes) > 1 and steps[0] < 0 else nodes


def time_nodes(dataset: xr.Dataset, dim: str) -> Array:
    """Return the ascending times of a simulation, float64.

    Raises:
        DataError: no coordinate, or one that is not strictly monotonic.
    """
    return _nodes(dataset, dim, "dataset")


def _units(dataset: xr.Dataset, dim: str) -> str:
    if dataset[dim].dtype.kind == "M":
        return "s"
    return str(dataset[dim].attrs.get("units", "1"))


def _period(dataset, dim: str, nodes: Array, periodic, where: str) -> float | None:
    period = periodic.get(dim, dataset[dim].attrs.get("period"))
    if period is None:
        return None
    period = float(period)
    place = f"{where}: periodic dim {dim}"
    if period <= nodes[-1] - nodes[0]:
        raise ConfigError(
            f"the period {period:g} is not longer than the nodes' {nodes[-1] - nodes[0]:g}",
            where=place,
            fix="leave out the last node if it repeats the first",
        )
    if len(nodes) > 1 and is_even(nodes):
        step = (nodes[-1] - nodes[0]) / (len(nodes) - 1)
        # A period of n - 1 steps, with the first node repeated at the end, is the usual mistake.
        if abs(period - step * len(nodes)) > 0.02 * step:
            raise ConfigError(
                f"{len(nodes)} nodes {step:g} apart do not fill a period of {period:g}",
                where=place,
                allowed=f"{step * len(nodes):g}",
            )
    return period


def values_of(
    dataset: xr.Dataset,
    fields: Sequence[str],
    grid: RectilinearGrid,
    where: str = "",
    valid: Array | bool = True,
) -> Array:
    """Return the fields as (fields, *shape) in the order of the grid, with ascending coordinates.

    Args:
        dataset: a simulation.
        fields: names.
        grid: of the dataset.
        where: the file, for messages.
        valid: nodes that must hold values, bool that broadcasts to *shape.

    Raises:
        DataError: NaN or Inf at a valid node.
    """
    out = []
    for name in fields:
        values = oriented(dataset[name], grid).values
        bad = ~np.isfinite(values) & valid
        if bad.any():
            index = np.argwhere(bad)[0]
            place = ", ".join(f"{d}={i}" for d, i in zip(grid.dims, index, strict=True))
            raise DataError(
                f"NaN or Inf at index {place} ({int(bad.sum())} in all)",
                where=": ".join(p for p in (where, f"variable {name}") if p),
                fix="fill or cut out the part",
            )
        out.append(values)
    return np.stack(out)


def oriented(array: xr.DataArray, grid: RectilinearGrid) -> xr.DataArray:
    """Return a lazy view in the order of the grid with ascending coordinates."""
    array = array.transpose(*grid.dims)
    for dim in grid.dims:
        coordinate = array[dim].values
        if len(coordinate) > 1 and coordinate[0] > coordinate[-1]:
            array = array.isel({dim: slice(None, None, -1)})
    return array


def numeric_attributes(dataset: xr.Dataset) -> dict[str, float]:
    """Return the numeric attributes of a file, as constants of equations."""
    numbers = {}
    for name, value in dataset.attrs.items():
        if isinstance(value, int | float | np.integer | np.floating) and str(name).isidentifier():
            numbers[str(name)] = float(value)
    return numbers
