"""Variables of an HDF5 file that may be compressed, with their roles by its attributes."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path
from typing import Any

import h5py

from scitoolkit.compression.plan import Candidate
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import FILTERED, filter_bound, mark_of
from scitoolkit.io.formats import format_of
from scitoolkit.io.variable_roles import roles_of_variables

log = get_logger(__name__)


def float_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return path -> dataset for every dataset of floating-point numbers."""
    floats: dict[str, h5py.Dataset] = {}

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and is_float(item):
            floats[item.name] = item

    file.visititems(visit)
    return floats


def warn_of_copied(file: h5py.File) -> None:
    """Warn of numeric datasets that are copied unchanged because no codec supports their type."""

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind in "fc":
            if not is_float(item):
                log.warning("%s is copied unchanged: no codec supports %s", item.name, item.dtype)

    file.visititems(visit)


def refuse_packed(file: h5py.File) -> None:
    """Raise if a file without a variable to compress has packed ones.

    Raises:
        DataError: their integers are exact to a codec; a bound on the values needs the values.
    """

    def packed(_: str, item: Any) -> str | None:
        is_integer = isinstance(item, h5py.Dataset) and item.dtype.kind in "iu"
        return item.name.lstrip("/") if is_integer and "scale_factor" in item.attrs else None

    name = file.visititems(packed)
    if name:
        source = shlex.quote(str(file.filename))
        raise DataError(
            f"no float variable; {name} is packed in {file[name].dtype}",
            where=str(file.filename),
            allowed="float variables",
            fix="unpack first: python -c 'import sys, xarray; xarray.open_dataset(sys.argv[1], "
            f"decode_times=False).drop_encoding().to_netcdf(sys.argv[2])' {source} unpacked.nc",
        )


def candidates_of(file: h5py.File) -> dict[str, Candidate]:
    """Return path -> float variable, with the role that the attributes of all objects give it."""
    attributes, dims, groups = {}, {}, [dict(file.attrs)]

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            attributes[item.name], dims[item.name] = _attributes(item), item.ndim
        else:
            groups.append(_attributes(item))

    file.visititems(visit)
    roles, floats = roles_of_variables(attributes, dims, groups), float_datasets(file)
    stale = [name.lstrip("/") for name, item in floats.items() if _stale(item)]
    if stale:
        log.warning(
            "%s: %s: attribute %s is of a former file and ignored",
            file.filename,
            ", ".join(stale),
            FILTERED,
        )
    return {
        name: Candidate(
            item.size,
            item.ndim,
            "coordinate" if item.is_scale else roles.get(name, ""),
            bool(filter_bound(item)),
        )
        for name, item in floats.items()
    }


def _attributes(item: Any) -> dict[str, Any]:
    """Return the attributes that can be read; some types of other tools cannot."""
    readable: dict[str, Any] = {}
    for name in item.attrs:
        with contextlib.suppress(OSError, TypeError, ValueError):
            readable[name] = item.attrs[name]
    return readable


def _stale(item: h5py.Dataset) -> bool:
    return FILTERED in item.attrs and mark_of(item) != FILTERED


def is_float(item: h5py.Dataset) -> bool:
    """Return whether the numbers are of a type that codecs read."""
    kind = item.id.get_type()
    return (
        kind.get_class() == h5py.h5t.FLOAT and item.dtype.kind == "f" and item.dtype.itemsize <= 8
    )


def opened(path: Path) -> h5py.File:
    """Open an HDF5 file for reading."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            f"cannot be opened ({error})",
            where=str(path),
            allowed="HDF5, NetCDF4, or a scitoolkit stream",
        ) from None


def as_hdf5(path: Path) -> h5py.File:
    """Open HDF5 or NetCDF4 for reading; other formats are converted to NetCDF4 in memory."""
    file_format = format_of(path)
    if file_format.native_hdf5:
        return opened(path)
    with file_format.open_dataset(path, decode=False) as dataset:
        # Otherwise xarray would add a fill value of NaN to variables without one.
        none = {
            str(n): {"_FillValue": None}
            for n, v in dataset.variables.items()
            if "_FillValue" not in v.attrs and v.dtype.kind == "f"
        }
        image = dataset.to_netcdf(engine="h5netcdf", encoding=none)
        return h5py.File(io.BytesIO(image), "r")
