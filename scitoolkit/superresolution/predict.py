"""The continuous field on any grid, streamed to a file in memory that does not grow with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import h5netcdf
import numpy as np
import torch
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.core.log import get_logger
from scitoolkit.ops import taylor
from scitoolkit.superresolution.equations import PDE, Residuals
from scitoolkit.superresolution.surrogate import CHUNK, QueryableField

Array = np.ndarray
log = get_logger(__name__)


def refined_nodes(coarse: QueryableField) -> list[Array]:
    """Return nodes as dense as those of the training file: every coarse cell in equal steps."""
    out = []
    for nodes, every, period in zip(
        coarse.grid.nodes, coarse.surrogate.header.layout.every, coarse.grid.periods, strict=True
    ):
        ends = np.append(nodes, nodes[0] + period) if period is not None else nodes
        steps = np.arange(every) / every
        inner = (ends[:-1, None] + np.diff(ends)[:, None] * steps).ravel()
        out.append(inner if period is not None else np.append(inner, nodes[-1]))
    return out


class Derived:
    """Expressions of fields and their derivatives, evaluated by the model's own derivatives.

    Args:
        coarse: the fields.
        expressions: {name: text}, `dif(w,x) - dif(u,z)` say; see `pde_text`.
    """

    def __init__(self, coarse: QueryableField, expressions: Mapping[str, str]) -> None:
        head = coarse.surrogate.header
        clash = sorted(set(expressions) & {*head.fields, *head.dims})
        if clash:
            raise ConfigError(f"derived field {clash[0]!r} is called like a field or dim")
        self.names = list(expressions)
        self.dims, self.fields = head.dims, head.fields
        if expressions:
            pde = PDE.parse(
                expressions, fields=head.fields, dims=head.dims, attributes=head.constants
            )
            self.residuals = Residuals(pde)
            self.plan = taylor.make_plan(len(head.dims), self.residuals.operators())
        else:
            self.plan = taylor.make_plan(len(head.dims), [])

    def ask(self, coarse: QueryableField, points: Array, **options: Any) -> Array:
        """Return (fields + derived, N) values at points."""
        streams = coarse.query(points, self.plan, **options)
        rows = [streams[0].T]
        if self.names:
            values = {
                key: torch.from_numpy(
                    streams[self.plan.index(key[1]), :, self.fields.index(key[0])].copy()
                )
                for key in self.residuals.keys
            }
            coordinates = {d: torch.from_numpy(points[:, i]) for i, d in enumerate(self.dims)}
            found = self.residuals.evaluate(values, coordinates)
            rows += [
                np.broadcast_to(np.asarray(found[name]), (1, len(points))) for name in self.names
            ]
        return np.concatenate(rows)


def stream(
    coarse: QueryableField,
    nodes: Mapping[str, Array] | Sequence[Array],
    output: Path | str,
    *,
    derived: Mapping[str, str] | None = None,
    extrapolate: bool = False,
    chunk: int = CHUNK,
) -> Path:
    """Write the fields on the grid of `nodes` to HDF5/NetCDF4 (.h5, .nc) or Zarr (.zarr).

    Args:
        coarse: from `SuperresolutionSurrogate.coarse`.
        nodes: coordinates of each dim, strictly ascending; dims left out of a mapping are refined
            as in training.
        output: file to make or to replace; opens in xarray.
        derived: {name: expression} written beside the fields, e.g. vorticity, or an equation.
        extrapolate: allow nodes outside of the coarse domain.
        chunk: points held at a time.

    Raises:
        DataError: nodes outside the domain or not ascending, or a folder that cannot be written.
        ConfigError: an expression that cannot be read.
    """
    grids = _grid_nodes(coarse, nodes, extrapolate)
    extra = Derived(coarse, derived or {})
    names = [*coarse.surrogate.header.fields, *extra.names]
    output = Path(output)
    sink = _open(output, coarse, names, grids)
    total = int(np.prod([len(n) for n in grids]))
    done = reported = 0
    try:
        for block in _blocks([len(n) for n in grids], chunk):
            axes = [n[part] for n, part in zip(grids, block, strict=True)]
            shape = [len(a) for a in axes]
            points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
            values = extra.ask(coarse, points, extrapolate=True, chunk=chunk)
            sink.write(block, values.reshape(len(names), *shape))
            done += len(points)
            if done * 10 // total > reported and total > 10 * chunk:
                reported = done * 10 // total
                log.info("%d %% of %d points written", 10 * reported, total)
        sink.finish()
    except OSError as error:
        raise DataError(f"cannot be written ({error})", where=str(output)) from error
    finally:
        sink.discard()
    return output


def at_points(
    coarse: QueryableField, points: xr.Dataset, *, extrapolate: bool = False
) -> xr.Dataset:
    """Return the fields at scattered points, a dataset with one variable a dim.

    Args:
        coarse: the fields.
        points: variables called like the dims, all of one dim.
        extrapolate: see `stream`.
    """
    dims = coarse.grid.dims
    missing = [d for d in dims if d not in points.variables]
    if missing:
        raise DataError(f"the points have no {missing[0]}", allowed=", ".join(dims))
    columns = [points[d] for d in dims]
    values = coarse.query(np.stack([c.values for c in columns], -1), extrapolate=extrapolate)[0]
    out = points.copy()
    head = coarse.surrogate.header
    for name, unit, column in zip(head.fields, head.units, values.T, strict=True):
        out[name] = (columns[0].dims, column, {"units": unit})
    return out


def _grid_nodes(coarse: QueryableField, nodes: Any, extrapolate: bool) -> list[Array]:
    dims = coarse.grid.dims
    if isinstance(nodes, Mapping):
        unknown = [d for d in nodes if d not in dims]
        if unknown:
            raise DataError(f"{unknown[0]!r} is not a dim", allowed=", ".join(dims))
        refined = refined_nodes(coarse)
        nodes = [nodes.get(d, r) for d, r in zip(dims, refined, strict=True)]
    grids = [np.atleast_1d(np.asarray(n, dtype=np.float64)) for n in nodes]
    if len(grids) != len(dims):
        raise DataError(f"nodes of {len(grids)} dims", allowed=", ".join(dims))
    for axis, (dim, grid) in enumerate(zip(dims, grids, strict=True)):
        if grid.ndim != 1 or not len(grid) or not (np.diff(grid) > 0).all():
            raise DataError("nodes that are not strictly ascending", where=f"output along {dim}")
        probe = np.array([[n[0] for n in coarse.grid.nodes]] * 2)
        probe[:, axis] = grid[[0, -1]]
        coarse.check_points(probe, extrapolate)
    return grids


def _blocks(shape: Sequence[int], chunk: int) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that tile a shape: single rows of the first dims, whole rows of the last."""
    inner = 1
    axis = len(shape)
    while axis > 0 and inner * shape[axis - 1] <= chunk:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield tuple(slice(0, n) for n in shape)
        return
    width = max(1, chunk // inner)
    for outer in np.ndindex(*shape[: axis - 1]):
        for start in range(0, shape[axis - 1], width):
            stop = min(start + width, shape[axis - 1])
            yield (
                *(slice(i, i + 1) for i in outer), slice(start, stop),
                *(slice(0, n) for n in shape[axis:]),
            )  # fmt: skip


class _Sink(Protocol):
    def write(self, block: tuple[slice, ...], values: Array) -> None: ...
    def finish(self) -> None: ...
    def discard(self) -> None: ...


def _open(
    output: Path, coarse: QueryableField, names: Sequence[str], nodes: Sequence[Array]
) -> _Sink:
    head = coarse.surrogate.header
    units = [*head.units, *[""] * (len(names) - len(head.units))]
    attributes = {"title": "continuous super-resolution", "source": "scitoolkit"}
    output.parent.mkdir(parents=True, exist_ok=True)
    arguments = (output, names, units, head.dims, head.dim_units, nodes, attributes)
    if output.suffix == ".zarr":
        return _ZarrSink(*arguments)
    if output.suffix in (".nc", ".h5", ".hdf5", ".nc4"):
        return _NetCDFSink(*arguments)
    raise ConfigError(
        f"cannot tell a format from {output.name!r}", allowed=".nc, .h5, .zarr",
        fix=f"-o {output.with_suffix('.nc').name}",
    )  # fmt: skip


class _NetCDFSink:
    """NetCDF4, which is HDF5, written block by block under a temporary name."""

    def __init__(self, output, names, units, dims, dim_units, nodes, attributes) -> None:
        self.output, self.names = output, names
        self.temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        self.file = h5netcdf.File(self.temporary, "w")
        self.file.attrs.update(attributes)
        self.file.dimensions = {d: len(n) for d, n in zip(dims, nodes, strict=True)}
        for dim, unit, grid in zip(dims, dim_units, nodes, strict=True):
            variable = self.file.create_variable(dim, (dim,), np.float64)
            variable[:] = grid
            variable.attrs["units"] = unit
        for name, unit in zip(names, units, strict=True):
            variable = self.file.create_variable(name, tuple(dims), np.float32)
            if unit:
                variable.attrs["units"] = unit

    def write(self, block: tuple[slice, ...], values: Array) -> None:
        for name, value in zip(self.names, values, strict=True):
            self.file[name][block] = value

    def finish(self) -> None:
        self.file.close()
        self.temporary.replace(self.output)

    def discard(self) -> None:
        if self.temporary.exists():
            self.file.close()
            self.temporary.unlink()


class _ZarrSink:
    """Zarr, written block by block into a temporary folder."""

    def __init__(self, output, names, units, dims, dim_units, nodes, attributes) -> None:
        try:
            import zarr
        except ImportError:
            raise missing_extra("zarr", "zarr", "writing Zarr stores") from None
        self.output, self.names = output, names
        self.temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        group = zarr.open_group(self.temporary, mode="w")
        group.attrs.update(attributes)
        for dim, unit, grid in zip(dims, dim_units, nodes, strict=True):
            array = group.create_array(dim, shape=grid.shape, dtype="f8", dimension_names=[dim])
            array[:] = grid
            array.attrs["units"] = unit
        shape = tuple(len(n) for n in nodes)
        chunks = (1, *shape[1:]) if len(shape) > 1 else shape
        self.arrays = {}
        for name, unit in zip(names, units, strict=True):
            array = group.create_array(
                name, shape=shape, chunks=_at_most(chunks, 2**22), dtype="f4",
                dimension_names=list(dims), compressors=None,
            )  # fmt: skip
            if unit:
                array.attrs["units"] = unit
            self.arrays[name] = array

    def write(self, block: tuple[slice, ...], values: Array) -> None:
        for name, value in zip(self.names, values, strict=True):
            self.arrays[name][block] = value

    def finish(self) -> None:
        if self.output.exists():
            shutil.rmtree(self.output)
        self.temporary.replace(self.output)

    def discard(self) -> None:
        if self.temporary.exists():
            shutil.rmtree(self.temporary)


def _at_most(chunks: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Return chunks cut along the first dims that can be until they hold at most `limit` values."""
    out = list(chunks)
    for axis in range(len(out)):
        while int(np.prod(out)) > limit and out[axis] > 1:
            out[axis] = -(-out[axis] // 2)
    return tuple(out)
