"""Sources of samples: protocol, arrays in memory, and windows of lazily opened fields."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.coordinates import time_dim


@runtime_checkable
class Source(Protocol):
    """Set of samples that can be read by index, in any order and from any thread."""

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the samples `indices` along the first dim, in that order, as new arrays.

        Raises:
            DataError: a sample cannot be read or has invalid values.
        """

    def describe(self) -> dict[str, Any]:
        """Return the identity of the data set (JSON types), which must be equal on resuming."""


class ArraySource:
    """Source of samples in memory.

    Args:
        arrays: key -> (num_samples, ...) array.
        allow_nan: whether to accept non-finite values.

    Raises:
        DataError: lengths differ, or there is no array.

    Example:
        >>> source = ArraySource({"x": np.arange(6.0).reshape(3, 2)})
        >>> source.read(np.array([2, 0]))["x"].tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """

    bytes_read: int

    def __init__(self, arrays: Mapping[str, np.ndarray], *, allow_nan: bool = False) -> None:
        self.arrays: dict[str, np.ndarray] = {
            key: np.asarray(value) for key, value in arrays.items()
        }
        self.allow_nan = allow_nan
        self.bytes_read = 0
        lengths = {key: len(value) for key, value in self.arrays.items()}
        if not lengths:
            raise DataError("no arrays given")
        if len(set(lengths.values())) > 1:
            raise DataError(f"the arrays differ in their number of samples: {lengths}")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(next(iter(self.arrays.values())))

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return copies of the samples `indices`."""
        batch = {key: value[indices] for key, value in self.arrays.items()}
        for key, value in batch.items():
            self.bytes_read += value.nbytes
            if not self.allow_nan:
                require_finite(value, key, indices, "samples")
        return batch

    def describe(self) -> dict[str, Any]:
        """Return shapes, dtypes and a checksum of each array's first and last sample."""
        return {
            key: [list(v.shape), v.dtype.str, zlib.crc32(v[:: max(1, len(v) - 1)].tobytes())]
            for key, v in self.arrays.items()
        }


class FieldWindows:
    """Source of windows of a lazily opened field: `inputs` steps, then `leads` steps.

    Steps shared by windows of a batch are read once; nothing is cached between batches.

    Samples have `inputs` (B, inputs, [channels,] *space) and `targets` (B, leads, [channels,]
    *space) in the stored precision, and `start` (B,) int64.

    Args:
        field: an array with a time dim, or a dataset whose variables become a channel dim.
        starts: (num_windows,) int, first time step of every window.
        inputs: number of input steps.
        leads: number of target steps.
        allow_nan: whether to accept non-finite values, for example of a field with land.

    Raises:
        ConfigError: a window does not fit into the field.
        DataError: no time dim, or variables with different dims.

    Example:
        >>> field = xr.DataArray(np.arange(8.0).reshape(4, 2), dims=("time", "x"), name="u")
        >>> windows = FieldWindows(field, starts=[0, 1], inputs=2, leads=1)
        >>> windows.read(np.array([1]))["targets"].tolist()
        [[[6.0, 7.0]]]
    """

    variables: list[xr.DataArray]
    bytes_read: int

    def __init__(
        self,
        field: xr.DataArray | xr.Dataset,
        starts: Sequence[int] | np.ndarray,
        inputs: int,
        leads: int,
        *,
        allow_nan: bool = False,
    ) -> None:
        variables = [field] if isinstance(field, xr.DataArray) else list(field.data_vars.values())
        if not variables:
            raise DataError("the dataset has no variables")
        self.time: str = time_dim(variables[0])
        order = (self.time, *(d for d in variables[0].dims if d != self.time))
        if any(set(v.dims) != set(order) for v in variables):
            raise DataError(f"the variables differ in their dims: {[v.dims for v in variables]}")
        self.variables = [v.transpose(*order) for v in variables]
        self.stack_channels: bool = isinstance(field, xr.Dataset)
        self.starts: np.ndarray = np.asarray(starts, dtype=np.int64)
        self.inputs: int = inputs
        self.leads: int = leads
        self.allow_nan: bool = allow_nan
        self.bytes_read = 0
        self._check_window(self.variables[0].sizes[self.time])

    def _check_window(self, num_steps: int) -> None:
        window = self.inputs + self.leads
        if self.inputs < 1 or self.leads < 0:
            raise ConfigError(f"inputs {self.inputs}, leads {self.leads}", allowed="1+ and 0+")
        if len(self.starts) and (self.starts.min() < 0 or self.starts.max() + window > num_steps):
            raise ConfigError(
                f"windows of {window} steps start as late as {self.starts.max()}, "
                f"but the field has {num_steps} steps"
            )

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the windows `indices`; the keys are described in the class."""
        starts = self.starts[indices]
        offsets = np.arange(self.inputs + self.leads)
        frames, inverse = np.unique(starts[:, None] + offsets, return_inverse=True)
        values = self._read_frames(frames)[inverse.reshape(len(starts), -1)]
        return {
            "inputs": np.ascontiguousarray(values[:, : self.inputs]),
            "targets": np.ascontiguousarray(values[:, self.inputs :]),
            "start": starts,
        }

    def _read_frames(self, frames: np.ndarray) -> np.ndarray:
        """Read sorted distinct frames, (frames, [channels,] *space)."""
        channels = [self._read_variable(variable, frames) for variable in self.variables]
        return np.stack(channels, axis=1) if self.stack_channels else channels[0]

    def _read_variable(self, variable: xr.DataArray, frames: np.ndarray) -> np.ndarray:
        parts = []
        for first, last in consecutive_runs(frames):
            try:
                part = variable.isel({self.time: slice(first, last)}).to_numpy()
            except (OSError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"frames {first} to {last - 1} cannot be read ({error})",
                    where=f"{variable.encoding.get('source', '')} {variable.name}".strip(),
                ) from error
            parts.append(part)
        values = np.concatenate(parts)
        self.bytes_read += values.nbytes
        if not self.allow_nan:
            require_finite(values, str(variable.name), frames, "frames")
        return values

    def describe(self) -> dict[str, Any]:
        """Return names, shapes and dtypes of the variables, and a checksum of the windows."""
        return {
            "variables": [[str(v.name), list(v.shape), v.dtype.str] for v in self.variables],
            "window": [self.inputs, self.leads],
            "starts": zlib.crc32(self.starts.tobytes()),
        }


def consecutive_runs(frames: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of every run of consecutive integers in a sorted array.

    Example:
        >>> list(consecutive_runs(np.array([1, 2, 3, 7, 8])))
        [(1, 4), (7, 9)]
    """
    for run in np.split(frames, np.flatnonzero(np.diff(frames) != 1) + 1):
        yield int(run[0]), int(run[-1]) + 1


def require_finite(values: np.ndarray, name: str, indices: np.ndarray, what: str) -> None:
    """Raise DataError with the first few of `indices` that have NaN or Inf in `values`."""
    if values.dtype.kind not in "fc":
        return
    bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if bad.any():
        names = ", ".join(str(i) for i in np.asarray(indices)[bad][:5])
        more = ", ..." if bad.sum() > 5 else ""
        raise DataError(
            f"NaN or Inf in {int(bad.sum())} of {len(values)} {what} read ({what} {names}{more})",
            where=f"variable {name}",
            fix="fill or mask them, or allow_nan=True if the training masks them",
        )
