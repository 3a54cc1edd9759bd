"""Format of Zarr stores, versions 2 and 3."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import missing_extra
from scitoolkit.core.files import temporary_name
from scitoolkit.io.compressed import STORE_FILES
from scitoolkit.io.formats.base import Block, Format, StreamedVariable, open_lazily
from scitoolkit.io.loader.zarr import zarr_readers

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import Layout, RowReader

MAX_CHUNK_VALUES = 2**22


class Zarr(Format):
    """Zarr stores, versions 2 and 3, with or without shards."""

    name: ClassVar[str] = "zarr"
    requires: ClassVar[tuple[str, ...]] = ("zarr",)
    extra: ClassVar[str] = "zarr"
    suffixes: ClassVar[tuple[str, ...]] = (".zarr",)
    whole_chunks: ClassVar[bool] = True

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for a folder with the metadata of a store."""
        return float(path.is_dir() and any((path / name).exists() for name in STORE_FILES))

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through zarr, without consolidated metadata."""
        return open_lazily(path, "zarr", chunks=chunks, decode=decode, consolidated=False)

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., Layout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return readers, through tensorstore if it is installed."""
        return zarr_readers(path, names, layout_of)

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
        coordinates.to_zarr(self.temporary, mode="w", consolidated=False)
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
