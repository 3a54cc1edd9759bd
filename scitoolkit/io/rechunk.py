"""Copies of files in the order in which training reads: sharded Zarr, verified."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.core.files import disk_error, temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.io.fields import PathLike, expand_paths
from scitoolkit.io.formats.base import format_of

if TYPE_CHECKING:
    import xarray as xr

_logger = get_logger(__name__)
SHARD_BYTES = 64 * 2**20
"""Size of a shard, of whole rows: one file, of which single rows can be read."""


def copy_to_shards(path: PathLike, target: Path, *, shard_bytes: int = SHARD_BYTES) -> Path:
    """Copy a file to a Zarr store with a chunk for each row, in shards of many rows.

    Stored values, attributes and coordinates stay as they are: packed values are not unpacked. All
    values are read again and compared before the store has its name. A row is what lies at one
    index of the first dim; time, where the file has one. Dims keep their order.

    Args:
        path: one file or store of any format.
        target: the store to create, NAME.zarr.
        shard_bytes: largest size of a shard in memory; at least one row.

    Returns:
        The target.

    Raises:
        ConfigError: the target exists.
        DataError: values that cannot be read, were never written, or differ when read again.
        BackendError: zarr is not installed.

    Example:
        >>> import tempfile
        >>> import xarray as xr
        >>> folder = Path(tempfile.mkdtemp())
        >>> xr.Dataset({"u": (("t", "x"), np.ones((4, 3)))}).to_netcdf(
        ...     folder / "a.nc", engine="h5netcdf")
        >>> copy_to_shards(folder / "a.nc", folder / "a.zarr").name
        'a.zarr'
    """
    try:
        import zarr
    except ImportError:
        raise missing_extra("zarr", "zarr", "writing Zarr stores") from None
    if target.exists():
        raise ConfigError("already exists", where=str(target), fix="choose another name")
    (source,) = expand_paths(path)
    kind = format_of(source)
    partial = temporary_name(target)
    try:
        with kind.open_dataset(source, decode=False) as raw:
            refusals = kind.unwritten(source, dict(raw.variables))  # type: ignore[arg-type]
            group = zarr.open_group(partial, mode="w", zarr_format=3)
            group.attrs.update({str(k): _plain(v) for k, v in raw.attrs.items()})
            for name, array in raw.variables.items():
                if array.dtype.kind not in "biufc":
                    _logger.warning("%s: %s holds no numbers and is left out", source, name)
                    continue
                _copy(group, str(name), array, refusals.get(str(name)), shard_bytes, source)
        partial.rename(target)
    except OSError as error:
        raise disk_error(error, target) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy(
    group: Any, name: str, array: xr.Variable, refusal: Any, shard_bytes: int, source: Path
) -> None:
    """Copy an array by shards, and compare each after reading it again."""
    rows = array.shape[0] if array.ndim else 1
    row = math.prod(array.shape[1:]) * array.dtype.itemsize
    is_field = array.ndim > 1 and rows > 0
    together = min(max(1, shard_bytes // max(row, 1)), max(rows, 1))
    attributes = {str(k): _plain(v) for k, v in array.attrs.items()}
    if "_FillValue" in attributes:
        from xarray.backends.zarr import FillValueCoder

        value = np.asarray(array.attrs["_FillValue"]).ravel()[0]
        attributes["_FillValue"] = FillValueCoder.encode(value, array.dtype)
    # A fill value that no other program takes for a missing one: NaN where the type has it.
    fill = np.nan if array.dtype.kind in "fc" else 0
    made = group.create_array(
        name,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),
        chunks=(1, *array.shape[1:]) if is_field else tuple(max(n, 1) for n in array.shape),
        shards=(together, *array.shape[1:]) if is_field else None,
        dimension_names=[str(d) for d in array.dims],
        fill_value=fill,
        attributes=attributes,
        config={"write_empty_chunks": True},
    )
    steps = range(0, rows, together) if array.ndim else range(1)
    for first in steps:
        window = (slice(first, min(first + together, rows)),) if array.ndim else ()
        values = np.asarray(array[window].values)
        if refusal is not None:
            whole = tuple(slice(0, n) for n in array.shape[1:])
            refusal((*window, *whole), values)
        made[window] = values
        again = np.asarray(made[window])
        native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
        if again.tobytes() != native.tobytes():
            raise DataError(
                f"rows from {first} differ when they are read again",
                where=f"{source}: variable {name}",
                fix="check the disk",
            )


def _plain(value: Any) -> Any:
    """Return an attribute as JSON types."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        return [_plain(v) for v in value.tolist()] if np.ndim(value) else _plain(value.item())
    return value
