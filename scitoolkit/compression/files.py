"""Compression of files: all float variables of an HDF5 or NetCDF file, or the array of a .npy file.

A compressed HDF5 file is a copy of the original (`hdf5_copy`). A compressed variable is either a
dataset behind scitoolkit's filter (`filtered`) or a one-dimensional array of bytes, its stream.
Shape, type, storage properties and attributes of a stream's variable are those of an empty dataset
`NAME.header` next to it, so that other tools can read them. `decompress_file` restores the
original file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.compression import chunked, filtered
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.chunk_enhancer import with_enhancer
from scitoolkit.compression.decoding import inspect_stream
from scitoolkit.compression.hdf5_copy import (
    LEFT_OUT,
    Hdf5Copy,
    Left,
    Replacement,
    copy_hdf5,
    create_like,
    object_key,
)
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.names import warn_of_name
from scitoolkit.compression.native.library import enhancer_in
from scitoolkit.compression.plan import Candidate, FilePlan, wanted
from scitoolkit.compression.progressive import Preview, preview
from scitoolkit.compression.raw import is_raw, open_raw, write_raw
from scitoolkit.compression.slabs import compress_slabs, iterate_slabs
from scitoolkit.compression.stored import Stored, record
from scitoolkit.compression.zarr_files import (
    compress_store,
    decompress_store,
    stored_arrays,
    wanted_arrays,
)
from scitoolkit.core.errors import ConfigError, DataError, damage_named, file_named
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import (
    FILTERED,
    STREAM,
    StoreFiles,
    filter_bound,
    is_store,
    is_stream,
    mark_of,
)
from scitoolkit.io.formats import format_of
from scitoolkit.io.numpy_file import save_array
from scitoolkit.io.variable_roles import roles_of_variables

log = get_logger(__name__)
_AS_STREAM = "%s is written as a stream, which only scitoolkit reads: %s"
ONE_ARRAY = "array"
"""Name under which networks of single-array files are stored, whose file names vary."""
HEADER = "scitoolkit_header"
"""Attribute of a stream: path of the empty dataset that describes its variable."""
NAME = "scitoolkit_name"
BYTES = "scitoolkit_bytes"
"""Attribute of a stream: path of its dimension scale, which netCDF readers require."""
LAYOUT = 2
STALE = frozenset({FILTERED})
"""Attribute that a derived file has copied from a compressed one."""
# Attribute of a stream in files of layout 1: names of the dimension scales.
_DIMS = "scitoolkit_dims"


def compress_file(source: Path | str, target: Path | str, plan: FilePlan) -> list[dict[str, Any]]:
    """Compress a file and return one record per variable: name, bytes, ratio, max error.

    Args:
        source: a file of any installed format (`scitoolkit ls format`).
        target: a stream file for single arrays such as .npy (any suffix), else an HDF5 file; a
            Zarr store for a Zarr store.
        plan: variables, bounds and options.

    Raises:
        DataError: the source is missing or in an unknown format.
        ConfigError: a variable is not in the file or not floating-point, or the target cannot be
            written.
    """
    source, target = Path(source), Path(target)
    refuse_onto_itself(source, target)
    if is_store(source):
        return compress_store(source, target, plan)
    refuse_folder(source)
    if plan.container == "filter" and holds_one_array(source):
        raise ConfigError(
            "a single-array file with the HDF5 filter",
            where=str(source),
            allowed="HDF5, NetCDF or Zarr",
            fix="--container stream",
        )
    if target.suffix == ".zarr":
        raise ConfigError(
            "only a Zarr store can be compressed into a Zarr store",
            where=str(target),
            allowed="a file name",
        )
    if holds_one_array(source):
        warn_of_name(target, "a stream")
        return [_compress_array(source, target, plan)]
    warn_of_name(target, "HDF5")
    records: list[dict[str, Any]] = []
    with as_hdf5(source) as file:
        in_chunks = plan.in_chunks(str(source))
        numbers = itertools.count(_most_dims(file))
        # By object, not by name: a variable with several hard links is coded once, under the first.
        bounds = {object_key(file[name]): bound for name, bound in _wanted(file, plan).items()}
        together = _together(file, plan)
        if not plan.variables:
            _warn_of_copied(file)
            if not bounds and not together:
                _refuse_packed(file)

        def store(
            item: h5py.Dataset, parent: h5py.Group, name: str, copy: Hdf5Copy
        ) -> Replacement | None:
            stream = together.get(object_key(item), b"")
            if stream and in_chunks:
                log.warning(_AS_STREAM, item.name, "a quantity bounds it")
            if not stream:
                bound = bounds.get(object_key(item))
                if bound is None:
                    return None
                missing_values = plan.missing | MissingValues.of_dataset(item)
                if in_chunks:
                    why = chunked.refusal(item, bound, missing_values)
                    survey = None if why else chunked.survey(item, bound, missing_values, item.name)
                    why = why or (survey.refusal if survey else "")
                    if survey is not None and not why:
                        options = plan.options_of(item.name.lstrip("/"))
                        survey = with_enhancer(item, survey, options, item.name)
                        made = filtered.write(item, parent, name, copy.type_of(item), survey)
                        records.append(record(item.name.lstrip("/"), filtered.about(made)))
                        return Replacement(made, made, item, STALE)
                    log.warning(_AS_STREAM, item.name, why)
                options = plan.options_of(item.name.lstrip("/"))
                stream = compress_slabs(item, bound, options, missing=plan.missing, where=item.name)
            raw = parent.create_dataset(name, data=np.frombuffer(stream, np.uint8))
            header = create_like(item, parent, _header_name(item, name), copy.type_of(item))
            raw.attrs[STREAM], raw.attrs[HEADER] = LAYOUT, header.name
            raw.attrs[NAME] = item.name.lstrip("/")
            if any(len(dim) for dim in item.dims):
                _label(raw, next(numbers))
            records.append(_record(item.name.lstrip("/"), stream))
            return Replacement(raw, header, item, STALE)

        _atomic(target, lambda path: copy_hdf5(file, path, store))
    return records


def decompress_file(source: Path | str, target: Path | str) -> list[str]:
    """Decompress a file and return the names of the decompressed variables.

    Args:
        source: file written by `compress_file`.
        target: .npy, .f32 or .f64 for a stream file, else HDF5 (NetCDF4 if the original was).

    Raises:
        DataError: no such file, or it has no variable compressed by scitoolkit.
        ConfigError: the target cannot be written or is the source.
    """
    source, target = Path(source), Path(target)
    refuse_onto_itself(source, target)
    if is_store(source):
        return decompress_store(source, target)
    return [one["name"] for one in _restore_file(source, target, 1.0)]


def preview_file(source: Path | str, target: Path | str, share: float) -> list[dict[str, Any]]:
    """Decompress a share of the bytes of each stream of a file, and return its stated errors.

    Args:
        source: file that `compress_file` wrote with the codec `Interpolation(progressive=True)`.
        target: as for `decompress_file`.
        share: of the bytes of each stream to decode at most, 0 to 1.

    Returns:
        Of each variable `name`, `bytes` decoded, `max_error` and `rmse`, see `Preview`.

    Raises:
        DataError: a variable is not a progressive stream, or its bytes are too few for a picture.
        ConfigError: see `decompress_file`.
    """
    source, target = Path(source), Path(target)
    refuse_onto_itself(source, target)
    if is_store(source):
        raise DataError("a Zarr store has no coarse pictures", where=str(source), allowed="a file")
    return _restore_file(source, target, share)


def _restore_file(source: Path, target: Path, share: float) -> list[dict[str, Any]]:
    """Decompress a file of streams or filtered datasets and return a record of each variable."""
    refuse_folder(source)
    if is_stream(source):
        # A memory map reads only the pages of the share that is decoded.
        stream = np.memmap(source, np.uint8, "r").data if share < 1 else source.read_bytes()
        picture = preview(stream, share)
        warn_of_name(target, "an array")
        save = partial(write_raw, target=target) if is_raw(target) else save_array
        _atomic(target, lambda path: save(path, values=picture.values))
        return [_picture_record(source.name, picture)]
    warn_of_name(target, "HDF5")
    with damage_named(source), opened(source) as file:
        restored = _Restored(file, share)

        def write(path: Path) -> None:
            copy_hdf5(file, path, restored.replace)
            if not restored.records:
                raise DataError("no variable compressed by scitoolkit", where=str(source))
            if restored.scales:
                _attach_scales(path, restored.scales)

        _atomic(target, write)
    return restored.records


class _Restored:
    """Replaces streams by their decompressed variables while a file is copied."""

    def __init__(self, file: h5py.File, share: float) -> None:
        self.file, self.share = file, share
        self.records: list[dict[str, Any]] = []
        self.scales: dict[str, list[str]] = {}
        self._headers = _header_keys(file)

    def replace(
        self, item: h5py.Dataset, parent: h5py.Group, name: str, copy: Hdf5Copy
    ) -> Replacement | Left | None:
        """Return the variable of a stream, `LEFT_OUT` for a header, else None."""
        if object_key(item) in self._headers:
            return LEFT_OUT
        mark = mark_of(item)
        if mark == FILTERED:
            if self.share < 1:
                raise DataError(
                    f"{item.name} is coded in chunks, which have no coarse picture",
                    fix="scitoolkit compress --progressive",
                )
            self.records.append({"name": item.name.lstrip("/")})
            made = filtered.restore(item, parent, name, copy.type_of(item))
            return Replacement(made, made, item, frozenset({FILTERED}))
        if mark != STREAM:
            return None
        variable = _variable_name(item)
        stream = item[...].tobytes()
        if self.share < 1:
            picture = preview(stream, self.share)
            self.records.append(_picture_record(variable, picture))
            slabs: Iterable[np.ndarray] = (picture.values,)
        else:
            self.records.append({"name": variable})
            slabs = iterate_slabs(stream)
        if HEADER not in item.attrs:
            return self._first_layout(item, stream, parent, name)
        header = self.file[item.attrs[HEADER]]
        made = create_like(header, parent, name, copy.type_of(header))
        _fill(made, slabs)
        copy.refer(header, made)
        return Replacement(made, made, header)

    def _first_layout(
        self, item: h5py.Dataset, stream: bytes, parent: h5py.Group, name: str
    ) -> Replacement:
        """Restore a variable of a file of version 0.1, which stored only shape and dims."""
        about = inspect_stream(stream)
        shape = tuple(about["shape"])
        chunks = True if shape and math.prod(shape) else None
        made = parent.create_dataset(name, shape, np.dtype(about["dtype"]), chunks=chunks)
        _fill(made, iterate_slabs(stream))
        self.scales[made.name] = [str(n) for n in item.attrs[_DIMS]]
        return Replacement(made, made, item, frozenset({STREAM, _DIMS}))


def _picture_record(name: str, picture: Preview) -> dict[str, Any]:
    errors = {"max_error": picture.max_error, "rmse": picture.rmse}
    return {"name": name, "bytes": picture.num_bytes, **errors}


def _fill(made: h5py.Dataset, slabs: Iterable[np.ndarray]) -> None:
    start = 0
    for slab in slabs:
        if not slab.ndim:
            made[()] = slab
        elif slab.size:
            made[start : start + len(slab)] = slab
            start += len(slab)


def _variable_name(stream: h5py.Dataset) -> str:
    """Return the name of a variable when it was compressed; hard links give it several names."""
    return str(stream.attrs.get(NAME, stream.name.lstrip("/")))


def _attach_scales(target: Path, scales: Mapping[str, list[str]]) -> None:
    with h5py.File(target, "r+") as file:
        for variable, names in scales.items():
            for axis, name in enumerate(names):
                if name and name in file:
                    file[variable].dims[axis].attach_scale(file[name])


def _most_dims(file: h5py.File) -> int:
    """Return the smallest number above the netCDF-4 dimension ids of a file."""
    ranks = [-1]

    def visit(_: str, item: Any) -> None:
        if "_Netcdf4Dimid" in item.attrs:
            ranks.append(int(item.attrs["_Netcdf4Dimid"]))

    file.visititems(visit)
    return max(ranks) + 1


def _label(stream: h5py.Dataset, number: int) -> None:
    """Attach a dimension scale to the bytes of a stream, as all variables of its file have one.

    Without it, netCDF-4 readers treat the dimensions of other variables as anonymous.
    """
    path = stream.name + ".bytes"
    while path in stream.file:
        path += "_"
    scale = stream.file.create_dataset(path, stream.shape, ">f4")
    # The text by which netCDF-C recognises a dim without coordinate values.
    scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{stream.size:10d}")
    scale.attrs["_Netcdf4Dimid"] = np.int32(number)
    stream.dims[0].attach_scale(scale)
    stream.attrs[BYTES] = scale.name


def _header_name(item: h5py.Dataset, name: str) -> str:
    """Return an unused name for the header of a variable in its group."""
    unused = f"{name}.header"
    while unused in item.parent:
        unused += "_"
    return unused


def _header_keys(file: h5py.File) -> set[tuple[int, int]]:
    keys: set[tuple[int, int]] = set()

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            described = [item.attrs[key] for key in (HEADER, BYTES) if key in item.attrs]
            keys.update(object_key(file[path]) for path in described)

    file.visititems(visit)
    return keys


def stored_variables(path: Path | str) -> Iterator[Stored]:
    """Yield the compressed variables of a file or store, which is closed after the last one.

    Raises:
        DataError: no such file.
    """
    path = Path(path)
    if is_store(path):
        yield from stored_arrays(path)
        return
    refuse_folder(path)
    if is_stream(path):
        yield Stored.of_stream(path.name, path.read_bytes())
        return
    with damage_named(path), opened(path) as file:
        paths: list[str] = []

        def visit(name: str, item: Any) -> None:
            if mark_of(item):
                paths.append(name)

        file.visititems(visit)
        for name in paths:
            if mark_of(file[name]) == STREAM:
                yield Stored.of_stream(_variable_name(file[name]), file[name][...].tobytes())
            else:
                filtered.load_filter()
                item = file[name]
                decode, words = partial(item.__getitem__, ...), filtered.parameters_of(item)
                about = filtered.about(item)
                yield Stored(name, about, decode, enhancer=enhancer_in(words))


def refuse_onto_itself(source: Path, target: Path) -> None:
    """Raise ConfigError if the target is the source, whose original values would be lost."""
    if source.resolve() == target.resolve():
        raise ConfigError(
            "a file cannot be written onto itself",
            where=str(source),
            allowed="another file or folder",
        )


def refuse_folder(path: Path) -> None:
    """Raise for a path that is not a file.

    Raises:
        DataError: the path does not exist or is a folder other than a Zarr store.
    """
    if path.is_dir():
        raise DataError(
            "a folder that is not a Zarr store",
            where=str(path),
            allowed="zarr.json, .zgroup or .zarray in it",
            fix=f"name the files: {path}/*.nc",
        )
    if not path.is_file():
        raise DataError("no such file", where=str(path))


def _compress_array(source: Path, target: Path, plan: FilePlan) -> dict[str, Any]:
    if plan.variables:
        raise ConfigError("a single-array file has no named variables", where=str(source))
    values = read_array(source, plan.shape)
    if plan.quantities:
        from scitoolkit.compression.quantities import compress_quantities

        stream = compress_quantities(
            {source.stem: values},
            plan.quantities,
            bounds=plan.bound,
            options=plan.options,
            missing=plan.missing,
        )[source.stem]
    else:
        assert plan.bound is not None
        options = plan.options_of(ONE_ARRAY)
        stream = compress_slabs(
            values, plan.bound, options, missing=plan.missing, where=str(source)
        )
    _atomic(target, lambda path: path.write_bytes(stream))
    return _record(source.name, stream)


def _record(name: str, stream: bytes) -> dict[str, Any]:
    return record(name, inspect_stream(stream))


def _floats(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return path -> dataset for every dataset of floating-point numbers."""
    floats: dict[str, h5py.Dataset] = {}

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and _is_float(item):
            floats[item.name] = item

    file.visititems(visit)
    return floats


def _warn_of_copied(file: h5py.File) -> None:
    """Warn of numeric datasets that are copied unchanged because no codec supports their type."""

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind in "fc":
            if not _is_float(item):
                log.warning("%s is copied unchanged: no codec supports %s", item.name, item.dtype)

    file.visititems(visit)


def _refuse_packed(file: h5py.File) -> None:
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
            fix="unpack first: python -c 'import sys, xarray; xarray.open_dataset(sys.argv[1])"
            f".drop_encoding().to_netcdf(sys.argv[2])' {source} unpacked.nc",
        )


def _together(file: h5py.File, plan: FilePlan) -> dict[tuple[int, int], bytes]:
    """Return the streams of variables that occur in quantities, by `object_key`."""
    if not plan.quantities:
        return {}
    from scitoolkit.compression.file_quantities import groups, streams_of  # reads with sympy

    bounds, floats = _wanted(file, plan), _floats(file)
    return {
        object_key(file[path]): stream
        for group in groups(floats, plan.quantities)
        for path, stream in streams_of(file, group, bounds, plan.options, plan.missing).items()
    }


def _wanted(file: h5py.File, plan: FilePlan) -> dict[str, Bound]:
    """Return the full path of each variable with a bound, and the bound."""
    return wanted(candidates_of(file), plan, str(file.filename))


def candidates_of(file: h5py.File) -> dict[str, Candidate]:
    """Return path -> float variable, with the role that the attributes of all objects give it."""
    attributes, dims, groups = {}, {}, [dict(file.attrs)]

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            attributes[item.name], dims[item.name] = _attributes(item), item.ndim
        else:
            groups.append(_attributes(item))

    file.visititems(visit)
    roles, floats = roles_of_variables(attributes, dims, groups), _floats(file)
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


def _is_float(item: h5py.Dataset) -> bool:
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


def wanted_variables(path: Path, plan: FilePlan) -> list[str]:
    """Return the names of the variables that would be compressed."""
    if is_store(path):
        return [name or "/" for name in wanted_arrays(StoreFiles(path), plan)]
    refuse_folder(path)
    if holds_one_array(path):
        return [path.name]
    with damage_named(path), as_hdf5(path) as file:
        chosen = [*_wanted(file, plan)]
        if plan.quantities:
            from scitoolkit.compression.file_quantities import groups

            chosen += [p for g in groups(_floats(file), plan.quantities) for p in g.paths.values()]
        return [name.lstrip("/") for name in dict.fromkeys(chosen)]


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


def holds_one_array(path: Path) -> bool:
    """Return whether a file consists of one unnamed array."""
    return is_raw(path) or format_of(path).single_array


def read_array(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the array of a single-array file, lazily if the format supports it.

    Args:
        path: a single-array format, or a raw file.
        shape: of a raw file.
    """
    if is_raw(path):
        return open_raw(path, shape)
    with format_of(path).open_dataset(path) as dataset:
        (array,) = dataset.data_vars.values()
        return array.data


def _atomic(target: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file next to the target, flush it, then rename it."""
    temporary = temporary_name(target)
    try:
        temporary.touch()
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", where=str(target)) from None
    try:
        with file_named(target, temporary):
            write(temporary)
        temporary.chmod(0o666 & ~_umask())
        move_into_place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    # The umask can be read only by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
