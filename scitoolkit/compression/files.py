"""Compression of files: all float variables of an HDF5 or NetCDF file, or the array of a .npy file.

A compressed HDF5 file is a copy of the original (`hdf5_copy`). A compressed variable is either a
dataset behind scitoolkit's filter (`filtered`) or a one-dimensional array of bytes, its stream.
Shape, type, storage properties and attributes of a stream's variable are those of an empty dataset
`NAME.header` next to it, so that other tools can read them. `decompress_file` restores the
original file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
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
    Hdf5Copy,
    Replacement,
    copy_hdf5,
    create_like,
    object_key,
)
from scitoolkit.compression.hdf5_variables import (
    as_hdf5,
    candidates_of,
    float_datasets,
    opened,
    refuse_packed,
    warn_of_copied,
)
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.names import warn_of_name
from scitoolkit.compression.native.library import enhancer_in
from scitoolkit.compression.plan import FilePlan, wanted
from scitoolkit.compression.progressive import preview
from scitoolkit.compression.raw import is_raw, open_raw, write_raw
from scitoolkit.compression.slabs import compress_slabs
from scitoolkit.compression.stored import Stored, record
from scitoolkit.compression.stream_datasets import (
    HEADER,
    LAYOUT,
    NAME,
    RestoredVariables,
    attach_scales,
    label_bytes,
    next_dim_number,
    picture_record,
    unused_header_name,
    variable_name,
)
from scitoolkit.compression.zarr_files import (
    compress_store,
    decompress_store,
    stored_arrays,
    wanted_arrays,
)
from scitoolkit.core.errors import ConfigError, DataError, damage_named, file_named
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import FILTERED, STREAM, StoreFiles, is_store, is_stream, mark_of
from scitoolkit.io.formats import format_of
from scitoolkit.io.numpy_file import save_array

log = get_logger(__name__)


_AS_STREAM = "%s is written as a stream, which only scitoolkit reads: %s"


ONE_ARRAY = "array"
"""Name under which networks of single-array files are stored, whose file names vary."""


STALE = frozenset({FILTERED})
"""Attribute that a derived file has copied from a compressed one."""


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
        numbers = itertools.count(next_dim_number(file))
        # By object, not by name: a variable with several hard links is coded once, under the first.
        bounds = {object_key(file[name]): bound for name, bound in _wanted(file, plan).items()}
        together = _together(file, plan)
        if not plan.variables:
            warn_of_copied(file)
            if not bounds and not together:
                refuse_packed(file)

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
            header = create_like(item, parent, unused_header_name(item, name), copy.type_of(item))
            raw.attrs[STREAM], raw.attrs[HEADER] = LAYOUT, header.name
            raw.attrs[NAME] = item.name.lstrip("/")
            if any(len(dim) for dim in item.dims):
                label_bytes(raw, next(numbers))
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
        return [picture_record(source.name, picture)]
    warn_of_name(target, "HDF5")
    with damage_named(source), opened(source) as file:
        restored = RestoredVariables(file, share)

        def write(path: Path) -> None:
            copy_hdf5(file, path, restored.replace)
            if not restored.records:
                raise DataError("no variable compressed by scitoolkit", where=str(source))
            if restored.scales:
                attach_scales(path, restored.scales)

        _atomic(target, write)
    return restored.records


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
                yield Stored.of_stream(variable_name(file[name]), file[name][...].tobytes())
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


def _together(file: h5py.File, plan: FilePlan) -> dict[tuple[int, int], bytes]:
    """Return the streams of variables that occur in quantities, by `object_key`."""
    if not plan.quantities:
        return {}
    from scitoolkit.compression.file_quantities import groups, streams_of  # reads with sympy

    bounds, floats = _wanted(file, plan), float_datasets(file)
    return {
        object_key(file[path]): stream
        for group in groups(floats, plan.quantities)
        for path, stream in streams_of(file, group, bounds, plan.options, plan.missing).items()
    }


def _wanted(file: h5py.File, plan: FilePlan) -> dict[str, Bound]:
    """Return the full path of each variable with a bound, and the bound."""
    return wanted(candidates_of(file), plan, str(file.filename))


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

            chosen += [
                p for g in groups(float_datasets(file), plan.quantities) for p in g.paths.values()
            ]
        return [name.lstrip("/") for name in dict.fromkeys(chosen)]


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
