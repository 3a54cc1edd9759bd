"""Facts of files: units, kinds, roles, steps and directions that their metadata state.

`of_dataset` reads coordinates only. `convert` makes data those of the training where `compare`
found an exact conversion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scitoolkit.core.data_differences import Difference
from scitoolkit.core.data_facts import DataFacts, Dim, Role, Step, Var
from scitoolkit.core.errors import DataError
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit, stated_unit
from scitoolkit.io.calendar_steps import calendar_steps
from scitoolkit.io.meanings import meaning_of
from scitoolkit.io.roles import roles_of

if TYPE_CHECKING:
    import xarray as xr

Kind = Literal["real", "integer", "complex", "other"]
_KINDS: dict[str, Kind] = {
    "f": "real",
    "i": "integer",
    "u": "integer",
    "b": "integer",
    "c": "complex",
}


def of_dataset(dataset: xr.Dataset, names: Iterable[str]) -> DataFacts:
    """Return the facts of variables of an opened dataset.

    Args:
        dataset: opened with dates decoded; values of fields are not read.
        names: the variables that the model uses.

    Example:
        >>> import xarray as xr
        >>> u = xr.DataArray([1.0, 2.0, 3.0], dims="t", coords={"t": [0.0, 0.5, 1.0]})
        >>> of_dataset(u.to_dataset(name="u"), ["u"]).dim("time").step.number
        0.5
    """
    variables = tuple(
        Var(
            name,
            stated_unit(dataset[name].attrs),
            _KINDS.get(dataset[name].dtype.kind, "other"),
            tuple(map(str, dataset[name].dims)),
            **meaning_of(dataset[name].attrs),
        )
        for name in dict.fromkeys(names)
    )
    dims = dict.fromkeys(d for v in variables for d in v.dims)
    coordinates = {d: dataset[d] for d in dims if d in dataset.coords}
    attributes = {d: _attributes(c) for d, c in coordinates.items()}
    roles = roles_of(list(dims), attributes)
    return DataFacts(
        variables, tuple(_dim(d, roles[d], dataset.sizes[d], coordinates.get(d)) for d in dims)
    )


def _attributes(coordinate: xr.DataArray) -> dict[str, Any]:
    """Return the attributes of a coordinate; decoded dates get back the unit of a time."""
    if is_dates(coordinate.values):
        return {**coordinate.attrs, "units": "days since 1970-01-01"}
    return dict(coordinate.attrs)


def is_dates(values: np.ndarray) -> bool:
    """Return whether values are dates: datetime64, or cftime objects."""
    return values.dtype.kind == "M" or bool(
        values.dtype.kind == "O" and values.size and hasattr(values.flat[0], "calendar")
    )


def _dim(name: str, role: Role, size: int, coordinate: xr.DataArray | None) -> Dim:
    if coordinate is None:
        return Dim(name, role, size)
    values = coordinate.values
    if is_dates(values):
        seconds = seconds_of(values)
        stored = str(coordinate.encoding.get("calendar", "standard"))
        calendar = str(values.flat[0].calendar) if values.dtype.kind == "O" else stored
        direction = _direction(seconds)
        ends = float(seconds[0]), float(seconds[-1])
        return Dim(
            name, role, size, "dates", "", calendar, direction, step_of(values), ends[0], ends[1]
        )
    units = str(coordinate.attrs.get("units", ""))
    if values.dtype.kind == "m":
        missing = np.isnat(values)
        values, units = np.where(missing, np.nan, values / np.timedelta64(1, "s")), "s"
    if values.dtype.kind not in "iuf":
        return Dim(name, role, size, "other")
    if not size:
        return Dim(name, role, size)
    numbers = values.astype(np.float64)
    step, direction = step_of(numbers, units), _direction(numbers)
    period, repeats = _period(coordinate, role, numbers, step)
    return Dim(
        name,
        role,
        size,
        "numbers",
        units,
        "",
        direction,
        step,
        float(numbers[0]),
        float(numbers[-1]),
        period,
        repeats,
        _positions(numbers, step),
        str(coordinate.attrs.get("positive", "")).strip().lower(),
    )


def _direction(numbers: np.ndarray) -> int:
    """Return 1 for increasing, -1 for decreasing numbers, 0 for one entry or a missing end."""
    rise = numbers[-1] - numbers[0] if len(numbers) > 1 else 0.0
    return int(rise > 0) - int(rise < 0)


def _period(
    coordinate: xr.DataArray, role: Role, numbers: np.ndarray, step: Step | None
) -> tuple[float | None, bool]:
    """Return the period of a coordinate, and whether both of its ends are stored."""
    stated = coordinate.attrs.get("period")
    period = 360.0 if role == "longitude" and stated is None else stated
    if period is None or step is None or not step.is_even:
        return (None if stated is None else float(stated)), False
    length = abs(float(numbers[-1] - numbers[0]))
    tolerance = 1e-2 * step.number
    if abs(length - float(period)) <= tolerance:
        return float(period), True
    # The error of a rounded step adds up over the cells around the circle.
    closed = abs(length + step.number - float(period)) <= tolerance * max(1, len(numbers) / 10)
    return (float(period) if closed or stated is not None else None), False


def _positions(numbers: np.ndarray, step: Step | None) -> str:
    """Return a digest of relative positions; "" for even cells, which first and last describe."""
    if step is None or step.is_even or not np.isfinite(numbers).all():
        return ""
    low, high = numbers.min(), numbers.max()
    relative = np.sort((numbers - low) / (high - low if high > low else 1.0))
    # The odd factor keeps round fractions off the edges of the bins, where float32 would flip them.
    bins = np.floor(relative * 10123.0 + 0.317).astype(np.int64)
    return hashlib.sha256(bins.tobytes()).hexdigest()[:16]


def seconds_of(dates: np.ndarray) -> np.ndarray:
    """Return the seconds since 1970-01-01 of dates, in their calendar; shape as given."""
    if dates.dtype.kind == "M":
        return (dates - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    import cftime

    unit, calendar = "seconds since 1970-01-01", dates.flat[0].calendar
    return np.asarray(cftime.date2num(dates, unit, calendar=calendar), np.float64)


def step_of(times: np.ndarray, units: str = "") -> Step | None:
    """Return the step of a coordinate; None for fewer than two entries.

    Args:
        times: (N) dates of any calendar, or numbers.
        units: unit of numbers.

    Example:
        >>> months = np.array(["2000-01-15", "2000-02-14", "2000-03-15"], "datetime64[s]")
        >>> str(step_of(months))
        '1 month'
    """
    if len(times) < 2:
        return None
    if not is_dates(times):
        steps = np.diff(times.astype(np.float64))
        if (steps < 0).all():
            steps = -steps
        low, high = float(steps.min()), float(steps.max())
        return Step(float(np.median(steps)), units, low, high)
    seconds = np.diff(seconds_of(times))
    if (seconds < 0).all():
        seconds = -seconds
    counted = calendar_steps(times if len(times) < 2 or times[0] < times[-1] else times[::-1])
    if counted is not None:
        between = np.diff(counted.counts)
        low, high = float(between.min()), float(between.max())
        return Step(float(counted.step), counted.unit, low, high)
    return Step(float(np.median(seconds)), "s", float(seconds.min()), float(seconds.max()))


def convert(dataset: xr.Dataset, differences: Sequence[Difference]) -> xr.Dataset:
    """Return the dataset with the units, directions and order of dims of the training.

    Values are converted when they are read; attributes `units` become those of the training.
    """
    conversions = [d for d in differences if d.conversion is not None]
    for difference in conversions:
        change = difference.conversion
        assert change is not None
        if change.action == "flip":
            dataset = dataset.isel({change.target: slice(None, None, -1)})
        elif change.action == "roll":
            dataset = _rolled(dataset, change.target, change.shift)
        elif change.action == "transpose":
            array = dataset[change.target]
            dataset = dataset.assign({change.target: array.transpose(*change.dims, ...)})
        else:
            unit = difference.trained.removeprefix("unit ")
            array = dataset[change.target]
            # In float64, because an offset such as 273.15 is not exact in float32.
            converted = array.astype(np.float64) * change.factor + change.offset
            converted = converted.astype(np.result_type(array.dtype, np.float32))
            attributes = {**array.attrs, "units": unit}
            dataset = dataset.assign({change.target: converted.assign_attrs(attributes)})
    return dataset


def convert_coordinate(dataset: xr.Dataset, trained: Dim, dim: Dim, where: str) -> xr.Dataset:
    """Return the dataset with the coordinate of a dim in the unit of the training.

    Args:
        dataset: the data.
        trained: the dim in the training data.
        dim: the dim in the data.
        where: the file, for messages.

    Raises:
        DataError: units that do not convert.
    """
    units = trained.units, dim.units
    if "numbers" not in (trained.kind, dim.kind) or same_unit(*units) or not all(units):
        return dataset
    line = conversion(units[1], units[0])
    if line is None:
        raise DataError(f"dim {dim.name}: unit {units[1]}", where=where, allowed=f"unit {units[0]}")
    values = dataset[dim.name].values.astype(np.float64) * line[0] + line[1]
    attributes = {**dataset[dim.name].attrs, "units": units[0]}
    if "period" in attributes:
        attributes["period"] = float(attributes["period"]) * line[0]
    return dataset.assign_coords({dim.name: (dim.name, values, attributes)})


def _rolled(dataset: xr.Dataset, dim: str, shift: int) -> xr.Dataset:
    """Return a dataset whose first `shift` entries of a periodic dim are at its end."""
    size = dataset.sizes[dim]
    return dataset.isel({dim: (np.arange(size) + shift) % size})


def of_atoms(
    species: Iterable[str], labels: Mapping[str, str], periodic: Iterable[bool] = ()
) -> DataFacts:
    """Return the facts of frames of atoms.

    Args:
        species: chemical symbols.
        labels: unit of each label, such as {"energy": "eV", "forces": "eV/Angstrom"}.
        periodic: whether the cell repeats along each of its vectors.
    """
    repeats = tuple(periodic)
    dims = tuple(
        Dim(f"cell vector {n}", "space", 1, period=1.0 if wraps else None)
        for n, wraps in enumerate(repeats)
    )
    return DataFacts((), dims, species=tuple(sorted(set(species))), labels=dict(labels))


def of_graph(features: Mapping[str, np.ndarray], roles: Mapping[str, str]) -> DataFacts:
    """Return the facts of a graph or mesh.

    Args:
        features: arrays by name; all dims but the first are components of an entry.
        roles: `node`, `edge`, `label` by name.
    """
    variables = tuple(
        Var(
            name,
            kind=_KINDS.get(array.dtype.kind, "other"),
            dims=(roles.get(name, "node"),),
            role=roles.get(name, "node"),
            shape=tuple(int(n) for n in array.shape[1:]),
        )
        for name, array in features.items()
    )
    return DataFacts(variables)
