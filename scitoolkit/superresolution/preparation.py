"""What a training measures on its data: equations, names, statistics and the header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.campaign.kept import Ranks, training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.superresolution.checking import CheckReport, check
from scitoolkit.superresolution.config import FieldsConfig, SuperresolutionConfig
from scitoolkit.superresolution.crops import layout_of
from scitoolkit.superresolution.equations import PDE
from scitoolkit.superresolution.fitted_constants import used_constants
from scitoolkit.superresolution.grid import RectilinearGrid, grid_of, numeric_attributes
from scitoolkit.superresolution.network import Header
from scitoolkit.superresolution.simulations import Simulations
from scitoolkit.training.processes import on_rank_zero, share_work


def training_grid(
    config: SuperresolutionConfig, simulations: Simulations, numbers: Sequence[int]
) -> RectilinearGrid:
    """Return the grid of the first training simulation."""
    data, dataset = config.data, simulations.dataset(numbers[0])
    return grid_of(dataset, simulations.fields, data.dims, data.periodic, simulations.where)


def checked(
    config: SuperresolutionConfig, simulations: Simulations, numbers: Sequence[int]
) -> CheckReport | None:
    """Return how the equations hold on the first training simulation; None without equations."""
    pde = equations_of(config, simulations, numbers)
    if pde is None:
        return None
    first, periodic = simulations.dataset(numbers[0]), config.data.periodic
    return check(pde, first, periodic=periodic, where=simulations.where)


def header_of(
    config: SuperresolutionConfig, simulations: Simulations, numbers: Sequence[int]
) -> Header:
    """Return the description of the training data; check names and equations of the job.

    The check is `simulations.report` afterwards.
    """
    dataset, fields = simulations.dataset(numbers[0]), simulations.fields
    grid = training_grid(config, simulations, numbers)
    layout = layout_of(grid, config.crop, config.data.walled)
    require_names(config, grid, fields)
    pde = equations_of(config, simulations, numbers)
    report = simulations.report = checked(config, simulations, numbers)
    scales = (
        {e.name: float(np.sqrt(sum(v**2 for v in e.terms.values()))) for e in report.equations}
        if report
        else {}
    )
    spacing = [
        float(np.diff(nodes[::every]).mean()) if len(nodes) > every else 0.0
        for nodes, every in zip(grid.nodes, layout.every, strict=True)
    ]
    return Header(
        fields=tuple(fields),
        units=tuple(str(dataset[f].attrs.get("units", "1")) for f in fields),
        dims=grid.dims,
        dim_units=grid.units,
        periods=grid.periods,
        layout=layout,
        extents=tuple((float(n[0]), float(n[-1])) for n in grid.nodes),
        spacing=tuple(spacing),
        scales=scales,
        constants=dict(pde.names.constants) if pde else {},
        mirrors=dict(config.crop.symmetries.mirror),
        used=tuple(used_constants(pde)) if pde else (),
        coarser=tuple(config.crop.coarser),
    )


def equations_of(
    config: SuperresolutionConfig, simulations: Simulations, numbers: Sequence[int]
) -> PDE | None:
    """Return the configured equations, with numeric attributes of the files as constants.

    Raises:
        DataError: simulations with different constants in the equations.
    """
    if not config.pde.equations:
        return None
    first = simulations.dataset(numbers[0])
    dims = config.data.dims or [str(d) for d in first[simulations.fields[0]].dims]

    def parsed(number: int) -> PDE:
        return PDE.parse(
            config.pde.equations,
            fields=simulations.fields,
            dims=dims,
            constants=config.pde.constants,
            attributes=numeric_attributes(simulations.dataset(number)),
        )

    pde = parsed(numbers[0])
    used = used_constants(pde)
    # Simulations with the same attributes have the same constants: their equations need no parsing.
    same = {tuple(sorted(numeric_attributes(first).items()))}
    for number in numbers[1:]:
        stated = tuple(sorted(numeric_attributes(simulations.dataset(number)).items()))
        if stated in same:
            continue
        constants = parsed(number).names.constants
        for name in used:
            if constants[name] != pde.names.constants[name]:
                raise DataError(
                    f"{name} is {constants[name]:g}, and {pde.names.constants[name]:g} in "
                    f"simulation {simulations.label(numbers[0])}",
                    where=f"simulation {simulations.label(number)}: pde.equations",
                    fix="train on simulations with the same constants, or leave pde out",
                )
        same.add(stated)
    return pde


def require_names(
    config: SuperresolutionConfig, grid: RectilinearGrid, fields: Sequence[str]
) -> None:
    """Check the fields and dims that boundaries, flow and stages name.

    Raises:
        ConfigError: an unknown name, or a boundary across a periodic dim.
    """
    named: list[tuple[str, str, Sequence[str]]] = []
    named += [("flow.velocity", d, grid.dims) for d in config.flow.velocity]
    named += [("flow.velocity", f, fields) for f in config.flow.velocity.values()]
    if config.flow.time is not None:
        named.append(("flow.time", config.flow.time, grid.dims))
    for number, condition in enumerate(config.boundaries):
        named.append((f"boundaries.{number}.field", condition.field, fields))
        named.append((f"boundaries.{number}.dim", condition.dim, grid.dims))
    for number, stage in enumerate(config.model.encoder.stages):
        key = f"model.encoder.stages.{number}.refine"
        named += [(key, dim, grid.dims) for dim in stage.refine]
    for key, name, allowed in named:
        if name not in allowed:
            raise ConfigError(
                f"{name!r} is not one of the {'fields' if allowed is fields else 'dims'}",
                where=key,
                allowed=", ".join(allowed),
                fix=nearest_name(name, list(allowed)) or "",
            )
    for number, condition in enumerate(config.boundaries):
        if grid.periods[grid.dims.index(condition.dim)] is not None:
            raise ConfigError(
                f"{condition.dim} is periodic and has no boundary",
                where=f"boundaries.{number}.dim",
                fix="leave the boundary out",
            )


def statistics_of(
    simulations: Simulations,
    numbers: Sequence[int],
    data: FieldsConfig,
    *,
    cache: Path | None = None,
    sample: bool = False,
) -> list[tuple[float, float]]:
    """Return (mean, standard deviation) of each field over some simulations.

    Raises:
        DataError: a field that is constant or not finite.
    """
    opened = simulations.opened
    moments, source = training_moments(
        opened.found,
        opened.rows,
        [simulations.blocks[n] for n in numbers],
        Question(0, allow_suspect=data.allow_suspect),
        cache=cache,
        sample=sample,
        ranks=Ranks(share_work, on_rank_zero),
    )
    out = []
    for name in simulations.fields:
        if moments.values[name].is_constant.all() and source != "sample":
            raise DataError(
                "the field is constant",
                where=f"variable {name}",
                fix="leave it out of data.fields",
            )
        mean, std = moments.values[name].result()
        out.append((float(mean[0]), float(std[0])))
    return out
