"""Training, evaluation, application and export of emulators."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from logging import Logger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from scitoolkit.core.data_facts import Accepts, compare, refuse
from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Finding
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import report, surrogate
from scitoolkit.emulation.checks import check_mask, check_symmetries
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data, open_data
from scitoolkit.emulation.emulator import grid_of
from scitoolkit.emulation.ensemble import AnyEmulator, Ensemble, EnsembleTask, build_any, members_of
from scitoolkit.emulation.evaluation import Evaluation
from scitoolkit.emulation.intervals import Intervals, calibrate
from scitoolkit.emulation.invariants import (
    check_guards,
    propose,
    refuse_broken_guards,
    refuse_repeated_ends,
    training_part,
    unread_walls,
)
from scitoolkit.emulation.leads import offsets_of
from scitoolkit.emulation.loading import make_loader
from scitoolkit.emulation.low_rank import begin_from_trained
from scitoolkit.emulation.prediction import is_rolled, predict_file
from scitoolkit.emulation.spatial.joined import over_processes
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.statistics import Found, find_leads, find_statistics, guarded_scales
from scitoolkit.emulation.streaming import drawn_ranges, make_files, stream_loader, with_files
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.emulation.task import EmulationTask, cell_weights
from scitoolkit.emulation.transfer import checked_widths, on_grid
from scitoolkit.io.campaign.content import content_of, require_same_content
from scitoolkit.io.campaign.leaks import require_no_leak
from scitoolkit.io.campaign.split import SplitRows
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import PlannedLoader
from scitoolkit.io.loader.cursor import tensors
from scitoolkit.io.loader.streamed import ReservoirLoader
from scitoolkit.training import Trainer, current_rank, load_best, world_size
from scitoolkit.training.processes import on_rank_zero

log: Logger = get_logger(__name__)
CACHE = ".campaigns"
"""Folder next to the runs that caches indices and statistics."""


@dataclass
class Prepared:
    """Opened data, model, task and loaders of a job."""

    data: Data
    parts: SplitRows
    emulator: AnyEmulator
    task: EmulationTask | EnsembleTask
    loaders: dict[str, PlannedLoader | ReservoirLoader]
    statistics: Found


def validate(config: EmulationConfig) -> list[Finding]:
    """Check guards and boundaries against the data, and propose further invariants."""
    data = open_data(config.data)
    try:
        if not data.layout.grid:
            return []
        checked_widths(config, data.campaign, data.layout)
        check_mask(config, data.layout)
        blocks = training_part(config, data)["train"]
        refuse_repeated_ends(config, data, blocks)
        grid = grid_of(config, data.layout)
        check_symmetries(config, data.layout)
        for guard in config.guards:
            guard.build(grid)
        found = check_guards(config, data, blocks)
        return [*found, *unread_walls(config, data, blocks), *propose(config, data, blocks)]
    finally:
        data.dataset.close()


def check(config: EmulationConfig) -> Mapping[str, Any]:
    """Open the data and compute the loss of one batch without writing anything.

    Statistics that are not cached are measured on a few samples.
    """
    with TemporaryDirectory() as folder:
        return _check(config, Path(folder))


def _check(config: EmulationConfig, folder: Path) -> Mapping[str, Any]:
    job = prepare(config, folder, sample=True)
    loader = job.loaders["train"]
    if isinstance(loader, ReservoirLoader):
        batch = next(iter(loader))
        loader.close()
    else:
        samples = loader.order.permutation(0)[: loader.order.batch_size]
        batch = tensors(loader.files.read(samples))
    loss, _ = job.task.loss(batch)
    layout = job.data.layout
    job.data.dataset.close()
    return {
        "grid": layout.grid,
        "inputs": {v.name: list(v.dims) for v in layout.inputs},
        "outputs": {v.name: list(v.dims) for v in layout.outputs},
        "state": list(layout.state),
        "units": {n: v.units for n, v in layout.variables.items()},
        "campaign": job.data.campaign.describe(),
        "samples": {name: sum(map(len, part)) for name, part in job.parts.items()},
        "parameters": sum(p.numel() for p in job.emulator.parameters()),
        "first_loss": float(loss.detach()),
        "statistics": job.statistics.source,
        "loader": job.loaders["train"].explain(),
    }


def train(config: EmulationConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train, and save the weights with the best validation loss in `model/`."""
    begin = time.process_time()
    job = prepare(config, run.path)
    if current_rank() == 0:
        text = json.dumps(job.statistics.to_json(), indent=1) + "\n"
        write_atomic(run.path / "statistics.json", text)
    log.info(
        "%d samples of %d simulations on %s, %d parameters",
        job.data.num_samples,
        len(job.data.blocks),
        job.data.layout.grid,
        sum(p.numel() for p in job.emulator.parameters()),
    )
    _require_same_data(job.data, run, resume)
    trainer, loader = Trainer(job.task, config.training, run=run), job.loaders["train"]
    try:
        trainer.fit(loader, job.loaders.get("validation"), resume=resume)
    finally:
        if isinstance(loader, ReservoirLoader):
            loader.close()
    if current_rank() != 0:
        job.data.dataset.close()
        return
    load_best(job.emulator, run.checkpoints)
    model = ModelFolder.create(run)
    surrogate.save(job.emulator.cpu(), model.path, config.weights_dtype)
    model.save_facts(job.data.facts)
    record = {
        "best": trainer.best,
        "steps": trainer.step,
        "cpu_seconds": time.process_time() - begin,
        "parts": {
            name: [edge for block in part for edge in (block.start, block.stop)]
            for name, part in job.parts.items()
        },
        "loader": job.loaders["train"].stats(),
    }
    if config.uncertainty is not None:
        delivered = surrogate.load(model.path, config)
        found = calibrate(delivered, job.data, job.parts["validation"], config)
        found.save(model.path)
    job.data.dataset.close()
    model.finish(run, record)


def _require_same_data(data: Data, run: RunDirectory, resume: bool) -> None:
    """Store the facts, rows and content of the data with a run; compare those of a resumed run.

    Raises:
        DataError: the files changed since the run began.
    """
    folder = ModelFolder(run.path)
    facts = folder.facts() if resume else None
    if facts is not None:
        accepts = Accepts(uneven=True, convert=False)
        refuse(compare(facts, data.facts, accepts), f"{data.where}, in the resumed run")
    elif current_rank() == 0:
        folder.save_facts(data.facts)
    stored, now = run.path / "content.json", content_of(data.campaign)
    if resume and stored.exists():
        before = json.loads(stored.read_text())
        require_same_content(before, now, f"{data.where}, in the resumed run")
    elif current_rank() == 0:
        write_atomic(stored, json.dumps(now) + "\n")


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the test split of a run, or on all samples of another file.

    Writes results.json, results.nc and model/metrics.json into a run directory; with `data`,
    writes nothing.
    """
    model = ModelFolder(directory)
    config = with_files(model.config(EmulationConfig), Path(directory))
    emulator = placed(surrogate.load(model.path, config))
    path = data if data is not None else config.data.test
    opened = open_data(config.data, path, like=emulator.layout, trained=model.facts())
    blocks = opened.stretches
    if path is None:
        edges = model.record()["parts"]["test"]
        blocks = [range(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    try:
        checked_widths(config, opened.campaign, opened.layout)
        emulator = over_processes(on_grid(emulator, config, opened.layout, opened.where), config)
        intervals = None if config.uncertainty is None else Intervals.load(model.path)
        found = Evaluation(emulator, opened, blocks, config, intervals)
        results, fields = report.make(found, config.workflow)
    finally:
        opened.dataset.close()
    if current_rank() == 0 and model.write_results(results, data) and fields is not None:
        write_fields(fields, Path(directory) / "results.nc")
    return results


def predict(
    directory: Path, source: Path, output: Path, steps: int | None = None, lead: int | None = None
) -> None:
    """Apply the emulator to every sample of a file, or roll it out from the last sample."""
    model = ModelFolder(directory)
    config = model.config(EmulationConfig)
    emulator = placed(surrogate.load(model.path, config))
    intervals = None if config.uncertainty is None else Intervals.load(model.path)
    predict_file(
        emulator, config, source, output, steps, intervals, lead, model.digest(), model.facts()
    )


def rolls(directory: Path, steps: int | None) -> bool:
    """Return whether a prediction of `steps` steps is a rollout."""
    model = ModelFolder(directory)
    config = model.config(EmulationConfig)
    return is_rolled(config, surrogate.load(model.path, config).layout, steps)


def export(directory: Path, output: Path, batch: int = 1) -> Mapping[str, Any]:
    """Export to a compiled `.pt2` or to `.onnx` and compare the result with the emulator."""
    from scitoolkit.emulation.export import export as write_program

    model = ModelFolder(directory)
    emulator = surrogate.load(model.path, model.config(EmulationConfig))
    if isinstance(emulator, Ensemble):
        raise ConfigError(
            f"an ensemble of {len(emulator.members)}; the mean of rollouts is not the rollout of "
            "a mean",
            where=str(directory),
            fix="train one to export: uncertainty.members=1",
        )
    return write_program(emulator, Path(output), batch)


def prepare(
    config: EmulationConfig, directory: Path | None = None, *, sample: bool = False
) -> Prepared:
    """Open and split the data, measure the training split, build the emulator and the loaders.

    Args:
        config: the job.
        directory: where simulations of a generator are stored; required for a generator.
        sample: if no statistics are cached, measure them on a few samples.
    """
    asked, cache = config, config.run.root / CACHE
    if config.data.generator is not None:
        assert directory is not None
        make_files(config, directory)
        config = with_files(config, directory)
    if world_size() > 1:
        # Rank 0 scans the files; the others read its index.
        on_rank_zero(lambda: open_data(config.data, cache=cache).dataset.close())
    data = open_data(config.data, cache=cache, keep=not sample)
    try:
        return _prepare(config, data, sample, cache, asked, directory)
    except BaseException:
        data.dataset.close()
        raise


def _diagnosed(config: EmulationConfig) -> list[str]:
    return config.diagnostic.outputs if config.diagnostic else []


def _prepare(
    config: EmulationConfig,
    data: Data,
    sample: bool,
    cache: Path,
    asked: EmulationConfig,
    directory: Path | None,
) -> Prepared:
    lead, rollout = config.data.lead, config.rollout
    reach = rollout.pushforward + rollout.steps
    widths = checked_widths(config, data.campaign, data.layout)
    index = data.campaign.index
    parts = training_part(config, data)
    require_no_leak(data.campaign, parts)
    trained = index.simulation_of(np.array([block.start for block in parts["train"]]))
    ranges, trained_widths = (
        {n: (float(v[trained].min()), float(v[trained].max())) for n, v in found.items()}
        for found in (data.campaign.parameters, widths)
    )
    if asked.data.generator is not None:
        ranges |= drawn_ranges(asked)
    data.layout = replace(data.layout, parameter_ranges=ranges, cell_widths=trained_widths)
    emulator = build_any(config, data.layout)
    check_symmetries(config, data.layout)
    refuse_repeated_ends(config, data, parts["train"])
    refuse_broken_guards(config, data, parts["train"])
    if twice := set(emulator.determined) & set(_diagnosed(config)):
        raise ConfigError(
            f"{sorted(twice)} are computed by a guard, so that a network would learn them "
            "to no effect",
            where="diagnostic.outputs",
            fix="leave diagnostic out",
        )
    statistics = find_statistics(data, parts["train"], config, cache=cache, sample=sample)
    emulator.set_statistics(statistics.statistics)
    if config.low_rank is not None:
        begin_from_trained(emulator, config, data, parts)
    leads = find_leads(data, parts["train"], config, cache=cache, sample=sample)
    weights = torch.from_numpy(cell_weights(data.layout.weights(), config.wall_weight))
    modelled, box = emulator, None
    if config.training.divides_fields and world_size() > 1:
        slab = Slab(config, data.layout)
        parts_of = [slab.emulator(member) for member in members_of(emulator)]
        modelled = Ensemble(parts_of) if isinstance(emulator, Ensemble) else parts_of[0]
        weights, box = slab.on_grid(weights), {slab.dim: slab.cells}
    guarded = guarded_scales(emulator, statistics.statistics, config.guarded_weight)
    tasks = [
        EmulationTask(
            member, rollout, Symmetries(config.symmetries, member.layout), weights, leads, guarded
        )
        for member in members_of(modelled)
    ]
    task = EnsembleTask(modelled, tasks) if isinstance(modelled, Ensemble) else tasks[0]
    loaders: dict[str, PlannedLoader | ReservoirLoader] = {}
    for name in ("train", "validation"):
        if not len(parts[name]):
            continue
        steps = rollout.validation if name == "validation" else None
        offsets = offsets_of(config.data.leads or [lead], steps or reach)
        before = config.data.samples_before
        starts = index.starts(parts[name], before + offsets[-1] + 1) + before
        if not len(starts):
            raise DataError(
                f"the {name} split has {sum(map(len, parts[name]))} samples and no complete "
                f"window of "
                f"{before + offsets[-1] + 1}",
                where=data.where,
                fix="a larger split, or fewer rollout.steps",
            )
        if name == "train" and asked.data.streams:
            loaders[name] = stream_loader(asked, data, emulator, offsets, directory)
            continue
        loaders[name] = make_loader(data, config, starts, offsets, train=name == "train", box=box)
    return Prepared(data, parts, emulator, task, loaders, statistics)
