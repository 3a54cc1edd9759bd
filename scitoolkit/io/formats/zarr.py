"""Format of Zarr stores, versions 2 and 3."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.files import temporary_name
from scitoolkit.io.formats.base import Block, Format, Refusal, StreamedVariable, open_lazily
from scitoolkit.io.loader.rows import whole_layout
from scitoolkit.io.loader.stores import is_folder_of_files, is_store, store_of
from scitoolkit.io.loader.zarr import tell_absent, unwritten_entries, zarr_readers

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout

MAX_CHUNK_VALUES = 2**22


class Zarr(Format):
    """Zarr stores, versions 2 and 3, with or without shards; references; Icechunk.

    References are those of kerchunk and VirtualiZarr, in JSON or Parquet.
    """

    name: ClassVar[str] = "zarr"
    requires: ClassVar[tuple[str, ...]] = ("zarr",)
    extra: ClassVar[str] = "zarr"
    suffixes: ClassVar[tuple[str, ...]] = (".zarr",)
    whole_chunks: ClassVar[bool] = True

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for a folder with the metadata of a store, or a file of references."""
        return float(is_store(path))

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through zarr, without consolidated metadata."""
        # Consolidated metadata are a copy, which a later append may have left out of date.
        store = store_of(path)
        return open_lazily(store, "zarr", chunks=chunks, decode=decode, consolidated=False)

    @classmethod
    def refers(cls, path: Path) -> bool:
        """Return whether the chunks are no files of the store."""
        return not is_folder_of_files(path)

    @classmethod
    def unwritten(cls, path: Path, variables: Mapping[str, xr.Variable]) -> dict[str, Refusal]:
        """Return what refuses chunks that the store or a shard lacks."""
        numbers = {
            name: variable
            for name, variable in variables.items()
            if np.dtype(variable.encoding.get("dtype", variable.dtype)).kind in "biufc"
        }
        refusals: dict[str, Refusal] = {}
        for name, variable in numbers.items():
            if variable.ndim < 2 and (absent := unwritten_entries(path, name)).any():
                refusals[name] = functools.partial(_refuse_entries, f"{path}: {name}", absent)
        # Decoded fill values are NaN, a missing value of a field.
        fields = [n for n, v in numbers.items() if v.ndim > 1 and "_FillValue" not in v.encoding]
        for name in (n for n, v in numbers.items() if v.ndim > 1 and n not in fields):
            tell_absent(path, name)
        readers = zarr_readers(path, fields, whole_layout) if fields else {}
        holes = {name: reader.refuse_holes for name, reader in readers.items() if reader.holes}
        return refusals | holes

    @classmethod
    def unwritten_entries(
        cls, path: Path, name: str, values: np.ndarray, attrs: Mapping[str, Any]
    ) -> np.ndarray | None:
        """Return the entries whose chunk the store lacks."""
        return unwritten_entries(path, name)

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return readers, through tensorstore if it is installed."""
        return dict(zarr_readers(path, names, layout_of))

    @classmethod
    def create(
        cls, path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
    ) -> ZarrWriter:
        """Return a writer of an uncompressed store."""
        return ZarrWriter(path, coordinates, variables)


class ZarrWriter:
    """Blockwise writer of a Zarr store in a temporary folder.

    Args:
        path: folder to create or replace.
        coordinates: see `Format.create`.
        variables: see `Format.create`.
    """

    def __init__(
        self, path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
    ) -> None:
        try:
            import zarr
        except ImportError:
            raise missing_extra("zarr", "zarr", "writing Zarr stores") from None
        self.path = path
        self.temporary: Path = temporary_name(path)
        # A chunk of fill values that is left out looks like one that was never written.
        coordinates.to_zarr(self.temporary, mode="w", consolidated=False, write_empty_chunks=True)
        group = zarr.open_group(self.temporary, mode="a")
        self.arrays: dict[str, Any] = {}
        for name, variable in variables.items():
            chunks = variable.chunks or (1, *variable.shape[1:])
            self.arrays[name] = group.create_array(
                name,
                shape=variable.shape,
                chunks=_at_most(chunks, MAX_CHUNK_VALUES),
                dtype=variable.dtype,
                dimension_names=list(variable.dims),
                compressors=None,
                fill_value=0 if variable.fill_value is None else variable.fill_value,
                config={"write_empty_chunks": True},
            )
            self.arrays[name].attrs.update(variable.attrs)

    def write(self, name: str, block: Block, values: np.ndarray) -> None:
        """Write values into a block of a variable."""
        self.arrays[name][block] = values

    def finish(self) -> None:
        """Rename the store to its final name."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.temporary.replace(self.path)

    def discard(self) -> None:
        """Remove the temporary folder."""
        if self.temporary.exists():
            shutil.rmtree(self.temporary)


def _at_most(chunks: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Return chunks halved along the first dims until they have at most `limit` values."""
    out = list(chunks)
    for axis in range(len(out)):
        while int(np.prod(out)) > limit and out[axis] > 1:
            out[axis] = -(-out[axis] // 2)
    return tuple(out)


def _refuse_entries(
    where: str, absent: np.ndarray, window: tuple[slice, ...], values: np.ndarray
) -> None:
    """Raise if a window of a scalar or vector has entries without a chunk."""
    if absent[window].any():
        entry = int(np.flatnonzero(absent.reshape(-1))[0])
        raise DataError(
            f"entry {entry} has no chunk in the store, which would be read as its fill value",
            where=where,
            fix="restore the file, or write with write_empty_chunks=True",
        )
