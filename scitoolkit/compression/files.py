"""Whole files: every float variable of an HDF5 or NetCDF file, or one array of a .npy file.

A compressed HDF5 file keeps groups, attributes, dimension scales and whatever was not compressed.
A compressed variable stands at its place as a one-dimensional array of bytes (its stream) with
its own attributes, so no reader can take it for values; `decompress_file` puts the variable back.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.compress import decompress, inspect_stream
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.slabs import compress_slabs, iterate_slabs
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.compressed import STREAM, is_stream
from scitoolkit.io.formats import format_of

_DIMS = "scitoolkit_dims"
_KEPT_OUT = {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", STREAM, _DIMS}
MIN_SIZE = 1024


@dataclass(frozen=True)
class FilePlan:
    """What to compress, and how tightly.

    Args:
        bound: for every variable that has none of its own.
        variables: name (or path inside the file) -> bound or None; empty means all float
            variables of at least 1024 values that are not coordinates.
        options: codec, enhancer, guarantee.
        missing: values that stand for "missing", beside those that the file itself names.
    """

    bound: Bound
    variables: Mapping[str, Bound | None]
    options: Options
    missing: MissingValues = field(default_factory=MissingValues)


def compress_file(source: Path | str, target: Path | str, plan: FilePlan) -> list[dict[str, Any]]:
    """Write a compressed file and return one record a variable: name, bytes, ratio, max error.

    Args:
        source: a file of any installed format (`scitoolkit ls format`).
        target: a stream file for .npy (any suffix), else an HDF5 file.
        plan: what to compress and how.

    Raises:
        DataError: the source is missing or of no known format.
        ConfigError: a variable that is not in the file or holds no floats.
    """
    source, target = Path(source), Path(target)
    if not source.is_file():
        raise DataError("no such file", where=str(source))
    if format_of(source).single_array:
        return [_compress_array(source, target, plan)]
    records: list[dict[str, Any]] = []
    with as_hdf5(source) as file:
        wanted = _wanted(file, plan)

        def store(item: h5py.Dataset, parent: h5py.Group) -> bool:
            if item.name not in wanted:
                return False
            stream = compress_slabs(
                item, wanted[item.name], plan.options, missing=plan.missing, where=item.name
            )
            raw = parent.create_dataset(_leaf(item), data=np.frombuffer(stream, np.uint8))
            raw.attrs[STREAM] = 1
            raw.attrs[_DIMS] = [d[0].name if len(d) else "" for d in item.dims]
            records.append(_record(item.name.lstrip("/"), stream))
            return True

        _rewrite(file, target, store)
    return records


def decompress_file(source: Path | str, target: Path | str) -> list[str]:
    """Write the file back and return the names of what was decompressed.

    Args:
        source: what `compress_file` wrote.
        target: .npy for a stream file, else HDF5 (NetCDF4 when the original was).
    """
    source, target = Path(source), Path(target)
    if is_stream(source):
        values = decompress(source.read_bytes())
        _atomic(target, lambda path: _save_npy(path, values))
        return [source.name]
    names: list[str] = []

    def store(item: h5py.Dataset, parent: h5py.Group) -> bool:
        if STREAM not in item.attrs:
            return False
        stream = item[...].tobytes()
        about = inspect_stream(stream)
        shape = tuple(about["shape"])
        chunks = True if shape and math.prod(shape) else None
        made = parent.create_dataset(_leaf(item), shape, np.dtype(about["dtype"]), chunks=chunks)
        start = 0
        for slab in iterate_slabs(stream):
            made[start : start + len(slab)] = slab
            start += len(slab)
        names.append(item.name.lstrip("/"))
        return True

    with _opened(source) as file:
        _rewrite(file, target, store)
    if not names:
        target.unlink()
        raise DataError("nothing in it was compressed by scitoolkit", where=str(source))
    return names


def streams(path: Path | str) -> Iterator[tuple[str, bytes]]:
    """Yield name and stream of each compressed variable of a file."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", where=str(path))
    if is_stream(path):
        yield path.name, path.read_bytes()
        return
    found: list[str] = []
    with _opened(path) as file:
        file.visititems(
            lambda name, item: (
                found.append(name)
                if isinstance(item, h5py.Dataset) and STREAM in item.attrs
                else None
            )
        )
        for name in found:
            yield name, file[name][...].tobytes()


def _compress_array(source: Path, target: Path, plan: FilePlan) -> dict[str, Any]:
    if plan.variables:
        raise ConfigError("a file of one array has no variables", where=str(source))
    values = read_array(source)
    stream = compress_slabs(
        values, plan.bound, plan.options, missing=plan.missing, where=str(source)
    )
    _atomic(target, lambda path: path.write_bytes(stream))
    return _record(source.name, stream)


def _record(name: str, stream: bytes) -> dict[str, Any]:
    about = inspect_stream(stream)
    return {
        "name": name, "shape": about["shape"], "dtype": about["dtype"],
        "codec": about["base"]["name"],
        "enhancer": about.get("enhancer", {}).get("name", "none"),
        "bytes": about["bytes"], "ratio": about["ratio"],
        "error_bound": about.get("error_bound", 0.0), "max_error": about["max_error"],
    }  # fmt: skip


def _wanted(file: h5py.File, plan: FilePlan) -> dict[str, Bound]:
    """Return the full path of each variable to compress, and its bound."""
    floats: dict[str, h5py.Dataset] = {}

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" and item.dtype.itemsize <= 8:
            floats[item.name] = item

    file.visititems(visit)
    if not plan.variables:
        coordinates = _coordinates(floats)
        return {
            name: plan.bound
            for name, item in floats.items()
            if item.size >= MIN_SIZE and item.ndim and not item.is_scale
            and name.rpartition("/")[2] not in coordinates
        }  # fmt: skip
    wanted = {}
    leaves = {name.rpartition("/")[2]: name for name in floats}
    for name, own in plan.variables.items():
        path = name if name in floats else f"/{name}" if f"/{name}" in floats else leaves.get(name)
        if path is None:
            known = [n.lstrip("/") for n in floats]
            raise ConfigError(
                f"no float variable {name!r}", where=str(file.filename),
                allowed=", ".join(known) or "none", fix=nearest_name(name, known) or "",
            )  # fmt: skip
        wanted[path] = own or plan.bound
    return wanted


def _coordinates(floats: Mapping[str, h5py.Dataset]) -> set[str]:
    """Return the names that some variable calls its coordinates or bounds (CF conventions)."""
    named: set[str] = set()
    for item in floats.values():
        for key in ("coordinates", "bounds"):
            text = item.attrs.get(key, "")
            named |= set((text.decode() if isinstance(text, bytes) else str(text)).split())
    return named


def _rewrite(
    file: h5py.File, target: Path, store: Callable[[h5py.Dataset, h5py.Group], bool]
) -> None:
    """Copy a file object by object; `store` may put something else in a dataset's place."""

    def write(path: Path) -> None:
        with h5py.File(path, "w") as out:
            _attributes(file, out)
            scales: list[h5py.Dataset] = []
            file.visititems(lambda _, item: _copy(item, out, store, scales))
            for item in scales:
                out[item.name].make_scale(_scale_name(item))
            file.visititems(lambda _, item: _attach(file, item, out))

    _atomic(target, write)


def _copy(item: Any, out: h5py.File, store: Callable, scales: list[h5py.Dataset]) -> None:
    if isinstance(item, h5py.Group):
        _attributes(item, out.require_group(item.name))
        return
    if not isinstance(item, h5py.Dataset):
        return
    parent = out.require_group(item.parent.name)
    if not store(item, parent):
        item.file.copy(item, parent, _leaf(item), without_attrs=True)
    _attributes(item, out[item.name])
    if item.is_scale:
        scales.append(item)


def _attributes(source: Any, target: Any) -> None:
    for key in source.attrs:
        if key in _KEPT_OUT:
            continue
        value = source.attrs.get_id(key)
        if h5py.check_ref_dtype(value.dtype) is None:
            target.attrs.create(key, source.attrs[key], dtype=None)


def _scale_name(item: h5py.Dataset) -> bytes:
    name = item.attrs.get("NAME", b"")
    return name if isinstance(name, bytes) else str(name).encode()


def _attach(file: h5py.File, item: Any, out: h5py.File) -> None:
    """Attach the dimension scales that the source has, also those kept beside a stream."""
    if not isinstance(item, h5py.Dataset) or item.is_scale:
        return
    copy = out[item.name]
    if STREAM in item.attrs and STREAM not in copy.attrs:
        names = [str(n) for n in item.attrs[_DIMS]]
    else:
        names = [d[0].name if len(d) else "" for d in item.dims]
    if STREAM in copy.attrs:
        return
    for axis, name in enumerate(names):
        if name and name in out:
            copy.dims[axis].attach_scale(out[name])


def _leaf(item: h5py.Dataset) -> str:
    return item.name.rpartition("/")[2]


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            f"cannot be opened ({error})", where=str(path),
            allowed="HDF5, NetCDF4, or a scitoolkit stream",
        ) from None  # fmt: skip


def wanted_variables(path: Path, plan: FilePlan) -> list[str]:
    """Return the names of what would be compressed."""
    if format_of(path).single_array:
        return [path.name]
    with as_hdf5(path) as file:
        return [name.lstrip("/") for name in _wanted(file, plan)]


def as_hdf5(path: Path) -> h5py.File:
    """Open HDF5 or NetCDF4; another format is first rewritten as NetCDF4 in memory."""
    found = format_of(path)
    if found.native_hdf5:
        return _opened(path)
    with found.open_dataset(path, decode=False) as dataset:
        return h5py.File(io.BytesIO(dataset.to_netcdf(engine="h5netcdf")), "r")


def read_array(path: Path) -> np.ndarray:
    """Return the array of a file that holds a single one, lazily where the format can."""
    with format_of(path).open_dataset(path) as dataset:
        (array,) = dataset.data_vars.values()
        return array.data


def _save_npy(path: Path, values: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _atomic(target: Path, write: Callable[[Path], Any]) -> None:
    """Write under a temporary name beside the target, then rename."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", where=str(target)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
