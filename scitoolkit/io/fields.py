"""Reading and writing of gridded fields as lazy, decoded `xarray.Dataset`s.

Damaged or inconsistent files raise DataError on opening, instead of failing during training.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import importlib.util
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import (
    ConfigError,
    DataError,
    ScitoolkitError,
    file_named,
    missing_extra,
)
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.units import same_unit
from scitoolkit.io.coordinates import (
    READ_ERRORS,
    check_time,
    find_time_dim,
    is_time,
    require_numbers,
)
from scitoolkit.io.dates import has_plain_years, of_one_kind, seconds_since
from scitoolkit.io.formats.base import format_of, recognised, unreadable
from scitoolkit.io.meanings import other_meaning
from scitoolkit.io.netcdf_writer import write_netcdf
from scitoolkit.io.roles import role_by_metadata, role_by_name
from scitoolkit.io.table import WORDS, is_table, open_table
from scitoolkit.io.text_times import UNITS, with_text_times

if TYPE_CHECKING:
    import xarray as xr

PathLike = str | os.PathLike[str]
_MAX_STILL = 2**20
"""Values of a field without a time that are compared between files."""
Dims = Sequence[str] | Mapping[str, Sequence[str]]


def open_fields(
    path: PathLike | Sequence[PathLike],
    variables: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    units: Mapping[str, str] | None = None,
    dims: Dims | None = None,
    chunks: Any = None,
) -> xr.Dataset:
    """Open files lazily: NetCDF3, NetCDF4, HDF5, Zarr, .npy, any format xarray can open, or CSV.

    Packed values (`scale_factor`, `add_offset`, `_FillValue`, `missing_value`) are unpacked, values
    outside `valid_min`, `valid_max` or `valid_range` are NaN, and times are decoded with the
    file's calendar.

    Args:
        path: a file, a Zarr folder, a glob, or a list of files to join along time.
        variables: names to select, or {new name: name in the file}; None selects all.
        units: required unit of each (new) name. If the file does not state a unit, this one is
            written into `attrs`.
        dims: names for the unnamed dims of plain HDF5 files: one sequence for all variables of
            that rank, or {variable: sequence}. A 1-D variable named like a dim is its coordinate.
        chunks: dask chunks, see `xarray.open_dataset`; None for lazy arrays without dask.

    Returns:
        The dataset; use it as a context manager, or close it.

    Raises:
        DataError: missing or damaged file, missing variable, wrong unit, units that differ between
            files, text instead of numbers, or times that do not increase.
        BackendError: Zarr, or several files, without the optional package.

    Example:
        >>> import xarray as xr
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "u.nc"
        >>> _ = write_fields(xr.Dataset({"u": ("x", [1.0, 2.0], {"units": "m/s"})}), file)
        >>> with open_fields(file, {"speed": "u"}, units={"speed": "m s-1"}) as dataset:
        ...     dataset["speed"].values.tolist()
        [1.0, 2.0]
    """
    paths = expand_paths(path)
    if len(paths) == 1:
        dataset = _open_one(paths[0], dims, chunks)
    else:
        dataset = _open_many(paths, dims, chunks, variables)
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    try:
        if variables is None:
            return dataset
        selected = _select(dataset, variables, where)
        for name, unit in (units or {}).items():
            _require_unit(selected, name, unit, where)
        for array in selected.data_vars.values():
            require_numbers(array, where)
            if find_time_dim(array) is not None:
                check_time(array, where=where)
    except BaseException:
        dataset.close()
        raise
    selected.set_close(dataset.close)
    return selected


_OTHER_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".npy", ".npz", ".zarr", ".parquet", ".xlsx")


def write_fields(dataset: xr.Dataset, path: PathLike) -> Path:
    """Write a dataset as NetCDF4 to a temporary file, renamed when complete.

    Args:
        dataset: to write; units and calendar of its times are kept.
        path: file to create or replace.

    Returns:
        The path.

    Raises:
        DataError: the disk is full, the folder cannot be written to, or the name is that of another
            format.
    """
    path = Path(path)
    if path.suffix.lower() in _OTHER_SUFFIXES:
        raise DataError(
            f"{path.suffix} is the name of another format",
            where=str(path),
            allowed="a NetCDF file",
            fix=f"{path.stem}.nc",
        )
    temporary = temporary_name(path)
    plain = encoded_times(dataset)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_named(path, temporary):
            write_netcdf(plain, temporary)
        move_into_place(temporary, path)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(
            f"the disk is full ({dataset.nbytes} bytes to write)" if full else cause,
            where=str(path),
            fix="free some space or write elsewhere" if full else "",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def encoded_times(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset without encoding, except units, calendar and float64 of times.

    Coordinates get no fill value, which xarray would write.
    """
    # The writer refuses chunks and compressors of other formats.
    plain = dataset.drop_encoding()
    for name, variable in dataset.variables.items():
        if name in dataset.dims:
            # CF 2.5.1: coordinates have no missing values.
            plain[name].encoding["_FillValue"] = None
        encoding = {k: v for k, v in variable.encoding.items() if k in ("units", "calendar")}
        if variable.encoding.get("dtype") == np.float64:  # parts of the unit; float32 is coarse
            encoding["dtype"] = np.dtype(np.float64)
        if variable.dtype.kind == "M" and not has_plain_years(variable.values):
            # xarray counts from the first date, whose year no reader takes.
            seconds = seconds_since(variable.values, np.datetime64(0, "s"))
            plain[name] = (variable.dims, seconds, {**variable.attrs, **UNITS})
            continue
        plain[name].encoding.update(encoding if is_time(variable) else {})
    return plain


def expand_paths(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the existing files of a path, glob or list.

    Raises:
        DataError: a file does not exist, or no file matches.
    """
    if isinstance(path, str | os.PathLike):
        text = os.fspath(shipped_path(os.fspath(path)))
        # A file whose name has brackets is itself, not a pattern.
        if glob.has_magic(text) and not Path(text).exists():
            paths = [Path(p) for p in sorted(glob.glob(text, recursive=True))]
            if not paths:
                raise DataError("no file matches this pattern", where=text)
        else:
            paths = [Path(text)]
    else:
        paths = [shipped_path(p) for p in path]
    if not paths:
        raise DataError("no files given")
    for p in paths:
        if not p.exists():
            siblings = [s.name for s in p.parent.iterdir()] if p.parent.is_dir() else []
            near = nearest_name(p.name, siblings)
            fix = f"did you mean {p.parent / near}?" if near else ""
            raise DataError("no such file", where=str(p), fix=fix)
    return paths


def packages_for(path: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    """Return the optional packages that `open_fields` requires for a path.

    The format is that of the first file; missing files require nothing.

    Example:
        >>> packages_for("no_such_file.nc")
        ()
    """
    try:
        paths = expand_paths(path)
        format_class = recognised(paths[0])
    except (DataError, OSError):
        return ()
    dask = ("dask",) if len(paths) > 1 else ()
    return (*(format_class.requires if format_class else ()), *dask)


def _open_one(path: Path, dims: Dims | None, chunks: Any) -> xr.Dataset:
    if is_table(path):
        table = open_table(path)
        return table if chunks is None else table.chunk(chunks)
    format_class = format_of(path)
    try:
        with warnings.catch_warnings():
            # xarray warns of two equal fill values and of dates beyond datetime64.
            warnings.simplefilter("ignore")
            dataset = format_class.open_dataset(path, chunks=chunks)
    except ScitoolkitError:
        raise
    except READ_ERRORS as error:
        raise unreadable(path, error) from None
    from scitoolkit.io.written import refusing, within_limits  # imports xarray

    dataset = _with_names(with_text_times(within_limits(refusing(dataset, format_class, path))))
    for variable in dataset.variables.values():
        # Decoded values hold NaN for both; xarray refuses to encode two different fill values.
        if "_FillValue" in variable.encoding:
            variable.encoding.pop("missing_value", None)
    return _name_dims(dataset, dims, str(path)) if dims is not None else dataset


def _with_names(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with the names of stations as coordinates of text; CF writes characters.

    Source: CF conventions 1.11, section 9.5 (`cf_role`).
    """
    names = [n for n, v in dataset.variables.items() if v.attrs.get("cf_role") == "timeseries_id"]
    if not names:
        return dataset
    named = dataset.set_coords(names)
    for name in names:
        if named[name].dtype.kind == "S":
            text = np.char.decode(np.char.strip(named[name].values), "utf-8", "replace")
            named[name] = named[name].copy(data=text)
    named.set_close(dataset.close)
    return named


def _open_many(
    paths: Sequence[Path],
    dims: Dims | None,
    chunks: Any,
    variables: str | Sequence[str] | Mapping[str, str] | None,
) -> xr.Dataset:
    """Join files along time in the order of their first times."""
    if importlib.util.find_spec("dask") is None:
        raise missing_extra("dask", "dask", "joining several files lazily")
    import xarray as xr

    parts: list[xr.Dataset] = []
    try:
        for path in paths:
            parts.append(_open_one(path, dims, {} if chunks is None else chunks))
        dim = _shared_time_dim(parts[0], str(paths[0]))
        _require_same_units(parts, paths)
        _require_same_still(_read_parts(parts, variables), paths, dim)
        alike = parts
        if all(dim in part.coords for part in parts):
            # Files on both sides of the range of datetime64[ns] have times of two kinds.
            kinds = zip(parts, of_one_kind([part[dim].values for part in parts]), strict=True)
            alike = [p.assign_coords({dim: p[dim].variable.copy(data=t)}) for p, t in kinds]
            alike.sort(key=lambda part: part[dim].values[0])
        # `override` takes what has no time from the first file, with which the others agree by now.
        joined = xr.concat(
            alike,
            dim=dim,
            data_vars="minimal",
            coords="minimal",
            compat="override",
            join="exact",
            combine_attrs="override",
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        for part in parts:
            part.close()
        raise DataError(
            f"the files do not fit together along time ({' '.join(str(error).split())[:200]})",
            where=f"{paths[0]} and {len(paths) - 1} more",
        ) from None
    except BaseException:
        for part in parts:
            part.close()
        raise

    def close() -> None:
        for part in parts:
            part.close()

    joined.set_close(close)
    return joined


def _require_same_units(parts: Sequence[xr.Dataset], paths: Sequence[Path]) -> None:
    """Raise DataError if files state other units or another meaning of a variable."""
    for part, path in zip(parts[1:], paths[1:], strict=True):
        for name, first in parts[0].variables.items():
            other = part.variables.get(name, first)
            if (differs := other_meaning(first.attrs, other.attrs)) is not None:
                raise DataError(
                    f"{differs[0]}, but {differs[1]} in {paths[0]}",
                    where=f"{path}: variable {name}",
                    fix="join files of one quantity only",
                )
            units = [str(a.attrs.get("units", "")) for a in (first, other)]
            if all(units) and not same_unit(*units):
                raise DataError(
                    f"unit {units[1]!r}, but {units[0]!r} in {paths[0]}",
                    where=f"{path}: variable {name}",
                    fix="convert the files to one unit",
                )


def _is_place(name: str, variable: xr.Variable) -> bool:
    role = role_by_metadata(variable.attrs) or role_by_name(name)
    return role in ("latitude", "longitude")


def _read_parts(
    parts: Sequence[xr.Dataset], variables: str | Sequence[str] | Mapping[str, str] | None
) -> list[xr.Dataset]:
    """Return the parts without fields that are not read; scalars and places remain."""
    if variables is None:
        return list(parts)
    listed = list(variables.values()) if isinstance(variables, Mapping) else variables
    names = {listed} if isinstance(listed, str) else set(listed)
    return [
        part.drop_vars(
            [
                name
                for name, array in part.data_vars.items()
                if array.ndim and name not in names and not _is_place(str(name), array.variable)
            ]
        )
        for part in parts
    ]


def _require_same_still(parts: Sequence[xr.Dataset], paths: Sequence[Path], dim: str) -> None:
    """Raise DataError if a value differs that a join along time would take from the first file.

    A member, a height or a parameter tells files apart; the times of a file do not. So do masks,
    and the latitudes and longitudes of curvilinear grids.
    """
    for part, path in zip(parts[1:], paths[1:], strict=True):
        for axis in sorted(map(str, {*parts[0].indexes} ^ {*part.indexes})):
            if axis in parts[0].dims and axis in part.dims:
                lacking, having = (path, paths[0]) if axis in parts[0].indexes else (paths[0], path)
                raise _unstated_coordinate(axis, lacking, having)
        for name, first in parts[0].variables.items():
            other = part.variables.get(name)
            if other is None or first.dtype.kind not in "biuf" or first.ndim != other.ndim:
                continue
            if dim in first.dims or name in parts[0].indexes:
                continue  # what is joined, and the coordinates of dims, which the join compares
            if first.ndim:
                _require_same_values(str(name), first, other, str(path), str(paths[0]))
                continue
            if role_by_name(str(name)) == "time" or role_by_metadata(first.attrs) == "time":
                continue
            if not np.array_equal(first.values, other.values, equal_nan=first.dtype.kind == "f"):
                raise DataError(
                    f"{name} is {other.values}, but {first.values} in {paths[0]}",
                    where=str(path),
                    allowed="parts of one record",
                    fix="join files of one record only",
                )


def _unstated_coordinate(name: object, path: Path, other: Path) -> DataError:
    return DataError(
        f"no coordinate {name}, which {other} has, so that its order is not known",
        where=str(path),
        fix=f"write {name} in all files",
    )


def _require_same_values(
    name: str, first: xr.Variable, other: xr.Variable, path: str, first_path: str
) -> None:
    """Raise DataError if a field without a time, such as a mask or places, differs between files.

    A join takes it from the first file.
    """
    if first.size > _MAX_STILL and not _is_place(name, first):
        return
    same = first.dims == other.dims and first.shape == other.shape
    if not same or not np.allclose(first, other, rtol=1e-5, atol=1e-5, equal_nan=True):
        raise DataError(
            f"{name} has other values than in {first_path}",
            where=path,
            allowed="files of one grid, in one order",
            fix="write all files on one grid, or open them one by one",
        )


def _shared_time_dim(dataset: xr.Dataset, where: str) -> str:
    time_dims = {find_time_dim(array) for array in dataset.data_vars.values()} - {None}
    if len(time_dims) != 1:
        raise DataError("no single time dim to join files along", where=where)
    return str(time_dims.pop())


def _name_dims(dataset: xr.Dataset, dims: Dims, where: str) -> xr.Dataset:
    """Return the dataset with the user's names of dims."""
    import xarray as xr

    if isinstance(dims, Mapping):
        unknown = [name for name in dims if name not in dataset.variables]
        if unknown:
            raise _missing_variable(unknown[0], dataset, where)
    named: dict[str, xr.DataArray] = {}
    names = {d for value in dims.values() for d in value} if isinstance(dims, Mapping) else {*dims}
    for key in dataset.variables:
        array, name = dataset[key].reset_coords(drop=True), str(key)
        wanted = dims.get(name) if isinstance(dims, Mapping) else None
        if wanted is None and array.ndim == 1 and name in names:
            wanted = (name,)
        if wanted is None and not isinstance(dims, Mapping) and array.ndim == len(dims):
            wanted = dims
        if wanted is not None and len(wanted) != array.ndim:
            raise DataError(
                f"dims {list(wanted)} do not fit its shape {array.shape}",
                where=f"{where}: variable {name}",
                allowed=f"{array.ndim} names",
            )
        if wanted is not None:
            array = array.rename(
                {old: new for old, new in zip(array.dims, wanted, strict=True) if old != new}
            )
        named[name] = array
    try:
        out = xr.Dataset(named, attrs=dataset.attrs)
    except ValueError as error:
        raise DataError(f"dims {dims} do not fit together ({error})", where=where) from None
    out.set_close(dataset.close)
    return out.set_coords([n for n in named if n in out.dims])


def _select(
    dataset: xr.Dataset, variables: str | Sequence[str] | Mapping[str, str], where: str
) -> xr.Dataset:
    if isinstance(variables, str):
        variables = [variables]
    names = dict(variables) if isinstance(variables, Mapping) else {v: v for v in variables}
    for name in names.values():
        if name not in dataset.variables:
            raise _missing_variable(name, dataset, where)
    selected = dataset[list(names.values())]
    return selected.rename({old: new for new, old in names.items() if old != new})


def _missing_variable(name: str, dataset: xr.Dataset, where: str) -> DataError:
    present = [str(v) for v in dataset.data_vars]
    if words := dataset.encoding.get(WORDS, {}).get(name):
        fix = "leave the cells of missing values empty"
        return DataError(words, where=f"{where}: column {name}", fix=fix)
    near = nearest_name(name, [str(v) for v in dataset.variables])
    return DataError(
        f"variable {name!r} not found",
        where=where,
        allowed=", ".join(present),
        fix=f"did you mean {near}?" if near else "",
    )


def _require_unit(dataset: xr.Dataset, name: str, expected: str, where: str) -> None:
    if name not in dataset.variables:
        raise ConfigError(
            f"a unit is given for {name!r}, which is not read",
            allowed=", ".join(map(str, dataset.data_vars)),
        )
    unit = dataset[name].attrs.get("units")
    if unit is None:
        dataset[name].attrs["units"] = expected
    elif not same_unit(str(unit), expected):
        raise DataError(
            f"unit {str(unit)!r}, but {expected!r} is expected",
            where=f"{where}: variable {name}",
            fix=f"convert the file, or expect {str(unit)!r}",
        )
