"""Arrays larger than memory, slab by slab along the first dim.

A slab is a complete stream, so slabs can be checked and decoded one at a time; the range that a
relative bound refers to is that of the whole array, found in a first pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scitoolkit.compression.arrays import as_numpy, split_mask
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.compress import (
    Missing,
    compress_within,
    decompress,
    max_error_of,
    missing_values_of,
)
from scitoolkit.compression.container import pack, unpack
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.threads import map_in_order, threads
from scitoolkit.compression.value_range import ValueRange

SLAB_BYTES = 1 << 26
# Slabs of at least so many rows have a multiple of it, so that blocks are whole.
WHOLE_ROWS = 64


def compress_slabs(
    array: Any,
    asked: Bound,
    options: Options,
    *,
    missing: Missing = None,
    slab_bytes: int = SLAB_BYTES,
    where: str = "",
) -> bytes:
    """Return one stream of an array that is read a slab at a time.

    Args:
        array: anything with `shape`, `dtype` and slices along its first dim: numpy, memory map,
            HDF5 dataset, dask or xarray array.
        asked: the bound.
        options: codec, enhancer, guarantee.
        missing: see `compress`.
        slab_bytes: largest slab; memory stays below about eight of them a thread.
        where: name of the array, for messages.

    Example:
        >>> x = np.linspace(0, 1, 6000, dtype=np.float32).reshape(60, 100)
        >>> stream = compress_slabs(x, Bound("rel", 1e-3), Options(), slab_bytes=8000)
        >>> float(np.abs(decompress(stream) - x).max()) <= 1e-3
        True
    """
    known = missing_values_of(array, missing)
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    rows = _rows(shape, dtype, slab_bytes)
    if not shape or rows >= shape[0]:
        return compress_within(as_numpy(array[...]), asked, options, missing=known, where=where)
    extent = _extent(array, rows, known, asked, where)

    def coded(slab: np.ndarray) -> bytes:
        return compress_within(slab, asked, options, missing=known, extent=extent, where=where)

    # The blocks of a fast codec are shared by threads already.
    workers = 1 if options.objective == "speed" else threads()
    streams = map_in_order(coded, _slabs(array, rows), workers)
    sections = {str(number): stream for number, stream in enumerate(streams)}
    header = {
        "dtype": dtype.str, "shape": list(shape), "slabs": len(sections),
        "bound": {"mode": asked.mode, "value": asked.value}, "base": {"name": "slabs"},
        "max_error": max(max_error_of(stream) for stream in sections.values()), **known.header(),
    }  # fmt: skip
    if options.guarantee == "relaxed":
        header["relaxed"] = "2x"
    if isinstance(array, np.ma.MaskedArray):
        header["masked"] = array.fill_value.item()
    if extent is not None:
        header["range"] = list(extent)
    return pack(header, sections)


def iterate_slabs(stream: bytes | memoryview) -> Iterator[np.ndarray]:
    """Yield the slabs of a stream in order, one in memory at a time; the whole array if it is one.

    Example:
        >>> x = np.linspace(0, 1, 6000, dtype=np.float32).reshape(60, 100)
        >>> stream = compress_slabs(x, Bound("rel", 1e-3), Options(), slab_bytes=8000)
        >>> [len(slab) for slab in iterate_slabs(stream)]
        [20, 20, 20]
    """
    header, sections = unpack(stream)
    if "slabs" not in header:
        yield decompress(stream)
        return
    for data in sections.values():
        yield decompress(data)


def _rows(shape: tuple[int, ...], dtype: np.dtype, slab_bytes: int) -> int:
    row = math.prod(shape[1:]) * dtype.itemsize
    rows = max(slab_bytes // max(row, 1), 1)
    return rows - rows % WHOLE_ROWS if rows > WHOLE_ROWS else rows


def _slabs(array: Any, rows: int) -> Iterator[np.ndarray]:
    for start in range(0, array.shape[0], rows):
        yield as_numpy(array[start : start + rows])


def _extent(
    array: Any, rows: int, missing: MissingValues, asked: Bound, where: str
) -> tuple[float, float] | None:
    """Return the smallest and largest value of all slabs that is not missing; None if none is."""
    seen = ValueRange()
    for slab in _slabs(array, rows):
        if slab.dtype.kind != "f":
            return None
        values, mask = split_mask(slab)
        special = special_values(values, missing, mask)
        seen.add(values if special is None else values[~special])
    if asked.of_range:
        seen.refuse_outliers(where)
    return seen.extent
