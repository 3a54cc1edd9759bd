"""Training batches: HDF5 and NetCDF4 by the planned loader, other formats through xarray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data, SampleSource
from scitoolkit.io.fields import expand_paths, open_fields
from scitoolkit.io.formats import format_of
from scitoolkit.io.loader import BatchLoader, FileSource, PlannedLoader, open_source
from scitoolkit.training import current_rank, world_size

TrainingLoader = PlannedLoader | BatchLoader


class VariableSource(FileSource):
    """Windows of a file's variables as the networks take them: float32, dims as in the layout.

    Args:
        source: all windows of the files.
        data: what the variables are.
        starts: which windows.
        repeats: times that each counts in an epoch.
        orders: {variable: its stored dims, in the layout's order} as numbers.
    """

    def __init__(
        self, source: FileSource, data: Data, starts: np.ndarray, repeats: int,
        orders: Mapping[str, Sequence[int]],
    ) -> None:  # fmt: skip
        super().__init__(source.rows, source.keys, np.tile(source.starts[starts], repeats))
        self.data: Data = data
        self.orders: Mapping[str, Sequence[int]] = orders

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of a batch, (samples, steps, *dims) each."""
        batch = super().assemble(values)
        return {
            name: np.ascontiguousarray(
                array.transpose(0, 1, *(2 + i for i in self.orders[name])), dtype=np.float32
            )
            for name, array in batch.items()
        }


def make_loader(
    data: Data, config: EmulationConfig, starts: np.ndarray, offsets: Sequence[int], *, train: bool
) -> TrainingLoader:
    """Return a loader of the windows that begin at `starts`.

    Args:
        data: the opened file.
        config: the job.
        starts: first samples.
        offsets: samples of a window, relative to its start.
        train: shuffled, and every window `config.repeats` times an epoch.
    """
    repeats = config.repeats if train else 1
    batch, seed = config.training.batch_size, config.training.seed
    rank, world = current_rank(), world_size()
    paths = _in_order(config, data)
    if not all(format_of(path).planned for path in paths):
        source = SampleSource(data, starts, offsets, repeats)
        return BatchLoader(source, batch, seed=seed, shuffle=train, rank=rank, world_size=world)
    names = list(data.layout.variables)
    files = open_source(
        paths, {n: n for n in names}, _sample_axis(config, data),
        frames={n: list(offsets) for n in names}, join=True,
    )  # fmt: skip
    windows = VariableSource(files, data, starts, repeats, _orders(data))
    return PlannedLoader(
        windows, batch, seed=seed, buffer=config.buffer, shuffle="exact" if train else False,
        rank=rank, world_size=world,
    )  # fmt: skip


def _in_order(config: EmulationConfig, data: Data) -> list[Path]:
    """Return the files in the order in which their samples were joined."""
    paths = expand_paths(config.data.path)
    if len(paths) == 1:
        return paths
    firsts: list[Any] = []
    for path in paths:
        with open_fields(path, config.data.outputs[:1], dims=config.data.dims) as part:
            dim = config.data.sample_dim
            firsts.append(part[dim].values[0] if dim in part.coords else len(firsts))
    return [paths[i] for i in np.argsort(np.asarray(firsts), kind="stable")]


def _sample_axis(config: EmulationConfig, data: Data) -> str | int:
    """Return the sample dim as the file itself knows it: by number where the user named dims."""
    if config.data.dims is None:
        return config.data.sample_dim
    axes = {
        list(map(str, data.dataset[n].dims)).index(config.data.sample_dim)
        for n in data.layout.variables
    }
    if len(axes) > 1:
        raise DataError(
            f"{config.data.sample_dim} is not the same dim of all variables", where=data.where,
            fix="write a file with the samples first",
        )  # fmt: skip
    return axes.pop()


def _orders(data: Data) -> dict[str, list[int]]:
    """Return, per variable, the number of the stored dim that each of the layout's dims is."""
    out = {}
    for name, variable in data.layout.variables.items():
        stored = [str(d) for d in data.dataset[name].dims if d != data.layout.sample_dim]
        out[name] = [stored.index(d) for d in variable.dims]
    return out
