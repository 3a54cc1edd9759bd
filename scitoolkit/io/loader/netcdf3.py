"""Row readers of classic NetCDF, whose rows have a constant stride given by the header."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io._netcdf3 import classic_variables, require_whole_netcdf3
from scitoolkit.io.loader.files import DataFile
from scitoolkit.io.loader.rows import RowReader, StridedReader, VariableLayout, missing_variable

# NC_FILL_FLOAT and NC_FILL_DOUBLE are one number, near 15 * 2^119.
_FILLS: dict[str, float] = {
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
}


def default_fill(dtype: np.dtype, attrs: Mapping[str, Any]) -> float | None:
    """Return the value that the NetCDF library leaves in cells that nobody wrote.

    None for bytes, which have no such value, and for variables that state their own.
    Source: NetCDF Users Guide, "Fill Values" (NC_FILL_FLOAT, ...).
    """
    fill = _FILLS.get(dtype.str[1:])
    if fill is None or "_FillValue" in attrs or fill in np.ravel(attrs.get("missing_value", [])):
        return None
    return fill


def netcdf3_readers(
    path: Path, names: Sequence[str], layout_of: Callable[..., VariableLayout]
) -> dict[str, RowReader]:
    """Return a reader for each variable of one file; see `hdf5.hdf5_readers`.

    Raises:
        DataError: the file is truncated, a variable is missing, or samples are not along the
            first dim.
    """
    require_whole_netcdf3(path)
    variables = {v.name: v for v in classic_variables(path)}
    file = DataFile(path)
    readers: dict[str, RowReader] = {}
    for name in names:
        if name not in variables or not variables[name].shape or variables[name].dtype.kind == "S":
            present = [n for n, v in variables.items() if v.shape and v.dtype.kind != "S"]
            raise missing_variable(name, present, path)
        v = variables[name]
        layout = layout_of(
            name=name,
            path=str(path),
            shape=v.shape,
            dims=v.dims,
            dtype=v.dtype,
            chunks=None,
            filters=(),
            attrs=v.attrs,
        )
        if layout.axis:
            raise DataError(
                f"samples along {v.dims[layout.axis]}, which is not the first dim",
                where=layout.where,
                fix="copy the file with that dim first: ncpdq -a DIM IN OUT",
            )
        readers[name] = StridedReader(
            layout, file, v.begin, v.stride, default_fill(v.dtype, v.attrs)
        )
    return readers
