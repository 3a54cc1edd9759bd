"""Blockwise writing of fields larger than memory."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import PathLike, encoded_times
from scitoolkit.io.formats.base import FieldWriter, StreamedVariable, writing_format

__all__ = ["StreamedVariable", "open_writer", "stream_fields"]


def stream_fields(
    samples: Iterable[Mapping[str, np.ndarray]],
    variables: Mapping[str, StreamedVariable],
    coordinates: xr.Dataset,
    dim: str,
    path: PathLike,
) -> Path:
    """Write samples one by one into a temporary file, renamed at the end.

    Args:
        samples: {variable: array} per sample, as many as `coordinates` has along `dim`.
        variables: variables of the file, without `dim`.
        coordinates: coordinates of all dims; that of `dim` sets the number of samples.
        dim: the sample dim, first in the file; one sample is one chunk.
        path: file to create or replace; the suffix selects the format, NetCDF4 if unknown.

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
    made = {
        name: replace(
            v, dims=(dim, *v.dims), shape=(coordinates.sizes[dim], *v.shape), chunks=(1, *v.shape)
        )
        for name, v in variables.items()
    }
    with open_writer(path, coordinates, made) as writer:
        for i, sample in enumerate(samples):
            for name in variables:
                writer.write(name, (i,), sample[name])
    return path


@contextlib.contextmanager
def open_writer(
    path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
) -> Iterator[FieldWriter]:
    """Context manager of a blockwise writer; without an error, the file is renamed at the end.

    Args:
        path: file to create or replace; the suffix selects the format, NetCDF4 if unknown.
        coordinates: coordinates of all dims, and attributes of the file.
        variables: variables to write, with all their dims.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    writer: FieldWriter | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = writing_format(path, "hdf5").create(path, encoded_times(coordinates), variables)
        yield writer
        writer.finish()
    except OSError as error:
        full = error.errno == errno.ENOSPC or "no space left" in str(error).lower()
        raise DataError(
            "the disk is full" if full else f"{error}",
            where=str(path),
            fix="free some space or write elsewhere" if full else "",
        ) from error
    finally:
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.discard()
