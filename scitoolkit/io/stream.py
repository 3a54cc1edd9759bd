"""Fields written one sample at a time, so that any number of them fits into memory."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import PathLike, write_fields


@dataclass(frozen=True)
class StreamedVariable:
    """A variable of the file: dims beside the sample dim, their lengths, and attributes."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"


def stream_fields(
    samples: Iterable[Mapping[str, np.ndarray]],
    variables: Mapping[str, StreamedVariable],
    coordinates: xr.Dataset,
    dim: str,
    path: PathLike,
) -> Path:
    """Write samples as they come, as NetCDF4 under a temporary name that is renamed at the end.

    Args:
        samples: as many as `coordinates` has along `dim`; each a value per variable.
        variables: what the file holds.
        coordinates: coordinates of all dims; that of `dim` says how many samples there are.
        dim: the sample dim, first in the file; one sample is one chunk.
        path: file to make or to replace.

    Raises:
        DataError: the disk is full, or the folder cannot be written.

    Example:
        >>> import tempfile
        >>> rows = xr.Dataset(coords={"t": [0.0, 1.0]})
        >>> frames = ({"u": np.full(3, i)} for i in range(2))
        >>> file = Path(tempfile.mkdtemp()) / "u.nc"
        >>> _ = stream_fields(frames, {"u": StreamedVariable(("x",), (3,))}, rows, "t", file)
        >>> xr.open_dataset(file)["u"].values.tolist()
        [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_fields(coordinates, temporary)
        with h5netcdf.File(temporary, "a") as file:
            _create(file, variables, dim)
            for i, sample in enumerate(samples):
                for name in variables:
                    file[name][i] = sample[name]
        temporary.replace(path)
    except OSError as error:
        full = error.errno == errno.ENOSPC or "no space left" in str(error).lower()
        raise DataError(
            "the disk is full" if full else f"{error}", where=str(path),
            fix="free some space or write elsewhere" if full else "",
        ) from error  # fmt: skip
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def _create(file: Any, variables: Mapping[str, StreamedVariable], dim: str) -> None:
    for name, variable in variables.items():
        for own, size in zip(variable.dims, variable.shape, strict=True):
            if own not in file.dimensions:
                file.dimensions[own] = size
        made = file.create_variable(
            name, (dim, *variable.dims), variable.dtype, chunks=(1, *variable.shape)
        )
        for key, value in variable.attrs.items():
            made.attrs[key] = value
