"""From files to samples: which are for training, what normalises them, and how they are read."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.variables import Layout, read_layout
from scitoolkit.io.fields import open_fields
from scitoolkit.io.loader.source import consecutive_runs, require_finite
from scitoolkit.io.split import PARTS, SplitConfig, blocked_split

_BLOCK_BYTES = 64 * 2**20


@dataclass
class Data:
    """An opened file and what its variables are.

    Attributes:
        dataset: lazy; close it.
        layout: variables and grid.
        where: the file, for messages.
    """

    dataset: xr.Dataset
    layout: Layout
    where: str

    @property
    def num_samples(self) -> int:
        """Length of the sample dim."""
        return int(self.dataset.sizes[self.layout.sample_dim])

    @property
    def times(self) -> np.ndarray:
        """The sample coordinate, or sample numbers."""
        dim = self.layout.sample_dim
        return (
            self.dataset[dim].values if dim in self.dataset.coords else np.arange(self.num_samples)
        )


def open_data(config: DataConfig, path: Path | None = None, *, like: Layout | None = None) -> Data:
    """Open the variables of a job lazily.

    Args:
        config: which variables.
        path: another file than the job's own.
        like: the layout that the file must have.

    Raises:
        DataError: what is wrong with the file, a variable, its dims or its grid.
    """
    path = config.path if path is None else Path(path)
    names = list(dict.fromkeys([*config.inputs, *config.outputs]))
    dataset = open_fields(path, names, units=config.units or None, dims=config.dims)
    try:
        layout = read_layout(
            dataset, config.inputs, config.outputs, config.sample_dim, grid=config.grid,
            lead=config.lead, where=str(path),
        )  # fmt: skip
        if like is not None:
            _require_like(layout, like, str(path))
    except BaseException:
        dataset.close()
        raise
    return Data(dataset, layout, str(path))


def _require_like(found: Layout, expected: Layout, where: str) -> None:
    """Refuse a file on another grid, or with other steps, than the emulator learned from."""
    for name, variable in expected.variables.items():
        other = found.variables[name]
        if other.shape != variable.shape or other.dims != variable.dims:
            raise DataError(
                f"dims {dict(zip(other.dims, other.shape, strict=True))}",
                where=f"{where}: variable {name}",
                allowed=str(dict(zip(variable.dims, variable.shape, strict=True))),
            )
    for dim, values in expected.coordinates.items():
        here = np.asarray(found.coordinates.get(dim, values))
        if not np.allclose(here, values, rtol=1e-4, atol=1e-4 * np.ptp(values)):
            raise DataError(
                f"other coordinates of {dim} than the emulator learned from", where=where,
                fix="interpolate to the grid of the training data",
            )  # fmt: skip
    a, b = found.step, expected.step
    if a is not None and b is not None and abs(a - b) > 1e-2 * abs(b):
        raise DataError(
            f"a step of {a:g} along {expected.sample_dim}", where=where, allowed=f"{b:g}"
        )


class SampleSource:
    """Windows of named variables; fulfils `io.loader.Source`.

    Args:
        data: the opened file.
        starts: first sample of each window.
        offsets: samples of a window, relative to its start, ascending.
        repeats: times that each window counts in an epoch.

    Samples hold each variable as (B, offset, *dims) float32.
    """

    bytes_read: int
    arrays: dict[str, xr.DataArray]

    def __init__(
        self, data: Data, starts: np.ndarray, offsets: Sequence[int], repeats: int = 1
    ) -> None:
        self.data: Data = data
        self.repeats: int = repeats
        self.bytes_read = 0
        self.starts: np.ndarray = np.asarray(starts, dtype=np.int64)
        self.offsets: np.ndarray = np.asarray(offsets, dtype=np.int64)
        self.arrays = {
            name: data.dataset[name].transpose(data.layout.sample_dim, *variable.dims)
            for name, variable in data.layout.variables.items()
        }

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""
        return len(self.starts) * self.repeats

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the windows; each stretch that several of them need is read once."""
        wanted = self.starts[indices % len(self.starts)][:, None] + self.offsets
        frames, inverse = np.unique(wanted, return_inverse=True)
        out = {}
        for name, array in self.arrays.items():
            values = self._frames(array, frames)
            out[name] = values[inverse.reshape(wanted.shape)]
        return out

    def _frames(self, array: xr.DataArray, frames: np.ndarray) -> np.ndarray:
        dim = self.data.layout.sample_dim
        parts = []
        for first, last in consecutive_runs(frames):
            try:
                part = array.isel({dim: slice(first, last)}).to_numpy()
            except (OSError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"samples {first} to {last - 1} cannot be read ({error})",
                    where=f"{self.data.where}: variable {array.name}",
                ) from error
            parts.append(part)
        values = np.concatenate(parts)
        self.bytes_read += values.nbytes
        require_finite(values, str(array.name), frames, "samples")
        return np.ascontiguousarray(values, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """Return names, shapes, and a checksum of the windows."""
        return {
            "variables": [[n, list(a.shape), a.dtype.str] for n, a in self.arrays.items()],
            "offsets": self.offsets.tolist(), "repeats": self.repeats,
            "starts": zlib.crc32(self.starts.tobytes()),
        }  # fmt: skip


def divide(num_samples: int, window: int, config: SplitConfig, *, own_test: bool) -> dict[str, Any]:
    """Return the samples of each part: blocks that share none.

    Args:
        num_samples: length of the sample dim.
        window: samples that one training window spans.
        config: the division.
        own_test: whether the test part is in this file.

    Raises:
        ConfigError: a part has no whole window.
    """
    if not own_test and config.test:
        config = config.model_copy(update={"test": 0})
    split = blocked_split(num_samples, 1, max(window - 1, 0), config)
    if split.steps is None:
        raise ConfigError("a random split", where="split.name", allowed="blocked")
    return {name: split.steps[name] for name in PARTS}


def starts_of(steps: range, span: int) -> np.ndarray:
    """Return the first samples of all windows of `span` samples inside a part."""
    return np.arange(steps.start, steps.stop - span + 1, dtype=np.int64)


def measure(data: Data, steps: range, config: EmulationConfig) -> Statistics:
    """Measure the training part once, in blocks: never another part.

    A variable that does not change has scale 1, so that it becomes 0 and not NaN.
    """
    layout, lead = data.layout, config.data.lead
    state = layout.state if config.residual else ()
    values: dict[str, _Moments] = {n: _Moments() for n in layout.variables}
    changes: dict[str, _Moments] = {n: _Moments() for n in state}
    frame = sum(4 * int(np.prod(v.shape)) for v in layout.variables.values())
    block = max(lead + 1, _BLOCK_BYTES // max(frame, 1))
    source = SampleSource(data, np.arange(data.num_samples), [0])
    for first in range(steps.start, steps.stop, block):
        last = min(first + block, steps.stop)
        read = source.read(np.arange(first, min(last + lead, steps.stop)))
        for name, variable in layout.variables.items():
            array = read[name][:, 0].astype(np.float64)
            per_field = variable.is_field
            values[name].add(array[: last - first], per_field)
            if name in changes and len(array) > lead:
                changes[name].add(array[lead:] - array[:-lead], per_field)
    sizes = {n: torch.from_numpy(m.root_mean_square()).float() for n, m in changes.items()}
    spreads = {n: m.result() for n, m in values.items()}
    return Statistics(
        {n: (torch.from_numpy(m).float(), torch.from_numpy(s).float())
         for n, (m, s) in spreads.items()}, sizes,
    )  # fmt: skip


class _Moments:
    """Mean and spread of a variable, of all cells (a field) or of each value (a vector)."""

    def __init__(self) -> None:
        self.count = 0
        self.sum: np.ndarray | float = 0.0
        self.square: np.ndarray | float = 0.0

    def add(self, values: np.ndarray, is_field: bool) -> None:
        flat = values.reshape(-1, 1) if is_field else values.reshape(len(values), -1)
        if not self.count:
            # Moments about the first value: no digits are lost where the mean is large.
            self.shift = flat[0].copy()
        flat = flat - self.shift
        self.count += len(flat)
        self.sum = self.sum + flat.sum(0)
        self.square = self.square + (flat**2).sum(0)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        mean = np.asarray(self.sum) / self.count
        variance = np.maximum(np.asarray(self.square) / self.count - mean**2, 0.0)
        scale = np.sqrt(variance)
        size = np.maximum(np.abs(mean + self.shift), 1e-30)
        return mean + self.shift, np.where(scale > 1e-7 * size, scale, 1.0)

    def root_mean_square(self) -> np.ndarray:
        mean = np.asarray(self.sum) / self.count
        square = np.asarray(self.square) / self.count + self.shift * (2 * mean + self.shift)
        return np.where(square > 0, np.sqrt(np.maximum(square, 0.0)), 1.0)
