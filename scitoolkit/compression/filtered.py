"""Variables as ordinary HDF5 datasets behind our filter, which other programs read.

They need its plug-in for values; without it they see shape, type, attributes and dims. The chunks,
filters and fill value of the original are kept in an attribute, so that `decompress` gives them
back. The filter takes absolute bounds and one missing value besides NaN and netCDF's fill; for
anything else `why_not` says why a stream is written instead.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from logging import Logger
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.hdf5_copy import LOSSLESS_FILTERS
from scitoolkit.compression.missing import NETCDF_FILL, MissingValues
from scitoolkit.compression.native import plugin
from scitoolkit.compression.value_range import ValueRange
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import FILTERED
from scitoolkit.ops.codegen.cache import cache_directory

log: Logger = get_logger(__name__)
CHUNK_POINTS = 1 << 18
SLAB_BYTES = 1 << 26


@functools.cache
def load_filter() -> Path:
    """Make the filter known to h5py, built once for all processes; return its folder.

    Raises:
        BackendError: there is no C compiler, or the cache cannot be written.
    """
    digest = hashlib.sha256(plugin.plugin_source().encode()).hexdigest()
    folder = cache_directory() / f"hdf5-{digest[:16]}"
    if not (folder / plugin.LIBRARY).exists():
        plugin.install(folder)
    h5py.h5pl.prepend(str(folder).encode())
    return folder


def refuse_options(options: Options) -> None:
    """Refuse what the filter cannot do instead of leaving it out.

    Raises:
        ConfigError: another codec, an enhancer, a relaxed guarantee or another objective.
    """
    codec = options.codec if isinstance(options.codec, str) else options.codec.name
    enhancer = options.enhancer if isinstance(options.enhancer, str) else options.enhancer.name
    asked = {"codec": codec, "enhancer": enhancer, "guarantee": options.guarantee,
             "objective": options.objective}  # fmt: skip
    allowed = {"codec": ("auto", "interpolation"), "enhancer": ("auto", "none"),
               "guarantee": ("strict",), "objective": ("size",)}  # fmt: skip
    for key, value in asked.items():
        if value not in allowed[key]:
            raise ConfigError(
                f"{key}={value} behind the HDF5 filter", allowed=" or ".join(allowed[key]),
                fix="--container stream",
            )  # fmt: skip


def why_not(item: h5py.Dataset, bound: Bound, missing: MissingValues) -> str:
    """Return why a variable cannot be written behind the filter, "" if it can.

    Args:
        item: float variable.
        bound: asked for.
        missing: values that count as missing, those of the file included.
    """
    if bound.mode not in ("abs", "rel") or not bound.value:
        return f"a bound {bound.mode}={bound.value:g}"
    if item.dtype.itemsize not in (4, 8) or not item.size or not item.ndim:
        return f"{item.dtype} of shape {item.shape}"
    if missing.limited:
        return "a valid range"
    values = [v for v in missing.values if v != NETCDF_FILL]
    return "several missing values" if sum(_occurs(item, v) for v in values) > 1 else ""


def write(
    item: h5py.Dataset, parent: h5py.Group, name: str, datatype: h5t.TypeID, bound: Bound,
    missing: MissingValues,
) -> h5py.Dataset:  # fmt: skip
    """Write a variable behind the filter and return it, without its attributes.

    Args:
        item: variable that `why_not` accepts.
        parent: group of the new one.
        name: of the new one.
        datatype: of the new one.
        bound: of the variable.
        missing: values that count as missing.

    Raises:
        NumericalError: the range of a relative bound is that of a few outliers.
    """
    load_filter()
    seen = ValueRange()
    fill = next((v for v in missing.values if v != NETCDF_FILL and _occurs(item, v)), None)
    for part in _slabs(item):
        seen.add(part[~missing.where(part)])
    if bound.of_range:
        seen.refuse_outliers(item.name)
    extent = seen.extent or (0.0, 0.0)
    absolute = bound.absolute(*extent) or float(np.finfo(item.dtype).tiny)
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk(_chunks(item))
    if fill is not None or item.fillvalue:
        properties.set_fill_value(np.array(item.fillvalue if fill is None else fill, item.dtype))
    words = plugin.filter_options(absolute)["compression_opts"]
    properties.set_filter(plugin.FILTER_ID, 0, words)
    space = h5s.create_simple(item.shape, item.id.get_space().get_simple_extent_dims(maxdims=True))
    made = h5py.Dataset(h5d.create(parent.id, name.encode(), datatype, space, properties))
    # Whole chunks only: one that is written in two steps is compressed twice.
    rows = _rows(made)
    for start in range(0, item.shape[0], rows):
        made[start : start + rows] = item[start : start + rows]
    made.attrs[FILTERED] = json.dumps({
        "bound": {"mode": bound.mode, "value": bound.value}, "error_bound": absolute,
        "range": list(extent), **_restricted(item, missing).header(), "storage": _storage(item),
    })  # fmt: skip
    return made


def about(item: h5py.Dataset) -> dict[str, Any]:
    """Return what a filtered variable says about itself, in the terms of a stream's header."""
    try:
        found = json.loads(item.attrs[FILTERED])
        stored = item.id.get_storage_size()
        return {
            **found, "shape": list(item.shape), "dtype": item.dtype.str,
            "base": {"name": "interpolation (HDF5 filter)"}, "max_error": found["error_bound"],
            "bytes": stored, "ratio": item.size * item.dtype.itemsize / max(stored, 1),
        }  # fmt: skip
    except (ValueError, KeyError) as error:
        raise DataError(f"damaged attribute {FILTERED}: {error!r}", where=item.name) from None


def restore(
    item: h5py.Dataset, parent: h5py.Group, name: str, datatype: h5t.TypeID
) -> h5py.Dataset:
    """Write the decoded values as the original was stored, without attributes."""
    load_filter()
    kept = about(item)["storage"]
    properties = h5p.create(h5p.DATASET_CREATE)
    if kept["chunks"]:
        properties.set_chunk(tuple(kept["chunks"]))
        for code, flags, options in kept["filters"]:
            properties.set_filter(code, flags, tuple(options))
    if kept["fill"] is not None:
        properties.set_fill_value(
            np.frombuffer(bytes.fromhex(kept["fill"]), item.dtype).reshape(())
        )
    space = item.id.get_space()
    made = h5py.Dataset(h5d.create(parent.id, name.encode(), datatype, space, properties))
    rows = _rows(item)
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


def _restricted(item: h5py.Dataset, missing: MissingValues) -> MissingValues:
    return MissingValues(tuple(v for v in missing.values if _occurs(item, v)))


def _occurs(item: h5py.Dataset, value: float) -> bool:
    return any(MissingValues((value,)).occurs_in(part) for part in _slabs(item))


def _chunks(item: h5py.Dataset) -> tuple[int, ...]:
    """Return extents of a chunk of about 2¹⁸ points, as near to a cube as the array is."""
    edges = [1] * item.ndim
    while True:
        longer = [i for i in range(item.ndim) if edges[i] < item.shape[i]]
        if not longer:
            break
        axis = min(longer, key=lambda i: (edges[i], -i))
        if 2 * math.prod(edges) > CHUNK_POINTS:
            break
        edges[axis] *= 2
    return tuple(min(edge, n) for edge, n in zip(edges, item.shape, strict=True))


def _rows(item: h5py.Dataset) -> int:
    row = math.prod(item.shape[1:]) * item.dtype.itemsize
    rows = max(SLAB_BYTES // max(row, 1), 1)
    edge = item.chunks[0] if item.chunks else 64
    return max(rows - rows % edge, edge)


def _slabs(item: h5py.Dataset) -> Iterator[np.ndarray]:
    rows = _rows(item)
    for start in range(0, item.shape[0], rows):
        yield item[start : start + rows]
