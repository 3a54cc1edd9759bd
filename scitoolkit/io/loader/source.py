"""Sources of samples: protocol, and arrays in memory."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scitoolkit.core.errors import DataError


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
