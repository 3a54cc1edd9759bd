"""Simulations of a generator as training data: files, and a stream of simulations in memory.

Simulations are numbered as in `data.draw`. The first ones fill the reservoir, the next ones are for
validation and testing; both are files in the run directory, opened like any campaign. Statistics
are measured on the former. All other simulations exist in memory only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.committee import Committee
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator, Ensemble
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.campaign.split import CampaignSplit
from scitoolkit.io.loader.reservoir import Column, SimulationReservoir
from scitoolkit.io.loader.reservoir_schedule import ReservoirSchedule
from scitoolkit.io.loader.streamed import ReservoirLoader, SimulationStream
from scitoolkit.surrogate.samples import ProducedSamples
from scitoolkit.training import world_size
from scitoolkit.training.processes import on_rank_zero

log: Logger = get_logger(__name__)
FOLDER, JOURNAL = "simulations", "stream.jsonl"


def files_of(directory: Path) -> Path:
    """Return the folder of the simulations of a run."""
    return Path(directory) / FOLDER


def split_of(config: EmulationConfig) -> CampaignSplit:
    """Return the split of a job; simulations of a generator are divided by their numbers."""
    if config.data.generator is None:
        return config.split
    stream, trained = config.data.stream, _stored(config)
    return CampaignSplit(
        by="simulation", train=trained, validation=stream.validation, test=stream.test
    )


def make_files(config: EmulationConfig, directory: Path) -> None:
    """Compute the simulations that a training starts from, unless they exist already.

    Raises:
        ConfigError: a stream with several training processes.
        NumericalError: a simulation and all its replacements failed.
        DataError: the disk is full; finished simulations stay on disk.
    """
    data = config.data
    if data.generator is None:
        return
    if data.streams and world_size() > 1:
        raise ConfigError(
            f"a stream of simulations feeds one process, and there are {world_size()}",
            where="data.stream.mode",
            fix="data.stream.mode=stored",
        )
    count = _stored(config) + data.stream.held_out
    on_rank_zero(lambda: _samples(config, directory).files(count))


def _samples(config: EmulationConfig, directory: Path) -> ProducedSamples:
    """Return all simulations of a job: for training, validation and testing."""
    return ProducedSamples(
        config.data.generator,
        config.data.draw,
        config.data.stream.held_out,
        seed=config.seed,
        folder=files_of(directory),
        processes=max(1, config.data.stream.workers),
    )


def _stored(config: EmulationConfig) -> int:
    """Return the number of training simulations that are files."""
    return config.data.stream.reservoir if config.data.streams else config.data.draw.samples


def stream_loader(
    config: EmulationConfig,
    data: Data,
    emulator: AnyEmulator,
    offsets: Sequence[int],
    directory: Path | None,
) -> ReservoirLoader:
    """Return the loader of a training on streamed simulations, which the caller closes.

    Args:
        config: the job, with its generator.
        data: the files of the run.
        emulator: the model in training, which is the committee in mode `active`.
        offsets: samples of a window, relative to its start.
        directory: of the run; None for no journal.

    Raises:
        ConfigError: a batch is larger than the reservoir.
        DataError: a simulation in memory differs from its file.
    """
    asked, layout = config.data.stream, data.layout
    first = _Files(data)
    shapes = {name: array.shape for name, array in first.arrays(0).items()}
    reservoir = SimulationReservoir(
        shapes, asked.reservoir, _columns(layout, offsets, config.data.lead)
    )
    schedule = ReservoirSchedule(
        asked.reservoir,
        reservoir.windows,
        config.training.batch_size,
        seed=config.training.seed,
        repeats=asked.repeats,
        total=config.data.draw.samples,
    )
    stream = _stream(config, data, shapes, directory)
    _require_same(stream, data, first.arrays(0))
    loader = ReservoirLoader(
        stream,
        reservoir,
        schedule,
        first=first.write,
        ahead=asked.ahead,
    )
    if asked.mode == "active":
        assert isinstance(emulator, Ensemble)
        draw, scales = config.data.draw, config.data.parameter_scales
        committee = Committee(
            emulator, reservoir, draw, scales, config.seed, candidates=asked.candidates
        )
        loader.choose = committee.choose
    told = loader.explain()
    log.info(
        "reservoir of %d simulations, %.1f MB, and %.1f MB ahead",
        asked.reservoir,
        told["reservoir_bytes"] / 1e6,
        told["ahead_bytes"] / 1e6,
    )
    return loader


def drawn_ranges(config: EmulationConfig) -> dict[str, tuple[float, float]]:
    """Return the range of each drawn parameter, on the scale of the network's input."""
    scales, (low, high) = config.data.parameter_scales, config.data.draw.ends()

    def given(name: str, value: float) -> float:
        return float(np.log10(value)) if scales[name] == "log" else value

    return {n: (given(n, low[n]), given(n, high[n])) for n in low if n in scales}


def _stream(
    config: EmulationConfig, data: Data, shapes: Mapping[str, Any], directory: Path | None
) -> SimulationStream:
    asked, scales, layout = config.data.stream, config.data.parameter_scales, data.layout
    fields = {n: v.dims for n, v in layout.variables.items() if n not in scales}
    return _samples(config, directory or Path()).stream(
        sample_dim=layout.sample_dim,
        fields=fields,
        parameters=scales,
        shapes={n: shapes[n] for n in [*fields, *scales]},
        offset=asked.held_out,
        journal=directory / JOURNAL if directory else None,
        workers=asked.workers,
        ahead=asked.ahead,
        timeout=asked.timeout,
    )


def _require_same(stream: SimulationStream, data: Data, read: Mapping[str, np.ndarray]) -> None:
    """Check that a simulation in memory equals the one read from its file.

    Raises:
        DataError: a variable differs.
    """
    path = data.campaign.files[0]
    for name, values in stream.extracted(path).items():
        # Bit for bit: normalisation and scores are of the files, the training is on those in
        # memory.
        if not np.array_equal(values, read[name]):
            raise DataError(
                f"{name} of a simulation differs from its file",
                where=str(path),
                fix="data.stream.mode=stored",
            )


def _columns(layout: Layout, offsets: Sequence[int], lead: int) -> dict[str, Column]:
    steps = tuple(int(o) for o in offsets)
    earlier = {
        v.name: Column(v.earlier_of, tuple(o - v.age * lead for o in steps)) for v in layout.earlier
    }
    return {**{name: Column(name, steps) for name in layout.variables}, **earlier}


class _Files:
    """Arrays of the simulations that are files."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._rows = data.source(np.arange(data.num_samples), [0])

    def arrays(self, number: int) -> dict[str, np.ndarray]:
        """Return the variables of a simulation, (frames, *dims) float32 each."""
        block = self._data.blocks[number]
        windows = self._rows.read(np.arange(block.start, block.stop))
        return {name: values[:, 0] for name, values in windows.items()}

    def write(self, number: int, out: Mapping[str, np.ndarray]) -> None:
        for name, values in self.arrays(number).items():
            out[name][...] = values
