"""Prediction of the continuous field on any grid, streamed to a file in bounded memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.formats import StreamedVariable, writing_format
from scitoolkit.io.parts import PART_BYTES, Parts, by_size
from scitoolkit.io.stream import open_writer
from scitoolkit.ops import taylor
from scitoolkit.superresolution.equations import PDE, Residuals
from scitoolkit.superresolution.spectrum import WaveGains
from scitoolkit.superresolution.surrogate import CHUNK, QueryableField
from scitoolkit.training.ranks.rounds import completed

Array = np.ndarray
log: Logger = get_logger(__name__)


def refined_nodes(coarse: QueryableField) -> list[Array]:
    """Return nodes at the resolution of the training: equal steps in every coarse cell."""
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
    """Derived fields: expressions of fields and their derivatives, from derivatives of the model.

    Args:
        coarse: the fields.
        expressions: {name: text}, such as `dif(w,x) - dif(u,z)`; see
            `scitoolkit.core.expressions`.
    """

    plan: taylor.Plan

    def __init__(self, coarse: QueryableField, expressions: Mapping[str, str]) -> None:
        head = coarse.surrogate.header
        clash = sorted(set(expressions) & {*head.fields, *head.dims})
        if clash:
            raise ConfigError(f"derived field {clash[0]!r} has the name of a field or dim")
        self.names: list[str] = list(expressions)
        self.dims: tuple[str, ...] = head.dims
        self.fields: tuple[str, ...] = head.fields
        if expressions:
            pde = PDE.parse(
                expressions, fields=head.fields, dims=head.dims, attributes=head.constants
            )
            self.residuals: Residuals = Residuals(pde)
            self.plan = taylor.make_plan(len(head.dims), self.residuals.operators())
        else:
            self.plan = taylor.make_plan(len(head.dims), [])

    def ask(self, coarse: QueryableField, points: Array, **options: Any) -> Array:
        """Return values at points, (fields + derived, N)."""
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
            residual_of = self.residuals.evaluate(values, coordinates)
            rows += [
                np.broadcast_to(np.asarray(residual_of[name]), (1, len(points)))
                for name in self.names
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
    gains: WaveGains | None = None,
    about: Mapping[str, str] | None = None,
    facts: DataFacts | None = None,
) -> Path:
    """Write the fields on the grid of `nodes` to HDF5/NetCDF4 (.h5, .nc) or Zarr (.zarr).

    Parts of the fields are stored next to the output until it is complete, so that the same call
    continues after an interruption. Several processes divide the parts.

    Args:
        coarse: from `SuperresolutionSurrogate.coarse`.
        nodes: strictly ascending coordinates of each dim; dims left out of a mapping are refined
            as in training.
        output: file to create or replace; readable by xarray.
        derived: {name: expression} of additional fields, such as a vorticity or a residual.
        extrapolate: allow nodes outside the coarse domain.
        chunk: number of points computed at a time.
        gains: spectral correction along a periodic dim, which `nodes` must fill evenly; it is not
            applied to `derived`.
        about: identification of model and file, stored with the parts.
        facts: of the training data, whose CF attributes the fields get.

    Raises:
        DataError: parts of another prediction exist, nodes are outside the domain or not ascending,
            or the folder cannot be written.
        ConfigError: an invalid expression, or nodes that `gains` do not support.
    """
    grids = _grid_nodes(coarse, nodes, extrapolate)
    axis = gains.along(coarse.grid.dims, grids, coarse.grid.periods) if gains else 0
    if axis and not _whole_blocks(grids, axis - 1, chunk):
        raise ConfigError(
            f"blocks of {chunk} points do not contain whole lines along {gains and gains.dim}",
            where="chunk",
            allowed=f"{int(np.prod([len(n) for n in grids[axis - 1 :]]))} or more",
        )
    extra = Derived(coarse, derived or {})
    names = [*coarse.surrogate.header.fields, *extra.names]
    output = Path(output)
    writing_format(output)
    blocks = list(_blocks([len(n) for n in grids], chunk))
    sizes = [len(names) * 4 * math.prod(p.stop - p.start for p in block) for block in blocks]
    pieces = by_size(sizes, PART_BYTES)
    parts = Parts(
        output,
        len(pieces),
        {
            **(about or {}),
            "names": names,
            "derived": dict(derived or {}),
            "chunk": chunk,
            "nodes": hashlib.sha256(b"".join(n.tobytes() for n in grids)).hexdigest(),
            "gains": gains is not None,
        },
    )

    def values_of(block: tuple[slice, ...]) -> Array:
        axes = [n[part] for n, part in zip(grids, block, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        # `_grid_nodes` has compared both ends of every dim with the domain before anything is
        # written.
        values = extra.ask(coarse, points, extrapolate=True, chunk=chunk)
        values[:, coarse.hidden(points)] = np.nan
        values = values.reshape(len(names), *(len(a) for a in axes))
        if gains is not None:
            fields, length = len(coarse.surrogate.header.fields), coarse.grid.periods[axis - 1]
            values[:fields] = gains.apply(values[:fields], axis, float(length or 0))
        return values

    def work(number: int) -> dict[str, Array]:
        log.info("part %d of %d", number + 1, len(pieces))
        return {str(k): values_of(blocks[k]) for k in pieces[number]}

    with completed(parts, work) as writes:
        if writes:
            header = _coordinates(coarse, grids)
            variables = _variables(coarse, names, grids, facts or DataFacts())
            with open_writer(output, header, variables) as file:
                for number in range(parts.count):
                    for k, values in parts.load(number).items():
                        for name, value in zip(names, values, strict=True):
                            file.write(name, blocks[int(k)], value)
            parts.remove()
    return output


def _whole_blocks(grids: Sequence[Array], axis: int, chunk: int) -> bool:
    """Return whether every block of the output contains whole lines along a dim."""
    count = len(grids[axis])
    first = next(_blocks([len(n) for n in grids], chunk))[axis]
    return first.stop - first.start == count


def _coordinates(coarse: QueryableField, nodes: Sequence[Array]) -> xr.Dataset:
    head = coarse.surrogate.header
    made = {
        dim: (dim, np.asarray(grid, np.float64), {"units": unit})
        for dim, unit, grid in zip(head.dims, head.dim_units, nodes, strict=True)
    }
    attributes = {"title": "continuous super-resolution", "source": "scitoolkit"}
    return xr.Dataset(coords=made, attrs=attributes)


def _variables(
    coarse: QueryableField, names: Sequence[str], nodes: Sequence[Array], facts: DataFacts
) -> dict[str, StreamedVariable]:
    head = coarse.surrogate.header
    units = [*head.units, *[""] * (len(names) - len(head.units))]
    shape = tuple(len(n) for n in nodes)
    return {
        name: StreamedVariable(
            tuple(head.dims),
            shape,
            ({"units": unit} if unit else {}) | facts.meaning(name),
            fill_value=None if coarse.valid is None else float("nan"),
        )
        for name, unit in zip(names, units, strict=True)
    }


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
    """Yield boxes of at most `chunk` points that tile a shape, with whole rows of the last dims."""
    # As many whole trailing dims as fit into a block, so that a block is contiguous in the output;
    # then slabs of the dim before them.
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
                *(slice(i, i + 1) for i in outer),
                slice(start, stop),
                *(slice(0, n) for n in shape[axis:]),
            )
