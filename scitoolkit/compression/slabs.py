"""Compression of arrays larger than memory in slabs along the first dim.

A slab is a complete stream, so slabs are verified and decoded one at a time. Relative bounds refer
to the range of the whole array, which is computed in a first pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scitoolkit.compression.arrays import as_numpy, split_mask
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.compress import Missing, compress_within, missing_values_of
from scitoolkit.compression.container import pack, read_header, unpack
from scitoolkit.compression.decoding import decompress, max_error_of
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.threads import map_in_order, threads
from scitoolkit.compression.value_range import ArrayRange

SLAB_BYTES = 1 << 26
# Slabs of more rows have a multiple of this number, so that blocks are not cut.
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
    """Compress an array slab by slab into one stream.

    Args:
        array: anything with `shape`, `dtype` and slicing along its first dim: numpy array, memory
            map, HDF5 dataset, dask or xarray array.
        asked: the bound.
        options: codec, enhancer, guarantee.
        missing: see `compress`.
        slab_bytes: maximum size of a slab; peak memory is about eight slabs per thread.
        where: name of the array, for messages.

    Raises:
        ConfigError, NumericalError, BackendError: see `compress`.

    Example:
        >>> x = np.linspace(0, 1, 6000, dtype=np.float32).reshape(60, 100)
        >>> stream = compress_slabs(x, Bound("rel", 1e-3), Options(), slab_bytes=8000)
        >>> float(np.abs(decompress(stream) - x).max()) <= 1e-3
        True
    """
    missing_values = missing_values_of(array, missing)
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    rows = _rows(shape, dtype, slab_bytes)
    if not shape or rows >= shape[0]:
        return compress_within(
            as_numpy(array[...]), asked, options, missing=missing_values, where=where
        )
    extent = _extent(array, rows, missing_values, asked, where)

    def coded(slab: np.ndarray) -> bytes:
        return compress_within(
            slab, asked, options, missing=missing_values, extent=extent, where=where
        )

    # The fast codec is multi-threaded itself.
    workers = 1 if options.objective == "speed" else threads()
    streams = map_in_order(coded, _slabs(array, rows), workers)
    sections = {str(number): stream for number, stream in enumerate(streams)}
    header = {
        "dtype": dtype.str,
        "shape": list(shape),
        "slabs": len(sections),
        "bound": {"mode": asked.mode, "value": asked.value},
        "base": {"name": "slabs"},
        "max_error": max(max_error_of(stream) for stream in sections.values()),
        **missing_values.header(),
    }
    if options.guarantee == "relaxed":
        header["relaxed"] = "2x"
    # Slabs of a dask array may be masked although the array is no np.ma.MaskedArray.
    masked = (read_header(stream).get("masked") for stream in sections.values())
    if (fill := next((m for m in masked if m is not None), None)) is not None:
        header["masked"] = fill
    if extent is not None:
        header["range"] = list(extent)
    return pack(header, sections)


def iterate_slabs(stream: bytes | memoryview) -> Iterator[np.ndarray]:
    """Yield the decoded slabs of a stream one at a time; the whole array if it has no slabs.

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
    """Return the smallest and largest valid value of all slabs; None if there is none."""
    seen = ArrayRange()
    for slab in _slabs(array, rows):
        if slab.dtype.kind != "f":
            return None
        values, mask = split_mask(slab)
        special = special_values(values, missing, mask)
        seen.add(values if special is None else values[~special])
    if asked.of_range:
        seen.refuse_outliers(where)
    return seen.extent
