"""What a file holds and how it is laid out on disk, without reading its values.

The layout decides how fast training reads: a contiguous variable can be read anywhere, a chunked
one only in whole chunks, each decompressed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.advice import training_reads
from scitoolkit.io.loader.hdf5 import filter_names, hdf5_dims

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NETCDF3_SIGNATURE = b"CDF"


@dataclass(frozen=True)
class Variable:
    """One array of a file.

    Attributes:
        shape: its extent, dims named in `dims` where the file names them.
        chunks: extent of a chunk, or None when it is stored in one piece.
        stored_bytes: bytes on disk after compression; 0 for values never written.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: str
    units: str
    chunks: tuple[int, ...] | None
    filters: str
    stored_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded values."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def describe(path: Path | str) -> dict[str, Any]:
    """Return the format, size and variables of a file as plain data.

    Args:
        path: HDF5, NetCDF3/4 file or Zarr store.

    Raises:
        DataError: the file is missing, or none of these formats.
    """
    path = Path(path)
    if not path.exists():
        raise DataError("no such file", where=str(path))
    if path.is_dir():
        return _described("zarr", path, list(_xarray_variables(path)))
    with path.open("rb") as file:
        head = file.read(8)
    if head == _HDF5_SIGNATURE or h5py.is_hdf5(path):
        return _described("hdf5", path, list(_hdf5_variables(path)))
    if head.startswith(_NETCDF3_SIGNATURE):
        return _described("netcdf3", path, list(_xarray_variables(path)))
    raise DataError(
        "format not recognised", where=str(path), allowed="HDF5, NetCDF3, NetCDF4, Zarr"
    )


def _described(kind: str, path: Path, variables: list[Variable]) -> dict[str, Any]:
    size = sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size
    return {
        "path": str(path),
        "format": kind,
        "bytes": size,
        "variables": [
            {
                **asdict(v),
                "bytes": v.nbytes,
                "training": training_reads(
                    v.shape, np.dtype(v.dtype).itemsize, v.chunks, bool(v.filters) or kind == "zarr"
                ),
            }
            for v in variables
        ],
    }


def _hdf5_variables(path: Path) -> Iterator[Variable]:
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"cannot be opened as HDF5 ({error})", where=str(path)) from None
    with file:
        found: list[Variable] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "biufc":
                found.append(_hdf5_variable(name, item))

        file.visititems(visit)
    yield from found


def _hdf5_variable(name: str, item: h5py.Dataset) -> Variable:
    units = item.attrs.get("units", "")
    return Variable(
        name=name,
        shape=item.shape,
        dims=hdf5_dims(item),
        dtype=item.dtype.str,
        units=units.decode() if isinstance(units, bytes) else str(units),
        chunks=item.chunks,
        filters="+".join(filter_names(item)),
        stored_bytes=item.id.get_storage_size(),
    )


def _xarray_variables(path: Path) -> Iterator[Variable]:
    from scitoolkit.io.fields import open_fields

    with open_fields(path) as dataset:
        for name, array in dataset.variables.items():
            if array.dtype.kind not in "biufc":
                continue
            chunks = array.encoding.get("chunks")
            yield Variable(
                name=str(name),
                shape=array.shape,
                dims=tuple(map(str, array.dims)),
                dtype=array.dtype.str,
                units=str(array.attrs.get("units", "")),
                chunks=tuple(chunks) if chunks else None,
                filters="",
                stored_bytes=array.nbytes,
            )
