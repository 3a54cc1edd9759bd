"""The stages of emulation: what differs from other surrogates in the life of `surrogate`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.data_differences import Accepts, Difference
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Finding
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import report
from scitoolkit.emulation.checks import check_mask, check_symmetries
from scitoolkit.emulation.climatology import (
    FieldClimatology,
    days_to_fit,
    fit_climatology,
    on_cells,
)
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data, accepts, converted, matched, open_data
from scitoolkit.emulation.emulator import Emulator, grid_of
from scitoolkit.emulation.ensemble import AnyEmulator, Ensemble, build_one, with_draws
from scitoolkit.emulation.evaluation import Evaluation
from scitoolkit.emulation.intervals import Intervals, calibrate
from scitoolkit.emulation.invariants import (
    check_guards,
    no_quantities,
    propose,
    refuse_broken_guards,
    refuse_repeated_ends,
    training_part,
    unread_walls,
)
from scitoolkit.emulation.leads import offsets_of
from scitoolkit.emulation.loading import make_loader
from scitoolkit.emulation.low_rank import begin_from_trained
from scitoolkit.emulation.noise_task import NoiseTask
from scitoolkit.emulation.regions import regions_of
from scitoolkit.emulation.spatial.joined import over_processes
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.starting import open_with_replay, start_from, trained_members
from scitoolkit.emulation.statistics import (
    MeasuredStatistics,
    find_leads,
    find_statistics,
    guarded_scales,
    loss_weights,
)
from scitoolkit.emulation.step_input import range_of
from scitoolkit.emulation.streaming import drawn_ranges, files_of, make_files, stream_loader
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.emulation.task import EmulationTask, cell_weights
from scitoolkit.emulation.transfer import checked_widths, on_grid
from scitoolkit.emulation.unfamiliar import checked
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.campaign.content import record_content
from scitoolkit.io.campaign.leaks import require_no_leak
from scitoolkit.io.loader import PlannedLoader
from scitoolkit.io.loader.streamed import ReservoirLoader
from scitoolkit.surrogate import Opened, Stages, Start, Trained, start
from scitoolkit.surrogate.stages import Parts, Rows
from scitoolkit.training import current_rank, world_size

CACHE = ".campaigns"
"""Folder next to the runs that caches indices and statistics."""
EXAMINED = 20_000_000
"""Number of values up to which `validate` reads the whole training part; of more a sample."""


class EmulationStages(Stages):
    """Stages of emulators; data are a `Data`, samples are ranges within one simulation."""

    def open(self, config: EmulationConfig, path: Any) -> Data:
        """Open a campaign without an index."""
        return open_data(config.data, path)

    def open_indexed(self, config: EmulationConfig, path: Any, keep: bool) -> Data:
        """Open a campaign with the index that is cached next to the runs."""
        return open_with_replay(config, path, _cache(config), keep)

    def files(self, config: EmulationConfig, directory: Path) -> Path | None:
        """Return the folder of the simulations of a generator."""
        return None if config.data.generator is None else files_of(directory)

    def produce(self, config: EmulationConfig, directory: Path, sample: bool) -> None:
        """Compute the simulations of a generator that a training starts from."""
        make_files(config, directory)

    def facts(self, config: EmulationConfig, data: Data) -> DataFacts:
        """Return what the files say about the variables."""
        return data.facts

    def accepts(self, config: EmulationConfig) -> Accepts:
        """Allow other grids, which `transfer.on_grid` handles."""
        return accepts(config.data)

    def convert(
        self, data: Data, differences: Sequence[Difference], trained: DataFacts | None
    ) -> Data:
        """Return data whose windows are converted when they are read."""
        return converted(data, differences, trained)

    def examine(self, config: EmulationConfig, data: Data) -> list[Finding]:
        """Check guards and boundaries against the data, and propose further invariants."""
        if not data.layout.grid:
            return []
        checked_widths(config, data.campaign, data.layout)
        check_mask(config, data.layout)
        blocks = training_part(config, data)["train"]
        refuse_repeated_ends(config, data, blocks)
        values = sum(math.prod(c.shape) for c in data.campaign.channels.values())
        # Holes and masks that move are found where training meets them: where values are measured.
        find_statistics(data, blocks, config, sample=values * sum(map(len, blocks)) > EXAMINED)
        grid = grid_of(config, data.layout)
        check_symmetries(config, data.layout)
        days_to_fit(config, data, blocks)
        regions_of(config, data)
        for guard in config.guards:
            guard.build(grid)
        if data.layout.mask_of_step:
            return []  # values outside of the mask hold no invariant
        return [
            *check_guards(config, data, blocks),
            *no_quantities(data),
            *unread_walls(config, data, blocks),
            *propose(config, data, blocks),
        ]

    def split(self, config: EmulationConfig, data: Data) -> Parts:
        """Return the ranges of samples of each part."""
        parts = training_part(config, data)
        require_no_leak(data.campaign, parts)
        return parts

    def measure(self, config: EmulationConfig, data: Data, rows: Rows) -> Mapping[str, Any]:
        """Return the layout, with the ranges of parameters and cells of the training part."""
        # Only simulations of the training part: ranges of all would tell the emulator of the
        # others, and extrapolation to those would not be warned of.
        starts = [block.start for block in rows if isinstance(block, range)]
        trained = data.campaign.index.simulation_of(np.array(starts))
        widths = checked_widths(config, data.campaign, data.layout)
        ranges, trained_widths = (
            {n: (float(v[trained].min()), float(v[trained].max())) for n, v in values.items()}
            for values in (data.campaign.parameters, widths)
        )
        if config.data.generator is not None:
            ranges |= drawn_ranges(config)
        data.layout = replace(data.layout, parameter_ranges=ranges, cell_widths=trained_widths)
        if data.campaign.row_values:
            steps = range_of(data.campaign, data.lines, _ranges(rows), config.data.lead)
            data.layout = replace(data.layout, step_range=steps)
        if config.uncertainty is not None:
            data.layout = data.layout.with_noise(config.uncertainty.noise)
        return {"layout": data.layout.to_json()}

    def build(
        self,
        config: EmulationConfig,
        facts: DataFacts | None,
        measured: Mapping[str, Any],
        seed: int,
    ) -> Emulator:
        """Return an untrained emulator."""
        return build_one(config, Layout.from_json(measured["layout"]), seed)

    def joined(self, members: Sequence[Emulator]) -> Ensemble:
        """Return an ensemble, which has the layout of its members."""
        return Ensemble(members)

    def initialise(self, config: EmulationConfig, opened: Opened, model: Emulator) -> None:
        """Check the training part, and set the normalisation and weights of low rank."""
        data, rows = opened.data, _ranges(opened.parts["train"])
        opened.once("checked", lambda: self._check(config, data, rows, model))
        model.set_statistics(self._statistics(config, opened).statistics)
        if config.low_rank is not None:
            begin_from_trained(model, config, data, rows)
        if config.start is not None:
            sources = opened.once("sources", lambda: iter(trained_members(config, data)))
            start_from(model, next(sources), config)

    def _check(
        self, config: EmulationConfig, data: Data, rows: list[range], model: Emulator
    ) -> None:
        check_symmetries(config, data.layout)
        days_to_fit(config, data, rows)
        regions_of(config, data)
        refuse_repeated_ends(config, data, rows)
        refuse_broken_guards(config, data, rows)
        diagnosed = config.diagnostic.outputs if config.diagnostic else []
        if twice := set(model.determined) & set(diagnosed):
            raise ConfigError(
                f"{sorted(twice)} are computed by a guard, so that a network would learn them "
                "to no effect",
                where="diagnostic.outputs",
                fix="leave diagnostic out",
            )

    def _statistics(self, config: EmulationConfig, opened: Opened) -> MeasuredStatistics:
        """Return the statistics of the training part, which the members share."""
        rows, cache = _ranges(opened.parts["train"]), _cache(config)
        return opened.once(
            "statistics",
            lambda: find_statistics(opened.data, rows, config, cache=cache, sample=opened.sample),
        )

    def _slab(self, config: EmulationConfig, opened: Opened) -> Slab | None:
        """Return the slab of this process; None if processes do not divide the fields."""
        if not config.training.divides_fields or world_size() == 1:
            return None
        return opened.once("slab", lambda: Slab(config, opened.data.layout))

    def task(self, config: EmulationConfig, opened: Opened, model: Emulator) -> EmulationTask:
        """Return the errors of one or more steps, of the slab of this process if there is one."""
        data, rows, cache = opened.data, _ranges(opened.parts["train"]), _cache(config)
        leads = opened.once(
            "leads", lambda: find_leads(data, rows, config, cache=cache, sample=opened.sample)
        )
        weights = torch.from_numpy(cell_weights(data.layout.weights(), config.wall_weight))
        statistics = self._statistics(config, opened).statistics
        guarded = guarded_scales(model, statistics, config.guarded_weight)
        of_outputs = loss_weights(config, data.campaign.names, model, sample=opened.sample)
        slab = self._slab(config, opened)
        if slab is not None:
            model, weights = slab.emulator(model), slab.on_grid(weights)
        symmetries = Symmetries(config.symmetries, model.layout)
        parts = model, config.rollout, symmetries, weights, leads, guarded, of_outputs
        if config.uncertainty is None or not config.uncertainty.noise:
            return EmulationTask(*parts)
        return NoiseTask(*parts, members=config.uncertainty.loss_members, seed=config.seed)

    def loader(
        self, config: EmulationConfig, opened: Opened, part: str, model: AnyEmulator
    ) -> PlannedLoader | ReservoirLoader:
        """Return the windows of a part, or a stream of simulations."""
        rollout, data = config.rollout, opened.data
        steps = rollout.validation if part == "validation" else None
        reach = rollout.pushforward + rollout.steps
        offsets = offsets_of(config.data.leads or [config.data.lead], steps or reach)
        before, rows = config.data.samples_before, _ranges(opened.parts[part])
        starts = data.campaign.index.starts(rows, before + offsets[-1] + 1) + before
        if not len(starts):
            raise DataError(
                f"the {part} split has {sum(map(len, rows))} samples and no complete "
                f"window of {before + offsets[-1] + 1}",
                where=data.where,
                fix="a larger split, or fewer rollout.steps",
            )
        if part == "train" and config.data.streams:
            return stream_loader(config, data, model, offsets, opened.directory)
        slab = self._slab(config, opened)
        box = None if slab is None else {slab.dim: slab.cells}
        return make_loader(data, config, starts, offsets, train=part == "train", box=box)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return grid, variables and origin of the statistics."""
        data, layout = opened.data, opened.data.layout
        return {
            "grid": layout.grid,
            "inputs": {v.name: list(v.dims) for v in layout.inputs},
            "outputs": {v.name: list(v.dims) for v in layout.outputs},
            "state": list(layout.state),
            "units": {n: v.units for n, v in layout.variables.items()},
            "campaign": data.campaign.describe(),
            "statistics": statistics_of(opened).source,
        }

    def record(
        self, config: EmulationConfig, opened: Opened, run: RunDirectory, resume: bool
    ) -> None:
        """Store statistics, and rows and content of the files; compare those of a resumed run."""
        if current_rank() == 0:
            text = json.dumps(statistics_of(opened).to_json(), indent=1) + "\n"
            write_atomic(run.path / "statistics.json", text)
        record_content(run.path, opened.data.campaign, opened.data.where, resume=resume)

    def calibrate(
        self, config: EmulationConfig, opened: Opened, model: AnyEmulator, folder: Path
    ) -> None:
        """Write the climatology of the training part, and the intervals of the validation part."""
        climatology = fit_climatology(config, opened.data, _ranges(opened.parts["train"]))
        if climatology is not None:
            climatology.save(folder)
        if config.uncertainty is not None:
            # Errors on the training part are too small, and the test part scores the intervals.
            rows = _ranges(opened.parts["validation"])
            calibrate(with_draws(model, config), opened.data, rows, config).save(folder)

    def report(
        self, trained: Trained, data: Data, rows: Rows | None
    ) -> tuple[Results, xr.Dataset | None]:
        """Score one step, rollouts and intervals."""
        config: EmulationConfig = trained.config
        intervals = None if config.uncertainty is None else Intervals.load(trained.folder.path)
        compare_step = trained.facts is None
        data = matched(
            data,
            config.data,
            trained.model.layout,
            warn=rows is None,
            compare_step=compare_step,
        )
        checked_widths(config, data.campaign, data.layout)
        emulator = on_grid(trained.model, config, data.layout, data.where)
        emulator = with_draws(over_processes(emulator, config), config)
        data = checked(trained, data, 0 if rows is None else None)
        blocks = data.stretches if rows is None else _ranges(rows)
        stored = FieldClimatology.load(trained.folder.path)
        climatology = on_cells(stored, trained.model.layout, data.layout)
        scored = Evaluation(emulator, data, blocks, config, intervals, climatology)
        return report.make(scored, config.workflow)

    def predict(self, config: Any, model: Any, data: Any, output: Path) -> None:
        """Not used: `prediction` reads the inputs alone, and continues parts of itself."""
        raise NotImplementedError("predict_file")

    def evaluate(
        self, config: EmulationConfig, model: AnyEmulator, data: Data, rows: Rows | None
    ) -> Results:
        """Score one step and rollouts."""
        blocks = data.stretches if rows is None else _ranges(rows)
        scored = Evaluation(with_draws(model, config), data, blocks, config)
        return report.make(scored, config.workflow)[0]


def _ranges(rows: Rows) -> list[range]:
    return [row for row in rows if isinstance(row, range)]


def _cache(config: EmulationConfig) -> Path:
    return config.run.root / CACHE


def statistics_of(opened: Opened) -> MeasuredStatistics:
    """Return the statistics that `initialise` measured."""
    return opened.once("statistics", _not_initialised)


def _not_initialised() -> MeasuredStatistics:
    raise ValueError("statistics are measured by `initialise`")


def prepare(
    config: EmulationConfig, directory: Path | None = None, *, sample: bool = False
) -> Start:
    """Return everything that precedes a training; see `surrogate.start`."""
    return start(EmulationStages(), config, directory, sample=sample)
