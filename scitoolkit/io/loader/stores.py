"""Where the chunks of a Zarr store are: a folder, references to other files, or Icechunk.

References (kerchunk, VirtualiZarr) are a JSON file or a folder of Parquet that name, for each
chunk, a file or URL, an offset and a length. Sources: kerchunk's specification 1; Icechunk 1.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.remote import STORE_FILES
from scitoolkit.io.loader.references import Places, protocols_of, read_references

_HEAD = 4096
_REFERENCES = (b'"refs"', b'".zgroup"', b'"zarr.json"', b'".zarray"')
# The head of a file of references whose templates or rules are long.
_RULES = (b'"templates"', b'"gen"')


def is_folder_of_files(path: Path) -> bool:
    """Return whether a path is a plain store, whose chunks are files in it."""
    return path.is_dir() and not _is_parquet(path) and not _is_icechunk(path)


def is_store(path: Path | str) -> bool:
    """Return whether a path is a Zarr store, or references to one, by names and first bytes."""
    path = Path(path)
    if path.is_dir():
        return any((path / name).exists() for name in STORE_FILES) or _is_icechunk(path)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    rules = b'"version"' in head and any(key in head for key in _RULES)
    return head.lstrip()[:1] == b"{" and (rules or any(key in head for key in _REFERENCES))


def _is_parquet(path: Path) -> bool:
    metadata = path / ".zmetadata"
    return metadata.is_file() and '"record_size"' in metadata.read_text(encoding="utf-8")


def _is_icechunk(path: Path) -> bool:
    return (path / "snapshots").is_dir() and (path / "refs").is_dir()


def store_of(path: Path | str) -> Any:
    """Return what `zarr.open_group` and xarray open: a path, or a store of zarr.

    Raises:
        DataError: references that are none, or a repository that cannot be opened.
        BackendError: the package of this kind of store is not installed.
    """
    path = Path(path)
    if is_folder_of_files(path):
        return str(path)
    # Loops of a process do not survive a fork, and references may be written again.
    return _store(str(path.absolute()), os.getpid(), _state(path))


def _state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes if anything is written to a store: its files, their sizes and times.

    The time of a folder does not change with the files in the folders below. Objects of Icechunk
    are never written again: what a branch points to is in `refs`, or in `repo` from version 2 on.
    """
    if _is_icechunk(path):
        inner = [path / "repo", *(path / "refs").rglob("*")]
    else:
        inner = [path, *(path.rglob("*") if path.is_dir() else ())]
    stats = ((str(file), file.stat()) for file in sorted(inner) if file.is_file())
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in stats)


@functools.lru_cache(maxsize=32)
def _store(path: str, process: int, state: tuple[tuple[str, int, int], ...]) -> Any:
    if _is_icechunk(Path(path)):
        return _icechunk(path)
    try:
        from fsspec.implementations.reference import ReferenceFileSystem
        from zarr.storage import FsspecStore
    except ImportError as error:
        raise missing_extra(str(error.name), "remote", "reading references") from None

    class References(FsspecStore):
        """Store that refuses answers of another length than was asked for."""

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            # References in Parquet are of Zarr version 2, and cannot be asked for other metadata.
            if key.endswith("zarr.json") and os.path.isdir(path):
                return None
            data = await super().get(key, prototype, byte_range)
            wanted = _length(self.fs, key, byte_range)
            # Servers that know no ranges send the whole file, without an error.
            if data is not None and wanted is not None and len(data) != wanted:
                raise OSError(f"{key}: {len(data)} bytes were received for {wanted}")
            return data

    places = Places()
    try:
        # A mapping of references is one of version 0, whose templates are written out already.
        source = path if os.path.isdir(path) else read_references(Path(path))
        for protocol in () if isinstance(source, str) else protocols_of(source):
            places[protocol]
        files = ReferenceFileSystem(
            fo=source, fs=places[None], asynchronous=True, skip_instance_cache=True
        )
    except ImportError as error:
        raise missing_extra(str(error.name), "remote", f"reading {path}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"no references that can be read ({error})", where=path) from None
    files.fss = places
    return References(files, read_only=True, path="")


def _length(files: Any, key: str, wanted: Any) -> int | None:
    """Return the number of bytes of an object, or of a range of it; None if it is not stated."""
    if hasattr(wanted, "end"):
        return int(wanted.end - wanted.start)
    if hasattr(wanted, "suffix"):
        return int(wanted.suffix)
    try:
        reference = files.references[key]
    except KeyError:
        return None
    stated = isinstance(reference, list) and len(reference) == 3
    return int(reference[2]) - getattr(wanted, "offset", 0) if stated else None


def _icechunk(path: str) -> Any:
    try:
        import icechunk
    except ImportError:
        raise missing_extra("icechunk", "icechunk", f"reading {path}") from None
    try:
        repository = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
        return repository.readonly_session("main").store
    except icechunk.IcechunkError as error:
        text = " ".join(str(error).split())[:300]
        raise DataError(f"cannot be opened ({text})", where=path) from None


def keys_of(path: Path, name: str) -> set[str]:
    """Return the keys of an array's chunks that a store holds, relative to the array."""
    if is_folder_of_files(path):
        folder = path / name
        return {
            os.path.relpath(os.path.join(parent, file), folder).replace(os.sep, "/")
            for parent, _, files in os.walk(folder)
            for file in files
        }
    store, prefix = store_of(path), f"{name.strip('/')}/" if name.strip("/") else ""
    if not _is_icechunk(path):
        # References in Parquet list every place of a chunk, also those without an entry.
        references = store.fs.references
        below = (key for key in list(references) if key.startswith(prefix))
        return {key.removeprefix(prefix) for key in below if _is_there(references, key)}
    from zarr.core.sync import sync

    async def listed() -> list[str]:
        return [key async for key in store.list_prefix(prefix)]

    return {key.removeprefix(prefix) for key in sync(listed())}


def _is_there(references: Any, key: str) -> bool:
    try:
        return references[key] is not None
    except (KeyError, TypeError):  # an entry without a place
        return False


@contextlib.contextmanager
def opened(path: Path, name: str, key: str) -> Iterator[Any]:
    """Open one object of an array's, a shard, as a binary file."""
    if is_folder_of_files(path):
        with open(path / name / key, "rb") as file:
            yield file
    else:
        yield _StoredObject(store_of(path), f"{name}/{key}" if name else key)


class _StoredObject(io.RawIOBase):
    """Object of a store as a file that reads ranges.

    Args:
        store: of zarr.
        key: of the object.
    """

    def __init__(self, store: Any, key: str) -> None:
        from zarr.core.sync import sync

        self.store, self.name, self._at = store, key, 0
        self._size = int(sync(store.getsize(key)))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position; from the end with `whence` 2."""
        self._at = offset + (self._size if whence == 2 else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        from zarr.abc.store import RangeByteRequest
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        wanted = RangeByteRequest(self._at, self._at + size)
        try:
            data = sync(self.store.get(self.name, default_buffer_prototype(), wanted))
        except (OSError, RuntimeError) as error:
            raise DataError(f"cannot be read ({error})", where=self.name) from None
        if data is None:
            raise DataError("cannot be read", where=self.name)
        self._at += size
        return bytes(data.to_bytes())
