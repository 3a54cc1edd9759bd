"""Row readers of Zarr v2 and v3 through tensorstore if installed, else through zarr.

Both read a missing chunk as fill values; `_holes` names them before.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.log import get_logger
from scitoolkit.io.loader.files import Counter, DataFile
from scitoolkit.io.loader.packing import ATTRIBUTES
from scitoolkit.io.loader.rows import CopyingReader, VariableLayout, missing_variable
from scitoolkit.io.loader.stores import is_folder_of_files, keys_of, opened, store_of
from scitoolkit.io.loader.zarr_shards import ShardIndex

_logger = get_logger(__name__)


def zarr_readers(
    path: Path, names: Sequence[str], layout_of: Callable[..., VariableLayout]
) -> dict[str, ZarrReader]:
    """Return a reader for each array of a store; see `hdf5.hdf5_readers`.

    Raises:
        DataError: an array is missing or damaged.
        BackendError: zarr is not installed.
    """
    if importlib.util.find_spec("zarr") is None:
        raise missing_extra("zarr", "zarr", "reading Zarr stores")
    import zarr

    try:
        group = zarr.open_group(store_of(path), mode="r")
        arrays = {
            name: array
            for name, array in group.members(max_depth=None)
            if isinstance(array, zarr.Array)
        }
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"damaged ({error})", where=str(path)) from None
    present = [n for n, a in arrays.items() if a.ndim and a.dtype.kind in "biufc"]
    readers: dict[str, ZarrReader] = {}
    for name in names:
        if name not in present:
            raise missing_variable(name, present, path)
        array = arrays[name]
        layout = layout_of(
            name=name,
            path=str(path),
            shape=array.shape,
            dims=_dims(array),
            dtype=np.dtype(array.dtype),
            chunks=tuple(array.chunks),
            filters=_codecs(array),
            attrs=_attributes(array),
        )
        fill = array.fill_value
        if fill is not None and np.isnan(fill):
            tell_absent(path, name)
        readers[name] = ZarrReader(
            layout, int(array.metadata.zarr_format), _holes(array, path, name)
        )
    return readers


def unwritten_entries(path: Path, name: str) -> np.ndarray:
    """Return the entries of a scalar or vector that a store lacks, same shape, bool.

    xarray and zarr leave out chunks that only hold the fill value, by default 0. An entry without
    a chunk is therefore written if 0 continues an even spacing of the others, as the first of the
    times 0, 1, 2, ... does. Integers of one or two entries, such as the only time of a store, which
    xarray counts from itself, are also taken as written: nothing tells them from a lost chunk.
    """
    import zarr

    array = zarr.open_array(store_of(path), path=name, mode="r")
    # Only scalars and vectors are asked for: a mask of the whole array is small.
    absent = np.zeros(array.shape, bool)
    for hole in _holes(array, path, name):
        absent[hole] = True
    if not absent.any():
        return absent
    values = np.asarray(array[...])
    if values.size <= 2:
        return absent & (values.dtype.kind not in "iu")
    # An absent entry reads as 0: if that continues the spacing of the others, it was left out as
    # the fill value, not lost.
    steps = np.diff(values.astype(np.float64))
    even = (~absent).sum() >= 2 and np.allclose(steps, steps[0], rtol=1e-4, atol=0)
    return absent & (not even or steps[0] == 0)


def _holes(array: Any, path: Path, name: str) -> tuple[tuple[slice, ...], ...]:
    """Return the regions of an array whose chunk is not in the store, or not in its shard.

    A store answers for them with its fill value. With NaN these are missing values; any other
    number would be a value that nobody wrote. An array with the attribute `sparse` states that
    its writer left chunks of fill values out.

    Raises:
        DataError: shards whose index cannot be read.
    """
    fill = array.fill_value
    if (fill is not None and np.isnan(fill)) or array.attrs.get("sparse"):
        return ()
    if is_folder_of_files(path) and not (path / name).is_dir():
        return ()
    # One file holds a shard of chunks, or one chunk: what may be missing is a file, or a chunk in a
    # shard that is there.
    outer, grid = _outer_chunks(array), _grid(array)
    # One listing of the folder instead of a request for each chunk.
    stored = keys_of(path, name)
    shards = ShardIndex.of(array, path / name)
    holes: list[tuple[slice, ...]] = []
    for at in np.ndindex(*grid):
        key = array.metadata.encode_chunk_key(at)
        start = [n * size for n, size in zip(at, outer, strict=True)]
        if key not in stored:
            holes.append(tuple(slice(a, a + n) for a, n in zip(start, outer, strict=True)))
        elif shards is not None:
            with opened(path, name, key) as file:
                holes += shards.absent(file, start, array.shape)
    return tuple(holes)


def tell_absent(path: Path, name: str) -> None:
    """Log chunks that a store lacks where its fill value is a missing value.

    Writers leave out chunks without a value, such as those on land. Where the same cells have a
    chunk in other rows, the chunk may as well be lost, which nothing in the store tells.
    """
    import zarr

    array = zarr.open_array(store_of(path), path=name, mode="r")
    if array.attrs.get("sparse") or (is_folder_of_files(path) and not (path / name).is_dir()):
        return
    stored = keys_of(path, name)
    absent = np.zeros(_grid(array), bool)
    for at in np.ndindex(*absent.shape):
        absent[at] = array.metadata.encode_chunk_key(at) not in stored
    # Chunks absent in all rows are land or outside the domain.
    moving = absent & ~absent.all(axis=0)
    if moving.any():
        rows = np.flatnonzero(moving.reshape(len(moving), -1).any(axis=1)) * _outer_chunks(array)[0]
        _logger.warning(
            "%s: variable %s: %d chunks are not in the store, the first at row %d, and are read as "
            "missing values (attrs['sparse'] = True if they were left out on purpose)",
            path,
            name,
            int(moving.sum()),
            int(rows[0]),
        )


def _grid(array: Any) -> list[int]:
    """Return the number of shards or chunks along each dim."""
    pairs = zip(array.shape, _outer_chunks(array), strict=True)
    return [-(-size // chunk) for size, chunk in pairs]


def _outer_chunks(array: Any) -> tuple[int, ...]:
    """Return the shape of what one file holds: a shard or a chunk."""
    grid = getattr(array.metadata, "chunk_grid", None)
    return tuple(getattr(grid, "chunk_shape", None) or array.chunks)


def _dims(array: Any) -> tuple[str, ...]:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(
        str(name) if name else f"dim_{axis}"
        for axis, name in enumerate(names or [None] * array.ndim)
    )


def _codecs(array: Any) -> tuple[str, ...]:
    shards = ("sharded",) if getattr(array, "shards", None) else ()
    return (*shards, *(type(c).__name__.removesuffix("Codec").lower() for c in array.compressors))


def _attributes(array: Any) -> dict[str, Any]:
    """Return the attributes that define the values, with `_FillValue` decoded.

    xarray stores `_FillValue` as the array's fill value in format 2, and as the bytes of a float64
    in base 64 in format 3.
    """
    attributes = {key: array.attrs[key] for key in ATTRIBUTES if key in array.attrs}
    fill = attributes.get("_FillValue")
    if isinstance(fill, str) and np.dtype(array.dtype).kind == "f":
        with contextlib.suppress(ValueError):  # text written by another program
            attributes["_FillValue"] = struct.unpack("<d", base64.b64decode(fill, validate=True))[0]
    elif "_ARRAY_DIMENSIONS" in array.attrs and fill is None and array.fill_value is not None:
        attributes["_FillValue"] = array.fill_value
    return attributes


class ZarrReader(CopyingReader):
    """Reader of the rows of a Zarr array.

    Args:
        layout: of the array.
        version: of the format, 2 or 3.
        holes: regions that were never written, or whose file was lost.
    """

    file: DataFile | None = None

    def __init__(
        self, layout: VariableLayout, version: int, holes: tuple[tuple[slice, ...], ...] = ()
    ) -> None:
        self.layout: VariableLayout = layout
        self.holes: tuple[tuple[slice, ...], ...] = holes
        self.version: int = version
        assert layout.chunks is not None
        self.unit_rows: int = layout.chunks[layout.axis]
        self.counter: Counter = Counter()
        self._reset()

    def with_layout(self, layout: VariableLayout) -> ZarrReader:
        """Return a reader of the same array with another axis or crop."""
        return ZarrReader(layout, self.version, self.holes)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._read: Callable[[tuple[slice, ...]], np.ndarray] | None = None

    def _opened(self) -> Callable[[tuple[slice, ...]], np.ndarray]:
        with self._lock:
            if self._read is None:
                self._read = _reading(self.layout, self.version)
            return self._read

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1.

        Raises:
            DataError: the store is damaged, or has no chunk for a part of the rows.
        """
        window = self.layout.window(first, last)
        self.refuse_holes(window)
        try:
            values = self._opened()(window)
        except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise DataError(
                f"cannot be read ({' '.join(str(error).split())[:300]})",
                where=f"{self.layout.where}, rows {first} to {last - 1}",
            ) from None
        self.counter.add(*self.cost(first, last))
        return np.moveaxis(np.asarray(values), self.layout.axis, 0)

    def refuse_holes(self, window: tuple[slice, ...], values: np.ndarray | None = None) -> None:
        """Raise DataError if the store has no chunk for a part of a window."""
        for hole in self.holes:
            pairs = list(zip(window, hole, strict=True))
            # Two boxes overlap only if their intervals overlap along every dim.
            if not all(a.start < b.stop and b.start < a.stop for a, b in pairs):
                continue
            rows = hole[self.layout.axis]
            last = min(rows.stop, self.layout.shape[self.layout.axis]) - 1
            raise DataError(
                f"rows {rows.start} to {last} have no chunk in the store or shard, which would be "
                "read as its fill value",
                where=self.layout.where,
                allowed="stores of which every chunk was written",
                fix="restore the file, write with write_empty_chunks=True, or state that chunks of "
                "fill values were left out: attrs['sparse'] = True",
            )

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the number of chunks that contain these rows, and their uncompressed bytes."""
        assert self.layout.chunks is not None
        window = self.layout.window(first, last)
        count = 1
        for part, chunk in zip(window, self.layout.chunks, strict=True):
            count *= -(-part.stop // chunk) - part.start // chunk
        nbytes = int(np.prod(self.layout.chunks, dtype=np.int64)) * self.layout.dtype.itemsize
        return count, count * nbytes

    def check(self) -> None:
        """Do nothing, because damaged chunks are detected on reading."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_read")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


def _reading(layout: VariableLayout, version: int) -> Callable[[tuple[slice, ...]], np.ndarray]:
    """Return a function that reads a window of the array."""
    path = Path(layout.path).absolute()
    if is_folder_of_files(path) and importlib.util.find_spec("tensorstore") is not None:
        import tensorstore

        driver = "zarr3" if version == 3 else "zarr"
        place = {"driver": "file", "path": str(path / layout.name)}
        store = tensorstore.open({"driver": driver, "kvstore": place}, read=True).result()
        return lambda window: store[window].read().result()
    import zarr

    array = zarr.open_array(store_of(path), path=layout.name, mode="r")
    return lambda window: np.asarray(array[window])
