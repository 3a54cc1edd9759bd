"""Training, evaluation and application of continuous super-resolution models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import Logger
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from scitoolkit.core.data_differences import Accepts, problems, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.job import Finding
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.campaign.kept import Ranks, training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import BatchLoader
from scitoolkit.io.parts import identity
from scitoolkit.superresolution.checking import CheckReport
from scitoolkit.superresolution.checking import check as check_equations
from scitoolkit.superresolution.config import FieldsConfig, SuperresolutionConfig
from scitoolkit.superresolution.crops import CropSource, Layout, layout_of
from scitoolkit.superresolution.equations import PDE, Residuals
from scitoolkit.superresolution.facts import (
    as_trained,
    fields_facts,
    header_facts,
    require_like,
)
from scitoolkit.superresolution.fitted_constants import used_constants
from scitoolkit.superresolution.grid import Grid, grid_of, numeric_attributes
from scitoolkit.superresolution.masked import valid_nodes
from scitoolkit.superresolution.simulations import (
    Simulations,
    open_simulations,
    parts_of,
    require_alone,
)
from scitoolkit.superresolution.spectrum import WaveGains
from scitoolkit.superresolution.surrogate import Header, SuperresolutionSurrogate, build
from scitoolkit.superresolution.task import Physics, SuperresolutionTask
from scitoolkit.training import Trainer, current_rank, load_best, world_size
from scitoolkit.training.processes import on_rank_zero, share_work

log: Logger = get_logger(__name__)
CACHE = ".campaigns"
"""Folder next to the runs that caches indices and statistics."""


@dataclass(frozen=True)
class Prepared:
    """Opened data of a job with statistics and checked equations."""

    simulations: Simulations
    parts: dict[str, list[int]]
    grid: Grid
    layout: Layout
    header: Header
    pde: PDE | None
    report: CheckReport | None
    facts: DataFacts


def validate(config: SuperresolutionConfig) -> list[Finding]:
    """Check the equations on the training data."""
    simulations = open_simulations(config.data.path, config.data)
    numbers = parts_of(config, simulations)["train"]
    pde = equations_of(config, simulations, numbers)
    assert pde is not None
    report = check_equations(
        pde, simulations.dataset(numbers[0]), periodic=config.data.periodic, where=simulations.where
    )
    level: Literal["warning", "note"] = "note" if report.satisfied else "warning"
    return [Finding(f"the equations on the true data:\n{report}", "pde.equations", level)]


def check(config: SuperresolutionConfig) -> Mapping[str, Any]:
    """Open the data, check the equations and compute the loss of one batch; write nothing."""
    prepared = prepare(config, sample=True)
    task = make_task(config, prepared)
    loader = make_loader(config, prepared)
    loss, parts = task.loss(next(iter(loader)))
    head = prepared.header
    return {
        "fields": list(head.fields),
        "nodes": dict(zip(head.dims, prepared.grid.shape, strict=True)),
        "low_resolution": dict(zip(head.dims, head.window, strict=True)),
        "campaign": prepared.simulations.opened.found.describe(),
        "simulations": {name: len(numbers) for name, numbers in prepared.parts.items()},
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "residual_over_terms": prepared.report.ratios if prepared.report else {},
        "first_loss": float(loss.detach()),
        "parts": {k: float(v) for k, v in parts.items()},
        "loader": loader.explain(),
    }


def train(config: SuperresolutionConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train on random crops and save `model/`."""
    begin = time.process_time()
    prepared = prepare(config)
    if prepared.report is not None:
        log.info("the equations on the true data:\n%s", prepared.report)
        if not prepared.report.satisfied and config.pde.weight:
            log.warning("an equation of the loss does not hold for the training data")
    task = make_task(config, prepared)
    trainer = Trainer(task, config.training, run=run)
    validation = (
        make_loader(config, prepared, "validation") if prepared.parts["validation"] else None
    )
    trainer.fit(make_loader(config, prepared), validation, resume=resume)
    if current_rank() != 0:
        return
    surrogate = SuperresolutionSurrogate(
        prepared.header, build(prepared.header, config.model), config.model
    )
    load_best(surrogate.model, run.checkpoints)
    model = ModelFolder.create(run)
    surrogate.save(model.path, config.weights_dtype)
    model.save_facts(prepared.facts)
    if config.spectrum is not None:
        from scitoolkit.superresolution.evaluation import measure_gains

        delivered = SuperresolutionSurrogate.load(model.path)
        apart = open_simulations(config.spectrum, config.data, fields=surrogate.header.fields)
        measure_gains(delivered, require_alone(apart), apart.where).save(model.path)
    record = {
        "steps": trainer.step,
        "cpu_seconds": time.process_time() - begin,
        "parts": prepared.parts,
    }
    model.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the configured test simulations or on another file."""
    from scitoolkit.superresolution import evaluation

    model = ModelFolder(directory)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    placed(surrogate.model)
    source = data or config.data.test
    simulations = open_simulations(
        config.data.path if source is None else source,
        config.data,
        fields=surrogate.header.fields,
        learned=False,
    )
    facts = trained_facts(model, surrogate.header)
    numbers = list(range(len(simulations)))
    if source is None:
        numbers = model.record().get("parts", {}).get("test", [])
    if not numbers:
        raise DataError(
            "no test file; crops of the training data would not be a test",
            where=str(directory),
            fix=f"scitoolkit evaluate {directory} --data FILE",
        )
    found, gains = [], WaveGains.load(model.path)
    for number in numbers:
        name = simulations.label(number) if len(simulations) > 1 else Path(simulations.where).name
        found.append(
            evaluation.evaluate(
                surrogate,
                as_trained(simulations.dataset(number), facts, surrogate.header.fields, str(name)),
                config,
                name,
                gains,
                partial(valid_nodes, simulations),
            )
        )
    results = evaluation.over_simulations([f.results for f in found], surrogate.header.fields)
    if model.write_results(results, data):
        write_fields(found[0].maps, Path(directory) / "results.nc")
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Refine a coarse file to the resolution of the training and stream it to `output`."""
    from scitoolkit.superresolution.predict import refined_nodes, stream

    model = ModelFolder(directory)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    placed(surrogate.model)
    simulations = open_simulations(
        source, config.data, fields=surrogate.header.fields, learned=False
    )
    head = surrogate.header
    dataset = as_trained(
        require_alone(simulations),
        trained_facts(model, head),
        head.fields,
        str(source),
        dict(zip(head.dims, head.layout.every, strict=True)),
    )
    coarse = surrogate.coarse(dataset, str(source), partial(valid_nodes, simulations))
    about = {"model": model.digest(), "file": identity(source)}
    gains = WaveGains.load(model.path)
    stream(coarse, refined_nodes(coarse), output, gains=gains, about=about)


def trained_facts(model: ModelFolder, header: Header) -> DataFacts:
    """Return the facts of the training data; of older models those of the header."""
    facts = model.facts()
    if facts is None:
        log.info("%s has no facts: steps and dates are not compared", model.directory)
        return header_facts(header.fields, header.units, header.dims, header.dim_units)
    return facts


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
    same = {tuple(sorted(numeric_attributes(first).items()))}
    for number in numbers[1:]:
        stated = tuple(sorted(numeric_attributes(simulations.dataset(number)).items()))
        if stated in same:
            continue
        found = parsed(number).names.constants
        for name in used:
            if found[name] != pde.names.constants[name]:
                raise DataError(
                    f"{name} is {found[name]:g}, and {pde.names.constants[name]:g} in simulation "
                    f"{simulations.label(numbers[0])}",
                    where=f"simulation {simulations.label(number)}: pde.equations",
                    fix="train on simulations with the same constants, or leave pde out",
                )
        same.add(stated)
    return pde


def prepare(config: SuperresolutionConfig, *, sample: bool = False) -> Prepared:
    """Open the training data, measure statistics and check the equations.

    Args:
        config: the job.
        sample: if no statistics are cached, measure them on a few rows.
    """
    data, cache = config.data, config.run.root / CACHE
    if world_size() > 1:
        # Rank 0 scans the files; the others read its index.
        on_rank_zero(lambda: open_simulations(data.path, data, cache=cache).where)
    simulations = open_simulations(data.path, data, cache=cache, keep=not sample)
    parts, where = parts_of(config, simulations), simulations.where
    dataset, fields = simulations.dataset(parts["train"][0]), simulations.fields
    grid = grid_of(dataset, fields, data.dims, data.periodic, where)
    layout = layout_of(grid, config.crop, data.walled)
    require_names(config, grid, fields)
    pde = equations_of(config, simulations, parts["train"])
    report = check_equations(pde, dataset, periodic=data.periodic, where=where) if pde else None
    scales = (
        {e.name: float(np.sqrt(sum(v**2 for v in e.terms.values()))) for e in report.equations}
        if report
        else {}
    )
    moments = statistics_of(simulations, parts["train"], data, cache=cache, sample=sample)
    spacing = [
        float(np.diff(nodes[::every]).mean()) if len(nodes) > every else 0.0
        for nodes, every in zip(grid.nodes, layout.every, strict=True)
    ]
    header = Header(
        fields=tuple(fields),
        units=tuple(str(dataset[f].attrs.get("units", "1")) for f in fields),
        dims=grid.dims,
        dim_units=grid.units,
        periods=grid.periods,
        layout=layout,
        extents=tuple((float(n[0]), float(n[-1])) for n in grid.nodes),
        spacing=tuple(spacing),
        mean=tuple(mean for mean, _ in moments),
        std=tuple(std for _, std in moments),
        scales=scales,
        constants=dict(pde.names.constants) if pde else {},
        mirrors=dict(config.crop.symmetries.mirror),
    )
    facts = fields_facts(dataset, fields)
    refuse(problems(facts, Accepts(uneven=True)), where)
    for number in parts["train"][1:] + parts["validation"]:
        # Values are read by position later, so every simulation has to be like the first.
        require_like(simulations.dataset(number), facts, fields, simulations.label(number))
    return Prepared(simulations, parts, grid, layout, header, pde, report, facts)


def require_names(config: SuperresolutionConfig, grid: Grid, fields: Sequence[str]) -> None:
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
    for key, name, known in named:
        if name not in known:
            raise ConfigError(
                f"{name!r} is not one of the {'fields' if known is fields else 'dims'}",
                where=key,
                allowed=", ".join(known),
                fix=nearest_name(name, list(known)) or "",
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
    found, source = training_moments(
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
        if found.values[name].is_constant and source != "sample":
            raise DataError(
                "the field is constant",
                where=f"variable {name}",
                fix="leave it out of data.fields",
            )
        mean, std = found.values[name].result()
        out.append((float(mean[0]), float(std[0])))
    return out


def make_task(config: SuperresolutionConfig, prepared: Prepared) -> SuperresolutionTask:
    """Return the training task with a newly initialised model."""
    torch.manual_seed(config.seed)
    physics = None
    if prepared.pde is not None:
        residuals = Residuals(prepared.pde, combine=config.pde.combine)
        physics = Physics(residuals, config.pde, prepared.header.scales)
    return SuperresolutionTask(
        build(prepared.header, config.model),
        loss=config.loss,
        physics=physics,
        boundaries=config.boundaries,
        boundary_weight=config.boundary_weight,
        fields=prepared.header.fields,
        dims=prepared.header.dims,
    )


def make_loader(
    config: SuperresolutionConfig, prepared: Prepared, part: str = "train"
) -> BatchLoader:
    """Return the loader of random crops of a split."""
    validates = part == "validation"
    source = CropSource(
        prepared.simulations,
        prepared.parts[part],
        prepared.grid,
        prepared.layout,
        config.crop,
        seed=config.seed + validates,
        pde_points=config.pde.points if config.pde.weight and not validates else 0,
    )
    return BatchLoader(
        source,
        config.training.batch_size,
        seed=config.training.seed,
        shuffle=not validates,
        rank=current_rank(),
        world_size=world_size(),
    )
