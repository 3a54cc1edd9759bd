"""Variables and layout of an emulator: fields on one grid, and vectors, with units.

A field has all grid dims. A variable with other dims, or none, is a vector: its values are
flattened and are the same for every cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.campaign.mask import unpack

MAX_GRID_DIMS = 3
LEAD = "lead"
"""Name of the input that holds the lead, in samples, of an emulator of several leads."""
STEP = "step"
"""Name of the input that holds the time from a sample to the next, if steps are uneven."""
NOISE = "noise"
"""Name of the input of a probabilistic emulator: numbers that are drawn again in each step."""
AREA = "@area"
"""Coordinate of an opened dataset that holds the areas of cells on a sphere."""
LATITUDE, LONGITUDE = "@latitude", "@longitude"
"""Coordinates of an opened dataset: geographic positions of its cells in degrees."""
T = TypeVar("T")


@dataclass(frozen=True)
class Variable:
    """A variable of one sample.

    Attributes:
        name: name in the file.
        dims: names of its dims without the sample dim; those of a field are in the order of the
            grid.
        shape: their lengths.
        units: "" if the file states none.
        is_field: whether it has all dims of the grid.
        long_name: for titles; "" if the file states none.
        earlier_of: the variable that this is an earlier value of; "" for a variable of the files.
        age: number of leads before the present.
        stored: whether files hold it; the lead and the noise are supplied by the caller.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    units: str
    is_field: bool
    long_name: str = ""
    earlier_of: str = ""
    age: int = 0
    stored: bool = True

    @property
    def stored_as(self) -> str:
        """Name in the files; earlier values have the name of the present one."""
        return self.earlier_of or self.name

    @property
    def size(self) -> int:
        """Number of values of a vector; 1, a channel, for a field."""
        return 1 if self.is_field else math.prod(self.shape)


@dataclass(frozen=True)
class CellAreas:
    """Relative areas of the cells of a grid on a sphere.

    Attributes:
        dims: the dims along which they are stored, one or two.
        values: nested lists of their shape.
        latitudes: degrees along a single dim, else empty.
    """

    dims: tuple[str, ...]
    values: list[Any]
    latitudes: list[float] = field(default_factory=list)

    def weights(self, grid: Sequence[str]) -> np.ndarray:
        """Return the areas, of mean 1, with a dim of size 1 for each other dim of the grid.

        Example:
            >>> CellAreas(("lat",), [1.0, 3.0]).weights(["lat", "lon"]).tolist()
            [[0.5], [1.5]]
        """
        areas = np.asarray(self.values, np.float64)
        order = sorted(range(areas.ndim), key=lambda k: list(grid).index(self.dims[k]))
        areas = areas.transpose(order)
        missing = tuple(axis for axis, dim in enumerate(grid) if dim not in self.dims)
        return np.expand_dims(areas / areas.mean(), missing)


@dataclass(frozen=True)
class Layout:
    """Variables and grid of an emulator; saved with its weights.

    Attributes:
        inputs: in the order of the input channels.
        outputs: in the order of the output channels.
        grid: {dim: number of cells}, in the order of the space dims of a tensor.
        coordinates: {dim: coordinate values}, for grid dims with a coordinate.
        sample_dim: the dim that counts samples.
        step: difference of `sample_dim` between input and output; None if it varies.
        mask: the valid cells as text; "" if all cells are valid.
        parameter_ranges: {parameter: (least, largest) value in the training split}.
        leads: leads in samples of an emulator of several leads, else empty.
        cell_widths: {dim: (least, largest) mean width of cells in the training split}, for dims
            along which simulations differ.
        step_range: (least, largest) step in the training split, if the step is an input.
        areas: areas of the cells of a grid on a sphere; None if cells have no latitude.
        mask_of_step: the input that is 1 in the cells that have values at its time, else 0.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    grid: dict[str, int]
    coordinates: dict[str, list[float]]
    sample_dim: str
    step: float | None = None
    mask: str = ""
    parameter_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    leads: tuple[int, ...] = ()
    cell_widths: dict[str, tuple[float, float]] = field(default_factory=dict)
    areas: CellAreas | None = None
    step_range: tuple[float, float] | None = None
    mask_of_step: str = ""

    @property
    def state(self) -> tuple[str, ...]:
        """Names that are both input and output, fed back in a rollout."""
        names = {v.name for v in self.inputs}
        return tuple(v.name for v in self.outputs if v.name in names)

    @property
    def variables(self) -> dict[str, Variable]:
        """All variables of the files by name, inputs first."""
        return {v.name: v for v in (*self.inputs, *self.outputs) if v.stored and not v.age}

    @property
    def earlier(self) -> tuple[Variable, ...]:
        """Inputs that are earlier values of the state."""
        return tuple(v for v in self.inputs if v.age)

    @property
    def recurrent(self) -> tuple[str, ...]:
        """Names of the inputs that a rollout computes: the state and its earlier values."""
        return (*self.state, *(v.name for v in self.earlier))

    def with_history(self, frames: int) -> Layout:
        """Return the layout whose inputs include `frames - 1` earlier values of the state.

        Example:
            >>> u = Variable("u", ("x",), (4,), "m/s", True)
            >>> layout = Layout((u,), (u,), {"x": 4}, {}, "t").with_history(3)
            >>> [v.name for v in layout.inputs]
            ['u', 'u@-1', 'u@-2']
        """
        inputs = {v.name: v for v in self.inputs}
        added = [
            replace(inputs[name], name=earlier_name(name, age), earlier_of=name, age=age)
            for age in range(1, frames)
            for name in self.state
        ]
        return replace(self, inputs=(*self.inputs, *added))

    def with_leads(self, leads: Sequence[int]) -> Layout:
        """Return the layout with the lead as its last input; the same layout if `leads` is empty.

        Example:
            >>> u = Variable("u", ("x",), (4,), "m/s", True)
            >>> layout = Layout((u,), (u,), {"x": 4}, {}, "t").with_leads([1, 4])
            >>> [v.name for v in layout.inputs], list(layout.variables)
            (['u', 'lead'], ['u'])
        """
        if not leads:
            return self
        told = Variable(LEAD, (), (), "", False, "samples from input to output", stored=False)
        return replace(self, inputs=(*self.inputs, told), leads=tuple(leads))

    def with_noise(self, values: int) -> Layout:
        """Return the layout with `values` numbers of noise as its last input; itself for 0.

        Example:
            >>> u = Variable("u", ("x",), (4,), "m/s", True)
            >>> Layout((u,), (u,), {"x": 4}, {}, "t").with_noise(8).noise
            8
        """
        if not values or self.noise:
            return self
        text = "standard normal numbers, new ones in each step"
        drawn = Variable(NOISE, (NOISE,), (values,), "1", False, text, stored=False)
        return replace(self, inputs=(*self.inputs, drawn))

    @property
    def noise(self) -> int:
        """Number of values of the noise; 0 without noise."""
        return next((v.size for v in self.inputs if v.name == NOISE and not v.stored), 0)

    def advanced(self, inputs: Mapping[str, T], new: Mapping[str, T]) -> dict[str, T]:
        """Return the recurrent inputs of the next step.

        Args:
            inputs: inputs of this step, by name.
            new: outputs of this step, by name.
        """
        older = {v.name: inputs[earlier_name(v.earlier_of, v.age - 1)] for v in self.earlier}
        return {**{name: new[name] for name in self.state}, **older}

    @property
    def grid_size(self) -> int:
        """Number of cells."""
        return math.prod(self.grid.values())

    @property
    def valid(self) -> np.ndarray | None:
        """Cells that hold values, (*grid) bool; None if all do."""
        return unpack(self.mask, tuple(self.grid.values())) if self.mask else None

    def blank(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the variables with NaN in the invalid cells of fields."""
        valid = self.valid
        if valid is None:
            return dict(values)
        fields = {v.name for v in (*self.inputs, *self.outputs) if v.is_field}
        return {n: np.where(valid, v, np.nan) if n in fields else v for n, v in values.items()}

    def weights(self) -> np.ndarray:
        """Return cell volumes, (*grid) of mean 1, with faces halfway between coordinates.

        Along a latitude they are areas on the sphere. Invalid cells have weight 0.
        """
        out = np.ones(tuple(self.grid.values()))
        if self.areas is not None:
            out *= self.areas.weights(list(self.grid))
        for axis, (dim, size) in enumerate(self.grid.items()):
            if self.areas is not None and dim in self.areas.dims:
                continue
            widths = cell_widths(np.asarray(self.coordinates.get(dim, np.arange(size))))
            shape = [1] * len(self.grid)
            shape[axis] = size
            out *= (widths / widths.mean()).reshape(shape)
        if self.valid is not None:
            out = np.where(self.valid, out, 0.0)
            out /= out.mean()
        return out

    def to_json(self) -> dict[str, Any]:
        """Return JSON types; `from_json` undoes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Layout:
        """Return the layout of a result of `to_json`."""

        def variable(entry: dict[str, Any]) -> Variable:
            lists: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()
            }
            return Variable(**lists)

        parts = {k: tuple(variable(e) for e in values[k]) for k in ("inputs", "outputs")}
        areas, steps = values.get("areas"), values.get("step_range")
        if areas is not None:
            areas = CellAreas(tuple(areas["dims"]), areas["values"], areas["latitudes"])
        further = {
            "leads": tuple(values.get("leads", ())),
            "areas": areas,
            "step_range": None if steps is None else (float(steps[0]), float(steps[1])),
        }
        return cls(**{**values, **parts, **further})


def weights_of_step(
    weights: np.ndarray | float, layout: Layout, frame: Mapping[str, np.ndarray]
) -> np.ndarray | float:
    """Return the weights of cells at the time of a frame, of mean 1 or all 0.

    Args:
        weights: (*grid) for all times, or 1.
        layout: without a mask of each step the weights stay.
        frame: {variable: (*grid)}.
    """
    if not layout.mask_of_step:
        return weights
    left: np.ndarray = weights * (frame[layout.mask_of_step] > 0.5)
    mean = left.mean()
    return left / mean if mean else left


def earlier_name(name: str, age: int) -> str:
    """Return the name of a variable's value `age` leads before the present.

    Example:
        >>> earlier_name("u", 0), earlier_name("u", 2)
        ('u', 'u@-2')
    """
    return f"{name}@-{age}" if age else name


def cell_widths(coordinate: np.ndarray) -> np.ndarray:
    """Return the widths of the cells around points; the outer faces mirror the inner ones.

    Example:
        >>> cell_widths(np.array([0.0, 1.0, 3.0])).tolist()
        [1.0, 1.5, 2.0]
    """
    if len(coordinate) < 2:
        return np.ones(len(coordinate))
    middle = 0.5 * (coordinate[1:] + coordinate[:-1])
    first, last = 2 * coordinate[0] - middle[0], 2 * coordinate[-1] - middle[-1]
    return np.abs(np.diff(np.concatenate([[first], middle, [last]])))


def read_layout(
    dataset: xr.Dataset,
    inputs: Sequence[str],
    outputs: Sequence[str],
    sample_dim: str,
    *,
    grid: Sequence[str] | None = None,
    lead: int = 1,
    where: str = "",
) -> Layout:
    """Return the layout of the variables of an opened dataset: grid, fields and vectors.

    Args:
        dataset: lazily opened; only coordinates are read.
        inputs: names.
        outputs: names.
        sample_dim: the dim that counts samples.
        grid: names of the grid dims; by default those of the variable with most dims.
        lead: samples from input to output.
        where: file to name in messages.

    Raises:
        DataError: a variable without the sample dim, or fields on different grids.
        ConfigError: more than three grid dims.
    """
    arrays = {name: dataset[name] for name in (*inputs, *outputs)}
    for name, array in arrays.items():
        if sample_dim not in array.dims:
            raise DataError(
                f"no dim {sample_dim!r}; its dims are {', '.join(map(str, array.dims))}",
                where=f"{where}: variable {name}",
                fix="data.sample_dim=NAME of the dim that counts samples, or data.dims for a "
                "file without names",
            )
    dims = {n: tuple(str(d) for d in a.dims if d != sample_dim) for n, a in arrays.items()}
    names = tuple(grid) if grid is not None else max(dims.values(), key=len)
    if len(names) > MAX_GRID_DIMS:
        raise ConfigError(
            f"{len(names)} space dims ({', '.join(names)})",
            where="data.grid",
            allowed=f"at most {MAX_GRID_DIMS}",
            fix=f"data.grid={list(names[-MAX_GRID_DIMS:])} if the first ones count samples",
        )
    sizes = _grid_sizes(arrays, dims, names, where)
    coordinates = {
        d: np.asarray(dataset[d].values, dtype=np.float64).tolist()
        for d in names
        if d in dataset.coords and dataset[d].dtype.kind in "fiu"
    }

    def variable(name: str) -> Variable:
        array, own = arrays[name], dims[name]
        field = bool(names) and set(own) == set(names)
        order = names if field else own
        return Variable(
            name,
            order,
            tuple(array.sizes[d] for d in order),
            str(array.attrs.get("units", "")),
            field,
            str(array.attrs.get("long_name", "")),
        )

    return Layout(
        tuple(map(variable, inputs)),
        tuple(map(variable, outputs)),
        sizes,
        coordinates,
        sample_dim,
        _even_step(dataset, sample_dim, lead),
        areas=areas_in(dataset, names),
    )


def areas_in(dataset: xr.Dataset, grid: Sequence[str]) -> CellAreas | None:
    """Return the areas that a dataset has as the coordinate AREA along dims of the grid."""
    if AREA not in dataset.coords or not set(dataset[AREA].dims) <= set(grid):
        return None
    dims = tuple(map(str, dataset[AREA].dims))
    latitudes: list[float] = []
    if LATITUDE in dataset.coords and dataset[LATITUDE].dims == dims and len(dims) == 1:
        latitudes = dataset[LATITUDE].values.tolist()
    return CellAreas(dims, dataset[AREA].values.tolist(), latitudes)


def _grid_sizes(
    arrays: dict[str, xr.DataArray],
    dims: dict[str, tuple[str, ...]],
    names: tuple[str, ...],
    where: str,
) -> dict[str, int]:
    for name, own in dims.items():
        if len(own) == len(names) and set(own) != set(names):
            raise DataError(
                f"its space dims {own} are not those of the grid, {names}",
                where=f"{where}: variable {name}",
                fix="interpolate to one grid, or name the grid: data.grid=[...]",
            )
    carrier = next((a for n, a in arrays.items() if set(dims[n]) == set(names)), None)
    if carrier is None:
        raise DataError(
            f"no variable has the grid dims {names}",
            where=where,
            allowed="; ".join(f"{n}: {', '.join(d) or 'none'}" for n, d in dims.items()),
        )
    return {d: int(carrier.sizes[d]) for d in names}


def _even_step(dataset: xr.Dataset, sample_dim: str, lead: int) -> float | None:
    """Return the step of the sample coordinate times `lead`; None unless numeric and even."""
    if sample_dim not in dataset.coords or dataset[sample_dim].dtype.kind not in "fiu" or not lead:
        return None
    steps = np.diff(np.asarray(dataset[sample_dim].values, dtype=np.float64))
    if not len(steps) or np.ptp(steps) > 1e-3 * abs(steps.mean()):
        return None
    return float(steps.mean() * lead)
