"""The stages of super-resolution: what differs from other surrogates in the life of `surrogate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import xarray as xr
from torch import nn

from scitoolkit.core.content import find_content
from scitoolkit.core.data_differences import Accepts, Difference
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import placed
from scitoolkit.core.errors import DataError
from scitoolkit.core.job import Finding
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.io.campaign.content import record_content
from scitoolkit.io.loader import BatchLoader
from scitoolkit.io.parts import identity
from scitoolkit.superresolution import evaluation
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.crops import CropSource
from scitoolkit.superresolution.equations import Residuals
from scitoolkit.superresolution.facts import (
    ACCEPTS,
    as_trained,
    fields_facts,
    header_facts,
    require_like,
)
from scitoolkit.superresolution.masked import valid_nodes
from scitoolkit.superresolution.network import FieldNetwork, Header
from scitoolkit.superresolution.predict import refined_nodes, stream
from scitoolkit.superresolution.preparation import (
    checked,
    equations_of,
    header_of,
    statistics_of,
    training_grid,
)
from scitoolkit.superresolution.simulations import (
    Simulations,
    open_simulations,
    parts_of,
    require_alone,
)
from scitoolkit.superresolution.spectrum import WaveGains
from scitoolkit.superresolution.starting import begin_from, trained_members
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate, description
from scitoolkit.superresolution.task import Physics, SuperresolutionTask
from scitoolkit.superresolution.traced import traced
from scitoolkit.surrogate import Opened, Stages, Trained, load, open_checked
from scitoolkit.surrogate.lifecycle import source_loader
from scitoolkit.surrogate.opening import close
from scitoolkit.surrogate.stages import Parts, Rows

log = get_logger(__name__)
CACHE = ".campaigns"
"""Folder next to the runs that caches indices and statistics."""


class SuperresolutionStages(Stages):
    """Stages of super-resolution; data are `Simulations`, and samples are their numbers."""

    def open(self, config: SuperresolutionConfig, path: Any) -> Simulations:
        """Open simulations to apply a model to."""
        return open_simulations(path, config.data, learned=False)

    def open_indexed(self, config: SuperresolutionConfig, path: Any, keep: bool) -> Simulations:
        """Open training data, with the index that is cached next to the runs, and their split."""
        data = open_simulations(path, config.data, cache=_cache(config), keep=keep)
        data.parts = parts_of(config, data)
        return data

    def facts(self, config: SuperresolutionConfig, data: Simulations) -> DataFacts:
        """Describe the first simulation, of training data the first of the training part."""
        first = data.parts["train"][0] if data.parts else 0
        return fields_facts(data.opened.channels(first), data.fields)

    def accepts(self, config: SuperresolutionConfig) -> Accepts:
        """Allow other grids, whose steps `as_trained` compares."""
        return ACCEPTS

    def convert(
        self, data: Simulations, differences: Sequence[Difference], trained: DataFacts | None
    ) -> Simulations:
        """Return the data unchanged: `as_trained` converts every simulation when it is read."""
        return data

    def completed(self, trained: Trained) -> Trained:
        """Return a stored surrogate with the fields of its training, and facts of its header."""
        head = SuperresolutionSurrogate(trained.model).header
        config, facts = trained.config, trained.facts
        data = config.data.model_copy(update={"fields": list(head.fields)})
        if facts is None:
            facts = header_facts(head.fields, head.units, head.dims, head.dim_units)
        return replace(trained, config=config.model_copy(update={"data": data}), facts=facts)

    def examine(self, config: SuperresolutionConfig, data: Simulations) -> list[Finding]:
        """Check the equations on the first training simulation."""
        report = checked(config, data, data.parts["train"])
        if report is None:
            return []
        level: Literal["warning", "note"] = "note" if report.satisfied else "warning"
        return [Finding(f"the equations on the true data:\n{report}", "pde.equations", level)]

    def split(self, config: SuperresolutionConfig, data: Simulations) -> Parts:
        """Return the numbers of the simulations of each part."""
        return data.parts

    def measure(
        self, config: SuperresolutionConfig, data: Simulations, rows: Rows
    ) -> Mapping[str, Any]:
        """Return the header and architecture; check the equations and the simulations."""
        numbers = _numbers(rows)
        header, facts = header_of(config, data, numbers), self.facts(config, data)
        if data.report is not None:
            log.info("the equations on the true data:\n%s", data.report)
            if not data.report.satisfied and config.pde.weight:
                log.warning("an equation of the loss does not hold for the training data")
        for number in numbers[1:] + list(data.parts["validation"]):
            # Values are read by position later, so every simulation has to be like the first.
            require_like(data.dataset(number), facts, data.fields, data.label(number))
        return description(header, config.model, config.members)

    def build(
        self,
        config: SuperresolutionConfig,
        facts: DataFacts | None,
        measured: Mapping[str, Any],
        seed: int,
    ) -> FieldNetwork:
        """Return an untrained network."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return FieldNetwork(Header.from_json(measured["header"]), config.model)

    def initialise(
        self, config: SuperresolutionConfig, opened: Opened, model: FieldNetwork
    ) -> None:
        """Set mean and standard deviation of the fields, and the weights of `start`."""
        data, numbers = opened.data, _numbers(opened.parts["train"])
        moments = opened.once(
            "moments",
            lambda: statistics_of(
                data, numbers, config.data, cache=_cache(config), sample=opened.sample
            ),
        )
        model.mean.copy_(torch.tensor([mean for mean, _ in moments]))
        model.std.copy_(torch.tensor([std for _, std in moments]))
        if config.start is not None:
            sources = opened.once("sources", lambda: self._sources(config, opened))
            begin_from(next(sources), model, config.start)

    def _sources(self, config: SuperresolutionConfig, opened: Opened) -> Iterator[FieldNetwork]:
        """Return the trained networks of `start`, one for each member."""
        assert config.start is not None
        data, first = opened.data, _numbers(opened.parts["train"])[0]
        former = load(self, SuperresolutionConfig, find_content("surrogates", config.start.path))
        return iter(trained_members(config, former, data.dataset(first), data.label(first)))

    def task(
        self, config: SuperresolutionConfig, opened: Opened, model: FieldNetwork
    ) -> SuperresolutionTask:
        """Return the errors at points, with residuals of equations and boundary conditions."""
        data, header, physics = opened.data, model.header, None
        numbers = _numbers(opened.parts["train"])
        pde = opened.once("pde", lambda: equations_of(config, data, numbers))
        if pde is not None:
            residuals = Residuals(pde, combine=config.pde.combine)
            physics = Physics(residuals, config.pde, header.scales)
        return SuperresolutionTask(
            model,
            loss=config.loss,
            physics=physics,
            boundaries=config.boundaries,
            boundary_weight=config.boundary_weight,
            fields=header.fields,
            dims=header.dims,
            coarser=header.coarser,
            thinned=[axis for axis, n in enumerate(header.reference) if n is not None],
        )

    def loader(
        self, config: SuperresolutionConfig, opened: Opened, part: str, model: nn.Module
    ) -> BatchLoader:
        """Return the loader of random crops of a part."""
        data, validates = opened.data, part == "validation"
        numbers = _numbers(opened.parts["train"])
        source = CropSource(
            data,
            _numbers(opened.parts[part]),
            opened.once("grid", lambda: training_grid(config, data, numbers)),
            _header(opened).layout,
            config.crop,
            seed=config.seed + validates,
            pde_points=config.pde.points if config.pde.weight and not validates else 0,
        )
        return source_loader(config.training, part, source)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return fields, nodes before and after, and what the equations leave over."""
        data, head = opened.data, _header(opened)
        sizes = data.dataset(_numbers(opened.parts["train"])[0]).sizes
        return {
            "fields": list(head.fields),
            "nodes": {dim: sizes[dim] for dim in head.dims},
            "low_resolution": dict(zip(head.dims, head.window, strict=True)),
            "campaign": data.opened.found.describe(),
            "residual_over_terms": data.report.ratios if data.report else {},
        }

    def record(
        self, config: SuperresolutionConfig, opened: Opened, run: RunDirectory, resume: bool
    ) -> None:
        """Store rows and content of the files; compare those of a resumed run."""
        record_content(run.path, opened.data.opened.found, opened.data.where, resume=resume)

    def calibrate(
        self, config: SuperresolutionConfig, opened: Opened, model: nn.Module, folder: Path
    ) -> None:
        """Write the correction of the power spectrum, measured on a simulation apart."""
        if config.spectrum is None:
            return
        surrogate = SuperresolutionSurrogate(model)
        apart = open_simulations(config.spectrum, config.data, fields=surrogate.header.fields)
        evaluation.measure_gains(surrogate, require_alone(apart), apart.where).save(folder)

    def report(
        self, trained: Trained, data: Simulations, rows: Rows | None
    ) -> tuple[Results, xr.Dataset | None]:
        """Score every simulation, with the correction of the spectrum if there is one."""
        if rows is not None and not len(rows):
            raise DataError(
                "no test file; crops of the training data would not be a test",
                where=str(trained.folder.directory),
                fix=f"scitoolkit evaluate {trained.folder.directory} --data FILE",
            )
        gains = WaveGains.load(trained.folder.path)
        return _scored(trained.config, trained.model, data, rows, trained.facts, gains)

    def evaluate(
        self, config: SuperresolutionConfig, model: nn.Module, data: Simulations, rows: Rows | None
    ) -> Results:
        """Score every simulation."""
        return _scored(config, model, data, rows)[0]

    def predict(self, config: Any, model: Any, data: Any, output: Path) -> None:
        """Not used: `predict_file` reads more of a stored surrogate."""
        raise NotImplementedError("predict_file")

    def traced(
        self, config: SuperresolutionConfig, facts: DataFacts | None, model: nn.Module
    ) -> Sequence[TracedFunction]:
        """Return `encode` and `decode`."""
        return traced(config, model)


def _scored(
    config: SuperresolutionConfig,
    model: nn.Module,
    data: Simulations,
    rows: Rows | None,
    facts: DataFacts | None = None,
    gains: WaveGains | None = None,
) -> tuple[Results, xr.Dataset]:
    """Return scores over some simulations, and the maps of the first."""
    surrogate = SuperresolutionSurrogate(model)
    fields, scored = surrogate.header.fields, []
    for number in range(len(data)) if rows is None else _numbers(rows):
        name = data.label(number) if len(data) > 1 else Path(data.where).name
        dataset = data.dataset(number)
        valid = partial(valid_nodes, data)
        if facts is not None:
            stored, dataset = dataset, as_trained(dataset, facts, fields, name)
            suspect = config.data.allow_suspect
            surrogate.require_familiar(stored, dataset, name, valid, suspect=suspect)
        one = evaluation.evaluate(surrogate, dataset, config, name, gains, valid)
        if len(surrogate.header.coarser) > 1:
            evaluation.add_coarser(one.results, surrogate, dataset, name)
        scored.append(one)
    results = evaluation.over_simulations([one.results for one in scored], fields)
    return results, scored[0].maps


def predict_file(directory: Path, source: Path, output: Path) -> None:
    """Refine a coarse file to the resolution of the training and stream it to `output`."""
    stages = SuperresolutionStages()
    trained = load(stages, SuperresolutionConfig, directory)
    assert trained.facts is not None
    surrogate = SuperresolutionSurrogate(placed(trained.model))
    data = open_checked(stages, trained.config, source, trained.facts)
    try:
        head = surrogate.header
        stored, valid = require_alone(data), partial(valid_nodes, data)
        dataset = _converted(stored, trained.facts, head, str(source))
        suspect = trained.config.data.allow_suspect
        surrogate.require_familiar(stored, dataset, str(source), valid, suspect=suspect)
        coarse = surrogate.coarse(dataset, str(source), valid)
        about = {"model": trained.folder.digest(), "file": identity(source)}
        gains = WaveGains.load(trained.folder.path)
        stream(coarse, refined_nodes(coarse), output, gains=gains, about=about, facts=trained.facts)
    finally:
        close(data)


def _converted(dataset: xr.Dataset, trained: DataFacts, head: Header, where: str) -> xr.Dataset:
    """Return coarse fields in the units of the training, of any resolution that it had.

    Raises:
        DataError: as `as_trained` for the finest resolution, if it does for all.
    """
    first: DataError | None = None
    for factor in head.coarser:
        every = dict(zip(head.dims, head.thinned(factor).layout.every, strict=True))
        try:
            return as_trained(dataset, trained, head.fields, where, every)
        except DataError as error:
            first = first or error
    assert first is not None
    raise first


def _cache(config: SuperresolutionConfig) -> Path:
    return config.run.root / CACHE


def _header(opened: Opened) -> Header:
    return Header.from_json(opened.measured["header"])


def _numbers(rows: Rows) -> list[int]:
    return [row for row in rows if isinstance(row, int)]
