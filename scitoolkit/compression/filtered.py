"""Variables as HDF5 datasets coded by scitoolkit's filter, readable by other programs.

Other programs require the filter's plug-in to read values; shape, type, attributes and dims are
readable without it. Chunks, filters and fill value of the original are stored in an attribute, from
which `decompress` restores them.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from logging import Logger
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from scitoolkit.compression import chunked
from scitoolkit.compression.chunked import VariableSurvey
from scitoolkit.compression.hdf5_copy import LOSSLESS_FILTERS
from scitoolkit.compression.native import plugin
from scitoolkit.compression.native.library import encode_chunk, enhancer_in
from scitoolkit.compression.stored import about_chunks
from scitoolkit.compression.threads import map_in_order, threads
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import FILTERED
from scitoolkit.ops.codegen.cache import cache_directory

log: Logger = get_logger(__name__)


@functools.cache
def load_filter() -> Path:
    """Register the filter with h5py, building it if it is not cached; return its folder.

    If the cache cannot be written, the filter is built in a temporary folder of this process.

    Raises:
        BackendError: there is no C compiler, or no folder can be written.
    """
    digest = hashlib.sha256(plugin.plugin_source().encode()).hexdigest()
    folder = cache_directory() / f"hdf5-{digest[:16]}"
    if not (folder / plugin.LIBRARY).exists():
        try:
            plugin.write(folder)
        except OSError as error:
            log.warning("%s: the HDF5 filter is built in a temporary folder", error)
            # Not the kernel cache's fallback: HDF5 opens a path without checking its owner.
            folder = Path(tempfile.mkdtemp(prefix="scitoolkit-hdf5-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            plugin.install(folder)
    h5py.h5pl.prepend(str(folder).encode())
    return folder


def write(
    item: h5py.Dataset,
    parent: h5py.Group,
    name: str,
    datatype: h5t.TypeID,
    surveyed: VariableSurvey,
) -> h5py.Dataset:
    """Write a variable with the filter and return the dataset, without the original's attributes.

    Chunks are coded here by several threads and written directly, because HDF5 would run the
    filter sequentially.

    Args:
        item: variable that `chunked.refusal` accepts.
        parent: group of the new dataset.
        name: of the new dataset.
        datatype: of the new dataset.
        surveyed: result of `chunked.survey`.
    """
    load_filter()
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk(chunked.best_chunk_shape(item, surveyed))
    if surveyed.fill is not None or item.fillvalue:
        fill = item.fillvalue if surveyed.fill is None else surveyed.fill
        properties.set_fill_value(np.array(fill, item.dtype))
    words = plugin.filter_options(surveyed.absolute, surveyed.extras, item.dtype)[
        "compression_opts"
    ]
    properties.set_filter(plugin.FILTER_ID, 0, words)
    space = h5s.create_simple(item.shape, item.id.get_space().get_simple_extent_dims(maxdims=True))
    made = h5py.Dataset(h5d.create(parent.id, name.encode(), datatype, space, properties))
    parameters = np.array(parameters_of(made), np.uint32)

    def coded(chunk: tuple[tuple[int, ...], np.ndarray]) -> tuple[tuple[int, ...], bytes]:
        return chunk[0], encode_chunk(chunk[1], parameters)

    for offset, data in map_in_order(coded, _chunks_of(item, made), threads()):
        made.id.write_direct_chunk(offset, data)
    made.attrs[FILTERED] = json.dumps({**surveyed.header(), "storage": _storage(item)})
    return made


def _chunks_of(
    item: h5py.Dataset, made: h5py.Dataset
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield offset and values of each chunk of `made`, edge chunks padded with its fill value."""
    rows = chunked.slab_rows(made, made.chunks[0])
    for start in range(0, item.shape[0], rows):
        slab = np.asarray(item[start : start + rows], made.dtype)
        corners = (range(0, n, c) for n, c in zip(slab.shape, made.chunks, strict=True))
        for corner in itertools.product(*corners):
            inside = slab[tuple(slice(i, i + c) for i, c in zip(corner, made.chunks, strict=True))]
            # HDF5 stores chunks at the edges whole and would pad them likewise.
            whole = np.full(made.chunks, made.fillvalue, made.dtype)
            whole[tuple(slice(n) for n in inside.shape)] = inside
            yield (corner[0] + start, *corner[1:]), whole


def parameters_of(item: h5py.Dataset) -> tuple[int, ...]:
    """Return the parameters of a filtered dataset."""
    properties = item.id.get_create_plist()
    filters = (properties.get_filter(i) for i in range(properties.get_nfilters()))
    return next(tuple(words) for code, _, words, _ in filters if code == plugin.FILTER_ID)


def about(item: h5py.Dataset) -> dict[str, Any]:
    """Return the header of a filtered variable, with the keys of a stream's header.

    Raises:
        DataError: its attribute or its enhancer is damaged.
    """
    try:
        enhancer_in(parameters_of(item))
    except DataError as error:
        where = f"{item.file.filename}:{item.name}"
        raise DataError(error.what, where=where, fix=error.fix) from None
    try:
        stored = json.loads(item.attrs[FILTERED])
    except ValueError as error:
        raise DataError(f"damaged attribute {FILTERED}: {error!r}", where=item.name) from None
    size = item.id.get_storage_size()
    return about_chunks(stored, item, "interpolation (HDF5 filter)", size, item.name)


def restore(
    item: h5py.Dataset, parent: h5py.Group, name: str, datatype: h5t.TypeID
) -> h5py.Dataset:
    """Write the decoded values with the original's storage properties, without attributes."""
    load_filter()
    storage = about(item)["storage"]
    properties = h5p.create(h5p.DATASET_CREATE)
    if storage["chunks"]:
        properties.set_chunk(tuple(storage["chunks"]))
        for code, flags, options in storage["filters"]:
            properties.set_filter(code, flags, tuple(options))
    if storage["fill"] is not None:
        properties.set_fill_value(
            np.frombuffer(bytes.fromhex(storage["fill"]), item.dtype).reshape(())
        )
    space = item.id.get_space()
    made = h5py.Dataset(h5d.create(parent.id, name.encode(), datatype, space, properties))
    rows = chunked.slab_rows(item, item.chunks[0])
    for start in range(0, item.shape[0], rows):
        made[start : start + rows] = item[start : start + rows]
    return made


def _storage(item: h5py.Dataset) -> dict[str, Any]:
    properties = item.id.get_create_plist()
    filters = [properties.get_filter(i)[:3] for i in range(properties.get_nfilters())]
    defined = properties.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    return {
        "chunks": list(item.chunks) if item.chunks else None,
        "filters": [[c, f, list(o)] for c, f, o in filters if c in LOSSLESS_FILTERS],
        "fill": np.array(item.fillvalue, item.dtype).tobytes().hex() if defined else None,
    }
