"""Training, evaluation and application of continuous super-resolution models."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.job import Finding
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.fields import open_fields, write_fields
from scitoolkit.io.loader import BatchLoader
from scitoolkit.superresolution.checking import CheckReport
from scitoolkit.superresolution.checking import check as check_equations
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.crops import CropSource, Layout, layout_of, statistics_of
from scitoolkit.superresolution.equations import PDE, Residuals
from scitoolkit.superresolution.grid import Grid, grid_of, numeric_attributes
from scitoolkit.superresolution.surrogate import Header, SuperresolutionSurrogate, build
from scitoolkit.superresolution.task import Physics, SuperresolutionTask
from scitoolkit.training import Trainer, best_weights, current_rank, world_size

log: Logger = get_logger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The data of a job, opened and measured."""

    dataset: xr.Dataset
    grid: Grid
    layout: Layout
    header: Header
    pde: PDE | None
    report: CheckReport | None


def validate(config: SuperresolutionConfig) -> list[Finding]:
    """Return the residual of the true data in every equation."""
    with opened(config.data.path, config) as dataset:
        pde = equations_of(config, dataset)
        assert pde is not None
        periodic, where = config.data.periodic, str(config.data.path)
        report = check_equations(pde, dataset, periodic=periodic, where=where)
    level: Literal["warning", "note"] = "note" if report.satisfied else "warning"
    return [Finding(f"the equations on the true data:\n{report}", "pde.equations", level)]


def check(config: SuperresolutionConfig) -> Mapping[str, Any]:
    """Open the data, check the equations on it, run one batch; write nothing."""
    with opened(config.data.path, config) as dataset:
        prepared = prepare(config, dataset)
        task = make_task(config, prepared)
        loader = make_loader(config, prepared)
        loss, parts = task.loss(next(iter(loader)))
        head = prepared.header
        return {
            "fields": list(head.fields),
            "nodes": dict(zip(head.dims, prepared.grid.shape, strict=True)),
            "low_resolution": dict(zip(head.dims, head.window, strict=True)),
            "parameters": sum(p.numel() for p in task.model.parameters()),
            "residual_over_terms": prepared.report.ratios if prepared.report else {},
            "first_loss": float(loss.detach()),
            "parts": {k: float(v) for k, v in parts.items()},
            "loader": loader.explain(),
        }


def train(config: SuperresolutionConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train on random crops and save `model/`."""
    begin = time.process_time()
    with opened(config.data.path, config) as dataset:
        prepared = prepare(config, dataset)
        if prepared.report is not None:
            log.info("the equations on the true data:\n%s", prepared.report)
            if not prepared.report.satisfied and config.pde.weight:
                log.warning("an equation in the loss does not hold for the training data")
        task = make_task(config, prepared)
        trainer = Trainer(task, config.training, run=run)
        trainer.fit(make_loader(config, prepared), resume=resume)
    if current_rank() != 0:
        return
    surrogate = SuperresolutionSurrogate(
        prepared.header, build(prepared.header, config.model), config.model
    )
    surrogate.model.load_state_dict(best_weights(run.checkpoints))
    model = ModelFolder.create(run)
    surrogate.save(model.path, half=config.weights_dtype == "float16")
    record = {"steps": trainer.step, "cpu_seconds": time.process_time() - begin}
    model.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Compare with the truth, on the configured test file or another one."""
    from scitoolkit.superresolution import evaluation

    model = ModelFolder(directory)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    source = data or config.data.test
    if source is None:
        raise DataError(
            "no test file: crops of the training run would not be a test",
            where=str(directory), fix=f"scitoolkit evaluate {directory} --data FILE",
        )  # fmt: skip
    with opened(Path(source), config) as dataset:
        found = evaluation.evaluate(surrogate, dataset, config, Path(source).name)
    if model.write_results(found.results, data):
        write_fields(found.maps, Path(directory) / "results.nc")
    return found.results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Refine a coarse file as finely as the model was trained to; stream to `output`."""
    from scitoolkit.superresolution.predict import refined_nodes, stream

    model = ModelFolder(directory)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    with opened(source, config) as dataset:
        coarse = surrogate.coarse(dataset, where=str(source))
        stream(coarse, refined_nodes(coarse), output)


@contextlib.contextmanager
def opened(path: Path, config: SuperresolutionConfig) -> Iterator[xr.Dataset]:
    """Open the fields of a file or pattern; small ones are read into memory."""
    with open_fields(path, config.data.fields) as dataset:
        if dataset.nbytes <= config.data.max_memory_mib * 2**20:
            dataset = dataset.load()
        yield dataset


def equations_of(config: SuperresolutionConfig, dataset: xr.Dataset) -> PDE | None:
    """Return the configured equations with the file's numeric attributes as constants."""
    if not config.pde.equations:
        return None
    dims = config.data.dims or [str(d) for d in dataset[config.data.fields[0]].dims]
    return PDE.parse(
        config.pde.equations, fields=config.data.fields, dims=dims,
        constants=config.pde.constants, attributes=numeric_attributes(dataset),
    )  # fmt: skip


def prepare(config: SuperresolutionConfig, dataset: xr.Dataset) -> Prepared:
    """Measure the training data and check the equations on it."""
    data, where = config.data, str(config.data.path)
    grid = grid_of(dataset, data.fields, data.dims, data.periodic, where)
    layout = layout_of(grid, config.crop, data.walled)
    pde = equations_of(config, dataset)
    report = check_equations(pde, dataset, periodic=data.periodic, where=where) if pde else None
    scales = {
        e.name: float(np.sqrt(sum(v**2 for v in e.terms.values()))) for e in report.equations
    } if report else {}  # fmt: skip
    moments = statistics_of(dataset, data.fields, grid)
    spacing = [
        float(np.diff(nodes[::every]).mean()) if len(nodes) > every else 0.0
        for nodes, every in zip(grid.nodes, layout.every, strict=True)
    ]
    header = Header(
        fields=tuple(data.fields),
        units=tuple(str(dataset[f].attrs.get("units", "1")) for f in data.fields),
        dims=grid.dims, dim_units=grid.units, periods=grid.periods, layout=layout,
        extents=tuple((float(n[0]), float(n[-1])) for n in grid.nodes),
        spacing=tuple(spacing), mean=tuple(map(float, moments["mean"])),
        std=tuple(map(float, moments["std"])), scales=scales,
        constants=dict(pde.names.constants) if pde else {},
        mirrors=dict(config.crop.symmetries.mirror),
    )  # fmt: skip
    return Prepared(dataset, grid, layout, header, pde, report)


def make_task(config: SuperresolutionConfig, prepared: Prepared) -> SuperresolutionTask:
    """Return the task with a freshly initialised model."""
    torch.manual_seed(config.seed)
    physics = None
    if prepared.pde is not None:
        residuals = Residuals(prepared.pde, combine=config.pde.combine)
        physics = Physics(residuals, config.pde, prepared.header.scales)
    return SuperresolutionTask(
        build(prepared.header, config.model), loss=config.loss, physics=physics,
        boundaries=config.boundaries, boundary_weight=config.boundary_weight,
        fields=prepared.header.fields, dims=prepared.header.dims,
    )  # fmt: skip


def make_loader(config: SuperresolutionConfig, prepared: Prepared) -> BatchLoader:
    """Return the loader of random crops."""
    source = CropSource(
        prepared.dataset, config.data.fields, prepared.grid, prepared.layout, config.crop,
        seed=config.seed, pde_points=config.pde.points if config.pde.weight else 0,
    )  # fmt: skip
    return BatchLoader(
        source, config.training.batch_size, seed=config.training.seed,
        rank=current_rank(), world_size=world_size(),
    )  # fmt: skip
