"""Facts of the fields of a super-resolution model, and files brought to those of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from scitoolkit.core.data_differences import Accepts, compare, problems, refuse
from scitoolkit.core.data_facts import DataFacts, Dim, Var
from scitoolkit.core.errors import DataError
from scitoolkit.io.facts import convert, convert_coordinate, of_dataset, seconds_of, step_of

ACCEPTS = Accepts(grid="any", uneven=True, step="any")
"""One value has no step, and a file may name the time as it likes if the grid takes it."""
SPACING_FACTOR = 1.1
"""Ratio of steps beyond which a time is refused: the model has not seen such a change."""


def fields_facts(dataset: xr.Dataset, fields: Sequence[str]) -> DataFacts:
    """Return the facts of fields on their grid.

    Periods are left out: the grid of the job states them, and another box is allowed.
    """
    facts = of_dataset(dataset, fields)
    return replace(facts, dims=tuple(replace(d, period=None, repeats=False) for d in facts.dims))


def as_trained(
    dataset: xr.Dataset,
    trained: DataFacts,
    fields: Sequence[str],
    where: str,
    every: Mapping[str, int] | None = None,
) -> xr.Dataset:
    """Return fields with the units of the training, of the values and of the coordinates.

    Reversed and transposed dims are left to the grid, which sorts its nodes and states its order.

    Args:
        dataset: fields of one file.
        trained: facts of the training data.
        fields: names of the fields.
        where: the file, for messages.
        every: number of training steps between the nodes of the file along each trained dim; by
            default 1.

    Raises:
        DataError: a missing field, complex numbers, units that do not convert, dates instead of
            numbers or the reverse, or another step of time.
    """
    facts = fields_facts(dataset, [f for f in fields if f in dataset.data_vars])
    expected = _coarsened(trained, every)
    dims = {d.name: d for d in facts.dims}
    differences = [*problems(facts, ACCEPTS), *compare(expected, facts, ACCEPTS)]
    # Opening the files told what is converted.
    refuse([d for d in differences if d.level == "error"], where)
    for dim in expected.dims:
        if dim.name in dims:
            dataset = convert_coordinate(dataset, dim, dims[dim.name], where)
            _require_step(dim, dataset, where)
    affine = [d for d in differences if d.conversion and d.conversion.action == "affine"]
    return convert(dataset, affine)


def require_like(dataset: xr.Dataset, first: DataFacts, fields: Sequence[str], where: str) -> None:
    """Check that a simulation of the training has the units and kinds of the first one.

    Raises:
        DataError: another unit or kind.
    """
    accepts = Accepts(grid="any", step="any", uneven=True, convert=False)
    differences = compare(first, fields_facts(dataset, fields), accepts)
    # The grid sorts reversed dims and states their order.
    refuse([d for d in differences if d.conversion is None], where)


def _coarsened(trained: DataFacts, every: Mapping[str, int] | None) -> DataFacts:
    if every is None:
        return trained
    dims = []
    for dim in trained.dims:
        step, count = dim.step, every.get(dim.name, 1)
        if step is not None:
            values = step.number * count, step.low * count, step.high * count
            step = replace(step, number=values[0], low=values[1], high=values[2])
        dims.append(replace(dim, step=step))
    return replace(trained, dims=tuple(dims))


def _require_step(trained: Dim, dataset: xr.Dataset, where: str) -> None:
    """Check the step of time; other spacings are told, as resolutions and boxes may differ."""
    if trained.role != "time" or trained.step is None or not trained.step.is_even:
        return
    times = dataset[trained.name].values
    if len(times) < 2:
        return
    seconds = trained.kind == "dates"
    numbers = seconds_of(times) if seconds else times.astype(np.float64)
    step = step_of(numbers, "s" if seconds else trained.units)
    if step is None or trained.step.unit not in ("s", trained.units):
        return
    # The median alone would pass over a missing time.
    typical = trained.step.number
    farthest = max(step.low, step.number, step.high, key=lambda number: abs(number - typical))
    if not 1 / SPACING_FACTOR <= farthest / typical <= SPACING_FACTOR:
        raise DataError(
            f"time {trained.name}: a step of {replace(step, number=farthest)}",
            where=where,
            allowed=f"a step of {trained.step}",
            fix="resample to the step of the training",
        )


def header_facts(
    fields: Sequence[str],
    units: Sequence[str],
    dims: Sequence[str],
    dim_units: Sequence[str],
) -> DataFacts:
    """Return the facts in the header of a model that was saved without facts.

    A unit of 1 was also written for data without a unit, so it is unknown here.
    """
    stated = {"": "", "1": ""}
    variables = tuple(
        Var(f, stated.get(u, u), dims=tuple(dims)) for f, u in zip(fields, units, strict=True)
    )
    made = (
        Dim(d, "space", 0, "none", stated.get(u, u)) for d, u in zip(dims, dim_units, strict=True)
    )
    return DataFacts(variables, tuple(made))
