"""Trained super-resolution models: files, and queries of continuous fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scitoolkit.core.devices import device_of, to_host
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.units import stated_unit
from scitoolkit.io.familiar import UsualValues, refuse_marks, require_familiar
from scitoolkit.ops import taylor
from scitoolkit.superresolution.config import ModelConfig
from scitoolkit.superresolution.differentiate import is_even
from scitoolkit.superresolution.equations import PDE
from scitoolkit.superresolution.grid import (
    RectilinearGrid,
    grid_of,
    numeric_attributes,
    oriented,
    values_of,
)
from scitoolkit.superresolution.masked import filled
from scitoolkit.superresolution.mirrors import EncodedMirrors, Reflection, reflections
from scitoolkit.superresolution.network import FieldNetwork, Header
from scitoolkit.superresolution.task import Physics
from scitoolkit.surrogate.ensemble import Members, members_of
from scitoolkit.surrogate.lifecycle import rebuilt, save_model

Array = np.ndarray
CHUNK = 32768
_SPACING_TOLERANCE = 0.1
log: Logger = get_logger(__name__)


def description(header: Header, config: ModelConfig, members: int) -> dict[str, Any]:
    """Return what `untrained` builds a model from, as JSON types."""
    return {"header": header.to_json(), "model": config.model_dump(mode="json"), "members": members}


def untrained(measured: Mapping[str, Any]) -> FieldNetwork | Members:
    """Return the model of a `description`, without its weights."""
    header = Header.from_json(measured["header"])
    config = ModelConfig.model_validate(measured["model"])
    # Models that were stored before there were ensembles have one member.
    return joined([FieldNetwork(header, config) for _ in range(measured.get("members", 1))])


def joined(members: Sequence[FieldNetwork]) -> FieldNetwork | Members:
    """Return the ensemble of some networks; a single one as it is."""
    return members[0] if len(members) == 1 else Members(members)


class SuperresolutionSurrogate:
    """Trained model from coarse fields to continuous fields.

    Args:
        model: the network, or the members of an ensemble.

    Attributes:
        members: the networks, whose outputs are averaged.
        header: description of the training data.
        config: the architecture.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: nn.Module = model.eval()
        self.members: list[FieldNetwork] = [
            m for m in members_of(model) if isinstance(m, FieldNetwork)
        ]
        self.header: Header = self.members[0].header
        self.config: ModelConfig = self.members[0].config

    # --- on disk ----------------------------------------------------------------------------

    def save(self, folder: Path, dtype: str = "float32") -> None:
        """Write the weights, with the header.

        Args:
            folder: the destination.
            dtype: of the weights: float32, float16 or int8; see `rounded_weights`. The
                normalisation stays float32.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        measured = description(self.header, self.config, len(self.members))
        save_model(self.model, ModelFolder(folder), measured, dtype)

    @classmethod
    def load(cls, folder: Path) -> SuperresolutionSurrogate:
        """Read a model written by `save` or by a training.

        Raises:
            CheckpointError: missing or damaged files, or weights of another architecture.
        """
        return cls(rebuilt(ModelFolder(folder), untrained))

    # --- in use -----------------------------------------------------------------------------

    def in_box(self, dataset: xr.Dataset, where: str = "input") -> SuperresolutionSurrogate:
        """Return the model with the periods of a file whose nodes fill another box than in
        training.

        A file whose last node repeats the first one is unchanged here and raises an error later.
        """
        periods = list(self.header.periods)
        for axis, (dim, period) in enumerate(zip(self.header.dims, periods, strict=True)):
            nodes = dataset[dim].values if dim in dataset.coords else np.zeros(0)
            if period is None or len(nodes) < 2 or nodes.dtype.kind not in "fiu":
                continue
            step = abs(float(nodes[-1]) - float(nodes[0])) / (len(nodes) - 1)
            length = step * len(nodes)
            # A repeated last node makes the length one step too large, which is an error and no
            # other box.
            if abs(length - period) > 1.5 * step and is_even(np.sort(nodes)):
                log.warning(
                    "%s: a period of %.4g along %s, the model was trained on %.4g",
                    where,
                    length,
                    dim,
                    period,
                )
                periods[axis] = length
        if periods == list(self.header.periods):
            return self
        return SuperresolutionSurrogate(joined([m.in_box(periods) for m in self.members]))

    def thinned(self, factor: int) -> SuperresolutionSurrogate:
        """Return the model for the low resolution of one of the factors of `crop.coarser`."""
        if factor == self.header.factor:
            return self
        return SuperresolutionSurrogate(joined([m.thinned(factor) for m in self.members]))

    def _of_spacing(self, grid: RectilinearGrid) -> SuperresolutionSurrogate:
        """Return the model for the trained resolution that is nearest to that of a grid."""
        ratios = [
            np.log(np.diff(nodes).mean() / reference)
            for nodes, reference in zip(grid.nodes, self.header.reference, strict=True)
            if reference is not None and len(nodes) > 1
        ]
        if not ratios:
            return self
        mean = np.mean(ratios)
        return self.thinned(min(self.header.coarser, key=lambda f: abs(np.log(f) - mean)))

    def coarse(
        self,
        dataset: xr.Dataset,
        where: str = "input",
        valid_on: Callable[[RectilinearGrid], Array | None] = lambda grid: None,
    ) -> QueryableField:
        """Return low-resolution fields for queries, checked against the training data.

        Args:
            dataset: the fields.
            where: the file, for messages.
            valid_on: returns the valid nodes of a grid; None if all are valid.

        Raises:
            DataError: missing fields, other dims, NaN, or too few nodes.
        """
        surrogate = self.in_box(dataset, where)
        head = surrogate.header
        periodic = {d: p for d, p in zip(head.dims, head.periods, strict=True) if p is not None}
        grid = grid_of(dataset, head.fields, head.dims, periodic, where)
        surrogate = surrogate._of_spacing(grid)
        head, valid = surrogate.header, valid_on(grid)
        values = values_of(dataset, head.fields, grid, where, True if valid is None else valid)
        if valid is not None:
            values = filled(values, valid)
        for dim, count, least, closed in zip(
            grid.dims, grid.shape, head.window, head.closed, strict=True
        ):
            fewest = 2 if closed else min(least, 3)
            if count < fewest:
                raise DataError(
                    f"{count} nodes along {dim}", where=where, allowed=f"{fewest} or more"
                )
        surrogate._warn_of_spacing(grid, where)
        self._warn_of_constants(dataset, where)
        usual = {name: replace(one, unit="") for name, one in self._usual_values().items()}
        require_familiar(dict(zip(head.fields, values, strict=True)), usual, {}, where)
        return QueryableField(surrogate, grid, values, valid)

    def _usual_values(self) -> dict[str, UsualValues]:
        """Return the values of each field in the training, in its unit."""
        head, member = self.header, self.members[0]
        return {
            name: UsualValues(float(mean), float(std), "" if unit == "1" else unit)
            for name, unit, mean, std in zip(
                head.fields, head.units, member.mean, member.std, strict=True
            )
        }

    def require_familiar(
        self,
        stored: xr.Dataset,
        converted: xr.Dataset,
        where: str,
        valid_on: Callable[[RectilinearGrid], Array | None] = lambda grid: None,
        *,
        suspect: bool = False,
    ) -> None:
        """Refuse undeclared marks of missing values, and far values without a unit.

        Args:
            stored: the fields in the units of the file.
            converted: the fields in the units of the training.
            where: the file, for messages.
            valid_on: returns the valid nodes of a grid; None if all are valid.
            suspect: accept marks, as the training did.

        Raises:
            DataError: there are such values.
        """
        head = self.in_box(converted, where).header
        periodic = {d: p for d, p in zip(head.dims, head.periods, strict=True) if p is not None}
        grid = grid_of(converted, head.fields, head.dims, periodic, where)
        valid = valid_on(grid)
        for name, usual in self._usual_values().items():
            values = oriented(stored[name], grid).values
            values = values if valid is None else values[np.broadcast_to(valid, values.shape)]
            values = values[np.isfinite(values)]
            if not suspect:
                refuse_marks(values, f"{where}: variable {name}")
            if values.size and not (stated := stated_unit(stored[name].attrs)):
                require_familiar({name: values}, {name: usual}, {name: stated}, where)

    def _warn_of_spacing(self, grid: RectilinearGrid, where: str) -> None:
        for dim, nodes, trained in zip(grid.dims, grid.nodes, self.header.spacing, strict=True):
            spacing = float(np.diff(nodes).mean())
            if abs(spacing / trained - 1) > _SPACING_TOLERANCE:
                log.warning(
                    "%s: nodes along %s are %.4g apart, the model was trained at %.4g: "
                    "the error may be larger",
                    where,
                    dim,
                    spacing,
                    trained,
                )

    def _warn_of_constants(self, dataset: xr.Dataset, where: str) -> None:
        """Warn of numeric attributes that are other constants than in the trained equations."""
        stated = numeric_attributes(dataset)
        for name in self.header.used:
            trained = self.header.constants[name]
            if name in stated and not np.isclose(stated[name], trained, rtol=1e-6, atol=0):
                log.warning(
                    "%s: %s is %.6g, the model was trained on %.6g: the error may be larger, and "
                    "equations are those of the training",
                    where,
                    name,
                    stated[name],
                    trained,
                )

    def physics(self, pde: PDE, config: Any) -> Physics:
        """Return the equations as residuals in units of the training data's terms."""
        from scitoolkit.superresolution.equations import Residuals

        scales = {name: self.header.scales.get(name, 1.0) for name in pde.expressions}
        return Physics(Residuals(pde, combine=config.combine), config, scales)


class QueryableField:
    """Low-resolution fields with a model that evaluates them at arbitrary points.

    Along a dim that training crops do not span, the encoder is applied to windows of the size of a
    crop; a query uses the window in which it is most central.

    Attributes:
        valid: nodes that hold values, bool that broadcasts to `grid.shape`; None if all do.
    """

    def __init__(
        self,
        surrogate: SuperresolutionSurrogate,
        grid: RectilinearGrid,
        values: Array,
        valid: Array | None = None,
    ) -> None:
        self.valid: Array | None = valid
        self.surrogate: SuperresolutionSurrogate = surrogate
        self.grid: RectilinearGrid = grid
        self.values: Array = values
        head = surrogate.header
        mirrors = head.mirrors if surrogate.config.average else {}
        self.reflections: list[Reflection] = reflections(mirrors, head.dims, head.fields)
        self._cached: tuple[tuple[int, ...], list[EncodedMirrors], Array] | None = None
        self.sizes: tuple[int, ...] = tuple(
            count if whole else min(window, count)
            for count, window, whole in zip(
                grid.shape, surrogate.header.window, surrogate.header.layout.whole, strict=True
            )
        )

    def domain(self) -> list[tuple[float, float]]:
        """Return for each dim the (low, high) coordinates between which queries interpolate.

        These are the end nodes, also of walled dims; a periodic dim is unbounded.
        """
        out = []
        for nodes, period in zip(self.grid.nodes, self.grid.periods, strict=True):
            slack = 1e-6 * (nodes[-1] - nodes[0])
            out.append(
                (-np.inf, np.inf) if period is not None else (nodes[0] - slack, nodes[-1] + slack)
            )
        return out

    def hidden(self, points: Array) -> Array:
        """Return for points (N, d) whether their nearest node is invalid, bool (N,)."""
        if self.valid is None:
            return np.zeros(len(points), bool)
        places = []
        for axis, (nodes, period) in enumerate(
            zip(self.grid.nodes, self.grid.periods, strict=True)
        ):
            along = points[:, axis]
            if period is not None:
                along = nodes[0] + (along - nodes[0]) % period
                nodes = np.append(nodes, nodes[0] + period)
            middles = (nodes[1:] + nodes[:-1]) / 2
            places.append(np.searchsorted(middles, along) % self.valid.shape[axis])
        return ~self.valid[tuple(places)]

    def windows(self, points: Array) -> Array:
        """Return the first node of the window of each of the points (N, d), (N, d) int64."""
        starts = np.zeros(points.shape, dtype=np.int64)
        for axis, (nodes, size) in enumerate(zip(self.grid.nodes, self.sizes, strict=True)):
            if size < len(nodes):
                cell = np.clip(np.searchsorted(nodes, points[:, axis], "right") - 1, 0, None)
                # As many nodes before the query's cell as after it, except at the ends.
                starts[:, axis] = np.clip(cell - (size - 2) // 2, 0, len(nodes) - size)
        return starts

    def latent(self, start: Sequence[int] | np.ndarray) -> tuple[list[EncodedMirrors], Array]:
        """Return the window that starts at a node, encoded by each member, and its origin."""
        key = tuple(int(s) for s in start)
        if self._cached is None or self._cached[0] != key:
            parts = tuple(slice(s, s + n) for s, n in zip(key, self.sizes, strict=True))
            nodes = [n[p] for n, p in zip(self.grid.nodes, parts, strict=True)]
            head = self.surrogate.header
            origin = np.array(
                [
                    0.0 if walled or closed else n[0]
                    for n, walled, closed in zip(
                        nodes, head.layout.walled, head.closed, strict=True
                    )
                ]
            )
            low = torch.from_numpy(self.values[(slice(None), *parts)].astype(np.float32))[None]
            tensors = [
                torch.from_numpy((n - o).astype(np.float32))[None]
                for n, o in zip(nodes, origin, strict=True)
            ]
            device = device_of(self.surrogate.model)
            tensors = [nodes_of_dim.to(device) for nodes_of_dim in tensors]
            with torch.no_grad():
                low = low.to(device)
                encoded = [
                    EncodedMirrors(m, low, tensors, self.reflections)
                    for m in self.surrogate.members
                ]
            self._cached = (key, encoded, origin)
        return self._cached[1], self._cached[2]

    def query(
        self,
        points: Array,
        plan: taylor.Plan | None = None,
        *,
        extrapolate: bool = False,
        chunk: int = CHUNK,
    ) -> Array:
        """Return fields and derivatives at points.

        Args:
            points: (N, d) coordinates in the order of the dims.
            plan: which derivatives; None for values only.
            extrapolate: allow points beyond the end nodes of open dims, by continuing the last
                cell.
            chunk: number of points at a time.

        Returns:
            (streams, N, fields) float32, physical units.

        Raises:
            DataError: points of another shape, NaN, or outside the domain.
        """
        points = np.asarray(points, dtype=np.float64)
        self.check_points(points, extrapolate)
        streams = 1 if plan is None else len(plan)
        out = np.empty((streams, len(points), len(self.surrogate.header.fields)), np.float32)
        for start, chosen in self._by_window(points):
            encoded, origin = self.latent(start)
            for at in range(0, len(chosen), chunk):
                part = chosen[at : at + chunk]
                out[:, part] = self._ask(encoded, points[part] - origin, plan)
        return out

    def _ask(self, encoded: list[EncodedMirrors], points: Array, plan: taylor.Plan | None) -> Array:
        with torch.no_grad():
            x: Tensor = torch.from_numpy(points.astype(np.float32))[None]
            x = x.to(device_of(self.surrogate.model))
            return to_host(torch.stack([e.query(x, plan)[:, 0] for e in encoded]).mean(0))

    def _by_window(self, points: Array) -> Iterator[tuple[Array, Array]]:
        starts, inverse = np.unique(self.windows(points), axis=0, return_inverse=True)
        for number, start in enumerate(starts):
            yield start, np.flatnonzero(inverse.ravel() == number)

    def check_points(self, points: Array, extrapolate: bool) -> None:
        """Check the shape of points, that they are finite and inside the domain.

        Raises:
            DataError: they are not.
        """
        dims = self.grid.dims
        if points.ndim != 2 or points.shape[1] != len(dims):
            raise DataError(
                f"points of shape {points.shape}", allowed=f"(N, {len(dims)}): {', '.join(dims)}"
            )
        if not np.isfinite(points).all():
            raise DataError(f"NaN in point {int(np.argwhere(~np.isfinite(points))[0][0])}")
        if extrapolate:
            return
        for axis, (dim, (low, high)) in enumerate(zip(dims, self.domain(), strict=True)):
            outside = (points[:, axis] < low) | (points[:, axis] > high)
            if outside.any():
                raise DataError(
                    f"{int(outside.sum())} points lie outside, e.g. "
                    f"{dim}={points[np.argmax(outside), axis]:.6g}",
                    where=f"query along {dim}",
                    allowed=f"{low:.6g} to {high:.6g}",
                    fix="extrapolate=True continues the last cell",
                )
