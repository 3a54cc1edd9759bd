"""Format of HDF5 and NetCDF4 files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.io.formats.base import (
    Block,
    Format,
    Refusal,
    StoredVariable,
    StreamedVariable,
    file_head,
    open_lazily,
)
from scitoolkit.io.loader.hdf5 import (
    filter_names,
    hdf5_dims,
    hdf5_readers,
    implied_fills,
    unwritten_parts,
)
from scitoolkit.io.netcdf_writer import write_into
from scitoolkit.io.unfailing_file import UnfailingFile

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class Hdf5(Format):
    """HDF5 and NetCDF4; dims of plain HDF5 are numbered."""

    name: ClassVar[str] = "hdf5"
    suffixes: ClassVar[tuple[str, ...]] = (".nc", ".h5", ".hdf5", ".nc4")
    planned: ClassVar[bool] = True
    native_hdf5: ClassVar[bool] = True

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for a file with HDF5's signature at its start or after a user block."""
        # Four bytes: a transfer as text changes the line ends after them, which is damaged HDF5 and
        # not an unknown format. A user block moves the signature to byte 512, 1024, ...
        head = file_head(path, len(_SIGNATURE))
        return float(head[:4] == _SIGNATURE[:4] or bool(head and h5py.is_hdf5(path)))

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through h5netcdf."""
        return open_lazily(
            path,
            "h5netcdf",
            chunks=chunks,
            decode=decode,
            fills=functools.partial(implied_fills, path),
            # Unnamed dims get names when a variable is read; `sort` would visit all groups first.
            phony_dims="access",
        )

    @classmethod
    def variables(cls, path: Path) -> list[StoredVariable]:
        """Return the numeric arrays of all groups, with chunks, filters and stored bytes."""
        try:
            file = h5py.File(path, "r")
        except OSError as error:
            raise DataError(f"cannot be opened as HDF5 ({error})", where=str(path)) from None
        variables: list[StoredVariable] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "biufc":
                variables.append(_variable(name, item))

        with file:
            file.visititems(visit)
        return variables

    @classmethod
    def unwritten(cls, path: Path, variables: Mapping[str, xr.Variable]) -> dict[str, Refusal]:
        """Return what refuses chunks, sources and files that were never written or are gone."""
        return unwritten_parts(path, list(variables))

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return readers that read chunks by their positions in the file."""
        return hdf5_readers(path, names, layout_of, allow_unwritten=allow_unwritten)

    @classmethod
    def create(
        cls, path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
    ) -> NetCDF4Writer:
        """Return a writer of NetCDF4."""
        return NetCDF4Writer(path, coordinates, variables)


class NetCDF4Writer:
    """Blockwise writer of NetCDF4.

    Args:
        path: file to create or replace.
        coordinates: see `Format.create`.
        variables: see `Format.create`.
    """

    def __init__(
        self, path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
    ) -> None:
        import h5netcdf

        self.path = path
        self.temporary: Path = temporary_name(path)
        # HDF5 may crash in any later call after a failed write, such as on a full disk.
        self._bytes = UnfailingFile(self.temporary)
        try:
            write_into(coordinates, self._bytes)
        except BaseException:
            self._bytes.close()
            self.temporary.unlink(missing_ok=True)
            raise
        self.file: Any = h5netcdf.File(self._bytes, "a")
        for name, variable in variables.items():
            for dim, size in zip(variable.dims, variable.shape, strict=True):
                if dim not in self.file.dimensions:
                    self.file.dimensions[dim] = size
            made = self.file.create_variable(
                name,
                variable.dims,
                _dtype(variable.dtype),
                chunks=variable.chunks,
                fillvalue=variable.fill_value,
            )
            made.attrs.update(variable.attrs)

    def write(self, name: str, block: Block, values: np.ndarray) -> None:
        """Write values into a block of a variable."""
        self.file[name][block] = values
        self._bytes.check()

    def finish(self) -> None:
        """Close the file and rename it to its final name."""
        self.file.close()
        self._bytes.check()
        self._bytes.close()
        move_into_place(self.temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file."""
        if self.temporary.exists():
            self.file.close()
            self._bytes.close()
            self.temporary.unlink()


def _dtype(name: str) -> Any:
    return h5py.string_dtype() if name == "str" else name


def _variable(name: str, item: h5py.Dataset) -> StoredVariable:
    units = item.attrs.get("units", "")
    return StoredVariable(
        name=name,
        shape=item.shape,
        dims=hdf5_dims(item),
        dtype=item.dtype.str,
        units=units.decode() if isinstance(units, bytes) else str(units),
        chunks=item.chunks,
        filters="+".join(filter_names(item)),
        stored_bytes=item.id.get_storage_size(),
    )
