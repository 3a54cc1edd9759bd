"""Compression of Zarr stores, versions 2 and 3, in a folder or a zip file.

A compressed store is a copy of the original, identical byte for byte except for the compressed
arrays. Their metadata name scitoolkit's codec instead of the original codecs, so that Zarr reads
them if scitoolkit is installed. Arrays that the codec does not support become arrays of bytes,
their streams. The attributes of both contain the metadata from which the original is restored.
"""

from __future__ import annotations

import json
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.compression import chunked
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.chunk_enhancer import with_enhancer
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.plan import Candidate, FilePlan, wanted
from scitoolkit.compression.slabs import compress_slabs, iterate_slabs
from scitoolkit.compression.stored import Stored, about_chunks, compressed_original, record
from scitoolkit.compression.zarr_metadata import (
    LAYOUT,
    ORIGINAL,
    ArrayMetadata,
    names_of_dims,
    number_of_base64,
    plain_number,
    stored_json,
)
from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.core.files import flush_file, temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import FILTERED, STREAM, StoreFiles, is_store
from scitoolkit.io.variable_roles import roles_of_variables

if TYPE_CHECKING:
    import zarr


log = get_logger(__name__)


def compress_store(source: Path, target: Path, plan: FilePlan) -> list[dict[str, Any]]:
    """Write a compressed copy of a Zarr store; see `files.compress_file`.

    Args:
        source: folder or zip file.
        target: folder, or zip file if its name ends with .zip; replaced if it is a store.
        plan: arrays, bounds and options.

    Returns:
        One record per compressed array, see `stored.record`.

    Raises:
        ConfigError: the plan has quantities or an unknown variable, or the target is not a store.
        DataError: an array is already compressed.
    """
    if plan.quantities:
        raise ConfigError(
            "quantities of a Zarr store",
            where=str(source),
            allowed="HDF5, NetCDF",
            fix="bound each array, or write it as NetCDF first",
        )
    files = StoreFiles(source)
    bounds = wanted_arrays(files, plan)
    in_chunks = plan.in_chunks(str(source))
    records: list[dict[str, Any]] = []
    with _Copy(files, target, without=bounds) as copy:
        for path, bound in bounds.items():
            original = ArrayMetadata.read(files, path)
            assert original is not None
            if original.mark:
                raise DataError(
                    "already compressed",
                    where=f"{source}: {_name(path)}",
                    fix=f"scitoolkit decompress {source} ...",
                )
            array = _open(files, path)
            made = _written(array, original, bound, plan, copy.folder / path, in_chunks=in_chunks)
            records.append(record(_name(path), made))
    return records


def decompress_store(source: Path, target: Path) -> list[str]:
    """Decompress a store and return the names of the decompressed arrays.

    Raises:
        ConfigError: the target is not a store or cannot be written.
        DataError: the store has no compressed array, or an array is damaged.
    """
    files = StoreFiles(source)
    marked = {path: meta for path, meta in arrays(files) if meta.mark}
    if not marked:
        raise DataError("no variable compressed by scitoolkit", where=str(source))
    with _Copy(files, target, without=marked) as copy:
        for path, meta in marked.items():
            coded = _open(files, path)
            meta.restored(f"{source}: {_name(path)}").write(copy.folder / path)
            restored = _open(StoreFiles(copy.folder), path, mode="r+")
            stream = meta.mark == STREAM
            parts = (
                iterate_slabs(np.asarray(coded[...]).tobytes())
                if stream
                else _slabs(coded, restored)
            )
            _fill(restored, parts)
    return [_name(path) for path in marked]


def stored_arrays(source: Path) -> Iterator[Stored]:
    """Yield the compressed arrays of a store."""
    files = StoreFiles(source)
    for path, meta in arrays(files):
        if meta.mark == STREAM:
            yield Stored.of_stream(_name(path), np.asarray(_open(files, path)[...]).tobytes())
        elif meta.mark == FILTERED:
            array = _open(files, path)
            original = _original_dtype(meta)
            about = about_chunks(
                meta.attributes[FILTERED],
                array,
                "interpolation (Zarr codec)",
                _stored_bytes(files, path),
                f"{source}: {path}",
            )
            about["dtype"] = original.str
            yield Stored(_name(path), about, _decoder(array, original), enhancer=meta.enhancer)


def original_array(source: Path, name: str) -> tuple[np.ndarray, MissingValues]:
    """Return the values and missing values of an array of an uncompressed store.

    Raises:
        DataError: there is no such array, or scitoolkit compressed it.
    """
    files = StoreFiles(source)
    path = "" if name == "/" else name
    if (meta := ArrayMetadata.read(files, path)) is None:
        raise DataError(f"no variable {name!r}", where=str(source))
    if meta.mark:
        raise compressed_original(f"{source}: {name}")
    array = _open(files, path)
    return np.asarray(array[...]), missing_of(array, meta)


def wanted_arrays(files: StoreFiles, plan: FilePlan) -> dict[str, Bound]:
    """Return path -> bound of the arrays to compress; see `plan.wanted`."""
    return wanted(candidates_of(files), plan, str(files.path))


def candidates_of(files: StoreFiles) -> dict[str, Candidate]:
    """Return path -> float array, with the role that the attributes of all objects give it."""
    described = dict(arrays(files))
    dims = {path: len(meta.fields["shape"]) for path, meta in described.items()}
    groups = [
        (stored_json(files, folder, "zarr.json") or {}).get("attributes") or {}
        if leaf == "zarr.json"
        else stored_json(files, folder, leaf) or {}
        for folder, _, leaf in (name.rpartition("/") for name in files.names())
        if leaf in ("zarr.json", ".zattrs") and folder not in described
    ]
    roles = roles_of_variables({p: meta.attributes for p, meta in described.items()}, dims, groups)
    candidates = {}
    for path, meta in described.items():
        array = _open(files, path)
        if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
            # An array named like one of its dims is the coordinate of that dim.
            scale = bool(path) and path.rpartition("/")[2] in names_of_dims(meta)
            role = "coordinate" if scale else roles.get(path, "")
            candidates[path] = Candidate(array.size, array.ndim, role, meta.mark == FILTERED)
    return candidates


def arrays(files: StoreFiles) -> Iterator[tuple[str, ArrayMetadata]]:
    """Yield path and metadata of each array of a store."""
    for name in files.names():
        folder, _, leaf = name.rpartition("/")
        if leaf in ("zarr.json", ".zarray"):
            meta = ArrayMetadata.read(files, folder)
            # A folder with metadata of both versions is read as version 3, and is yielded once.
            if meta is not None and (leaf == "zarr.json") == (meta.version == 3):
                yield folder, meta


def arrays_with_missing(
    files: StoreFiles,
) -> Iterator[tuple[str, zarr.Array[Any], MissingValues]]:
    """Yield path, array and missing values of each array of a store."""
    for path, meta in arrays(files):
        array = _open(files, path)
        is_float = array.dtype.kind == "f"
        yield path, array, missing_of(array, meta) if is_float else MissingValues()


def missing_of(array: zarr.Array[Any], meta: ArrayMetadata) -> MissingValues:
    """Return the missing values of an array: its attributes, its fill value, netCDF's fill.

    A fill value of 0 is Zarr's default, not a missing value. xarray encodes `_FillValue` in
    base 64 in version 3.
    """
    attributes = dict(meta.attributes)
    if isinstance(text := attributes.get("_FillValue"), str):
        attributes["_FillValue"] = number_of_base64(text)
    missing_values = MissingValues.from_attributes(attributes, array.dtype) | MissingValues(
        (chunked.NETCDF_FILL,)
    )
    fill = plain_number(array.fill_value)
    return missing_values | MissingValues.of(fill) if fill else missing_values


class _Copy:
    """Context manager of a store's copy without some arrays, renamed to the target at the end."""

    def __init__(self, files: StoreFiles, target: Path, without: Mapping[str, Any]) -> None:
        if target.suffix not in (".zarr", ".zip"):
            raise ConfigError(
                "the target of a Zarr store must be one",
                where=str(target),
                allowed="a name that ends with .zarr or .zip",
            )
        if target.is_dir() and any(target.iterdir()) and not is_store(target):
            raise ConfigError(
                "a folder that is not a Zarr store", where=str(target), fix="choose another name"
            )
        if not target.parent.is_dir():
            raise ConfigError("cannot be written (no such folder)", where=str(target))
        self.files, self.target, self.without = files, target, without
        self.folder = temporary_name(target)

    def __enter__(self) -> _Copy:
        try:
            self.folder.mkdir()
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise ConfigError(what, where=str(self.target)) from None
        # With the slash, because `u` must not exclude `u2`. The empty prefix of an array at the
        # root excludes all files of the store, which are those of the array.
        left_out = tuple(f"{path}/" if path else "" for path in self.without)
        names = [name for name in self.files.names() if not name.startswith(left_out)]
        self.files.copy(names, self.folder)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None:
                self._consolidate()
                self._rename()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _consolidate(self) -> None:
        """Update consolidated metadata of groups that have them, innermost first."""
        import zarr

        groups = sorted(_consolidated(self.files), key=lambda path: -path.count("/"))
        for path in groups:
            old = (self.folder / path / ".zmetadata").exists()
            with warnings.catch_warnings():
                # zarr warns that they are not part of the version 3 specification yet.
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(str(self.folder / path), zarr_format=2 if old else 3)

    def _rename(self) -> None:
        made: Path = self.folder
        if self.target.suffix == ".zip":
            made = temporary_name(self.target.with_name(f"{self.target.name}.zip"))
            with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as out:
                for file in sorted(p for p in self.folder.rglob("*") if p.is_file()):
                    out.write(file, file.relative_to(self.folder).as_posix())
            flush_file(made)
        # No system replaces a folder that is not empty by renaming. The copy is complete by now: a
        # crash between removal and renaming leaves it under its temporary name.
        if self.target.is_dir():
            shutil.rmtree(self.target)
        elif self.target.exists() and made.is_dir():
            self.target.unlink()
        made.replace(self.target)


def _written(
    array: zarr.Array[Any],
    original: ArrayMetadata,
    bound: Bound,
    plan: FilePlan,
    folder: Path,
    *,
    in_chunks: bool,
) -> Mapping[str, Any]:
    """Write a compressed array into a folder and return its header."""
    missing_values, where = plan.missing | missing_of(array, original), f"/{array.path}"
    why = chunked.refusal(array, bound, missing_values) if in_chunks else "the container"
    surveyed = None if why else chunked.survey(array, bound, missing_values, where)
    why = why or (surveyed.refusal if surveyed else "")
    options = plan.options_of(_name(array.path))
    if surveyed is not None and not why:
        surveyed = with_enhancer(array, surveyed, options, where)
        about = {**surveyed.header(), "storage": original.storage()}
        meta = original.coded(array, surveyed, {FILTERED: about})
        meta.write(folder)
        made = _open(StoreFiles(folder), "", mode="r+")
        _fill(made, _slabs(array, made))
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        return about_chunks(about, array, "interpolation (Zarr codec)", size, where)
    if in_chunks:
        log.warning("%s is written as a stream, which only scitoolkit reads: %s", where, why)
    stream = compress_slabs(array, bound, options, missing=missing_values, where=where)
    attributes = {key: value for key, value in original.attributes.items() if key != FILTERED}
    about = {"fields": dict(original.fields), "attributes": attributes}
    meta = original.as_bytes(len(stream), {STREAM: LAYOUT, ORIGINAL: about})
    meta.write(folder)
    _fill(_open(StoreFiles(folder), "", mode="r+"), iter([np.frombuffer(stream, np.uint8)]))
    return Stored.of_stream(array.path, stream).about


def _open(files: StoreFiles, path: str, mode: Any = "r") -> zarr.Array[Any]:
    try:
        import zarr
    except ImportError:
        raise missing_extra("zarr", "zarr", "compressing Zarr stores") from None
    try:
        if files.zipped:
            store = zarr.storage.ZipStore(files.path, mode="r")
            return zarr.open_array(store, path=path, mode="r")
        return zarr.open_array(str(files.path), path=path, mode=mode)
    except DataError as error:  # settings of our codec
        where = f"{files.path}: {_name(path)}"
        raise DataError(error.what, where=where, fix=error.fix) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DataError(
            f"the array cannot be opened ({error})", where=f"{files.path}: {_name(path)}"
        ) from None


def _slabs(source: zarr.Array[Any], made: zarr.Array[Any]) -> Iterator[np.ndarray]:
    rows = chunked.slab_rows(source, (made.shards or made.chunks)[0]) if source.ndim else 0
    if not rows:
        yield np.asarray(source[...])
    for start in range(0, source.shape[0], rows) if rows else ():
        yield np.asarray(source[start : start + rows])


def _fill(made: zarr.Array[Any], parts: Iterator[np.ndarray]) -> None:
    start = 0
    for part in parts:
        if not made.ndim:
            made[...] = part
        elif part.size:
            made[start : start + len(part)] = part
            start += len(part)


def _decoder(array: zarr.Array[Any], original: np.dtype) -> Any:
    return lambda: np.asarray(array[...]).astype(original, copy=False)


def _original_dtype(meta: ArrayMetadata) -> np.dtype:
    if meta.version == 2:
        return np.dtype(str(meta.attributes[FILTERED]["storage"]["dtype"]))
    return np.dtype(str(meta.fields["data_type"]))


def _stored_bytes(files: StoreFiles, path: str) -> int:
    prefix = f"{path}/" if path else ""
    return sum(files.size(name) for name in files.names() if name.startswith(prefix))


def _consolidated(files: StoreFiles) -> list[str]:
    """Return the paths of groups with consolidated metadata."""
    entries = []
    for name in files.names():
        folder, _, leaf = name.rpartition("/")
        if leaf == ".zmetadata" or (
            leaf == "zarr.json" and json.loads(files.read(name)).get("consolidated_metadata")
        ):
            entries.append(folder)
    return entries


def _name(path: str) -> str:
    return path or "/"
