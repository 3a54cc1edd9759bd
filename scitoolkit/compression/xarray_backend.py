"""xarray backend for compressed files, with lazy decoding.

`xarray.open_dataset("compressed.h5", engine="scitoolkit")` has the variables, coordinates and
attributes of the original. Values are decoded on access; of a variable coded with `blocks`
(`--for speed`), only the blocks of the selection are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint, H5NetCDFStore, StoreBackendEntrypoint
from xarray.backends.common import AbstractDataStore
from xarray.core import indexing

from scitoolkit.compression.decoding import inspect_stream
from scitoolkit.compression.files import refuse_folder
from scitoolkit.compression.filtered import about, load_filter
from scitoolkit.compression.regions import decompress_region
from scitoolkit.compression.stream_datasets import HEADER
from scitoolkit.compression.zarr_files import stored_arrays
from scitoolkit.core.errors import DataError
from scitoolkit.io.compressed import FILTERED, is_store, is_stream, mark_of

# Keys of an encoding that describe the compressed dataset instead of the original.
_STORAGE = {
    "chunksizes",
    "compression",
    "compression_opts",
    "contiguous",
    "complevel",
    "fletcher32",
    "shuffle",
    "szip",
    "zlib",
    "zstd",
    "bzip2",
    "blosc",
}


class StreamArray(BackendArray):
    """Lazy array that decodes selections of a stream.

    Args:
        stream: (bytes,) uint8, in memory or a memory map.
        shape: of the array.
        dtype: of the array.
    """

    def __init__(self, stream: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.stream, self.shape, self.dtype = stream, shape, dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Return a selection."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._decode
        )

    def _decode(self, key: tuple[int | slice, ...]) -> np.ndarray:
        spans: list[slice] = []
        inner: list[int | slice] = []
        for part, n in zip(key, self.shape, strict=True):
            chosen = range(n)[part]
            if isinstance(chosen, int):
                spans.append(slice(chosen, chosen + 1))
                inner.append(0)
                continue
            # Regions are decoded in ascending order and reversed afterwards. A descending slice
            # that ends at the first entry has the stop None, as -1 would mean the last one.
            low, high = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
            spans.append(slice(low, high))
            stop = chosen.stop - low if chosen.stop >= low else None
            inner.append(slice(chosen.start - low, stop, chosen.step) if chosen else slice(0, 0))
        values = decompress_region(self.stream.data, *spans)
        if isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "f":
            values = values.filled(np.nan)
        return np.asarray(values)[tuple(inner)]


class CompressedStore(AbstractDataStore):
    """Data store of a compressed HDF5 or NetCDF file."""

    def __init__(self, path: str, group: str | None) -> None:
        self._store = H5NetCDFStore.open(path, group=group, phony_dims="access")
        self._path, self._group = path, group or "/"

    def get_encoding(self) -> dict[str, Any]:
        """Return the unlimited dims."""
        return dict(self._store.get_encoding())

    def load(self) -> tuple[dict[str, xr.Variable], Mapping[str, Any]]:
        """Return the variables and attributes of the original file, and its storage as encoding.

        A file written from them has the original's chunks and lossless filters, and no mark of
        compression.
        """
        variables, attributes = self._store.load()
        decoded = dict(variables)
        with h5py.File(self._path) as file:
            for name, variable in variables.items():
                if FILTERED in variable.attrs:
                    item = file[self._group][str(name)]
                    if mark_of(item):
                        variable.encoding = _original_encoding(variable.encoding, about(item))
                    del variable.attrs[FILTERED]
                if HEADER not in variable.attrs:
                    continue
                header = file[file[self._group][str(name)].attrs[HEADER]]
                described = decoded.pop(header.name.rpartition("/")[2])
                array = StreamArray(
                    _bytes_of(file[self._group][str(name)]), described.shape, described.dtype
                )
                lazy = indexing.LazilyIndexedArray(array)
                decoded[name] = xr.Variable(described.dims, lazy, described.attrs)
        return decoded, attributes

    def close(self) -> None:
        """Close the file."""
        self._store.close()


class CompressedEntrypoint(BackendEntrypoint):
    """xarray engine `scitoolkit`: compressed files, stores and streams."""

    description: ClassVar[str] = "Files and streams that scitoolkit compressed"
    open_dataset_parameters: ClassVar[Any] = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "use_cftime",
        "decode_timedelta",
        "group",
    )

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[Any],
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        **decoding: Any,
    ) -> xr.Dataset:
        """Open a compressed file as a dataset; values are decoded on access.

        Masked points of float streams are NaN.

        Args:
            filename_or_obj: file or Zarr store written by `scitoolkit compress`.
            drop_variables: names of variables to drop.
            group: of the file or store; the root by default.
            decoding: see `xarray.open_dataset`.

        Raises:
            DataError: no such file, or it has no variable compressed by scitoolkit.
        """
        path = Path(filename_or_obj)
        if is_store(path):
            return _zarr_store(path, group, drop_variables=drop_variables, **decoding)
        refuse_folder(path)
        if is_stream(path):
            return _one_array(path)
        with h5py.File(path) as file:
            marks = {mark_of(item) for item in file[group or "/"].values()}
            if not any(marks):
                raise DataError("no variable compressed by scitoolkit", where=str(path))
            if FILTERED in marks:
                load_filter()
        store = CompressedStore(str(path), group)
        return StoreBackendEntrypoint().open_dataset(
            store, drop_variables=drop_variables, **decoding
        )


def _zarr_store(path: Path, group: str | None, **decoding: Any) -> xr.Dataset:
    """Open a Zarr store, which decodes chunks through the codec but cannot decode streams."""
    marked = [(one.name, one.stream is not None) for one in stored_arrays(path)]
    if not marked:
        raise DataError("no variable compressed by scitoolkit", where=str(path))
    if streams := [name for name, stream in marked if stream]:
        raise DataError(
            f"{streams[0]} is a stream in a Zarr store",
            where=str(path),
            fix=f"scitoolkit decompress {path} OUT.zarr",
        )
    opened = xr.open_dataset(path, engine="zarr", group=group, consolidated=False, **decoding)
    for variable in opened.variables.values():
        if variable.attrs.pop(FILTERED, None) is not None:
            for key in ("serializer", "filters", "compressors", "compressor"):
                variable.encoding.pop(key, None)
    return opened


def _original_encoding(encoding: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return xarray's encoding with the chunks and deflate of the original, without the filter."""
    original = {key: value for key, value in encoding.items() if key not in _STORAGE}
    storage = header["storage"]
    if storage["chunks"]:
        original["chunksizes"] = tuple(storage["chunks"])
    for code, _, options in storage["filters"] if storage["chunks"] else ():
        if code == h5py.h5z.FILTER_DEFLATE:
            original |= {"zlib": True, "complevel": int(options[0])}
        elif code == h5py.h5z.FILTER_SHUFFLE:
            original["shuffle"] = True
        elif code == h5py.h5z.FILTER_FLETCHER32:
            original["fletcher32"] = True
    return original


def _bytes_of(item: h5py.Dataset) -> np.ndarray:
    """Return the bytes of a stream, as a memory map if they are contiguous in the file."""
    # None for chunked datasets, whose bytes are not contiguous.
    offset = item.id.get_offset()
    if offset is None:
        return np.asarray(item[...])
    return np.memmap(item.file.filename, np.uint8, "r", offset, item.shape)


def _one_array(path: Path) -> xr.Dataset:
    stream = np.memmap(path, np.uint8, "r")
    about = inspect_stream(stream.data)
    array = StreamArray(stream, tuple(about["shape"]), np.dtype(about["dtype"]))
    dims = [f"dim_{i}" for i in range(len(array.shape))]
    return xr.Dataset({path.stem: (dims, indexing.LazilyIndexedArray(array))})
