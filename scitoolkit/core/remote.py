"""Files and stores behind URLs, through fsspec: what is local of them.

A Zarr store becomes a local file of references (the format of kerchunk), which names the objects
of the store; their bytes are read when they are needed. Any other file is copied once. Both are
made again if the listing of the remote place changes. Options of a protocol, such as an endpoint
or anonymous access, are those of fsspec (`FSSPEC_S3_ENDPOINT_URL`, `FSSPEC_S3_ANON`, or its
configuration files).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.files import temporary_name, write_atomic

STORE_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
"""Files of which one is in the folder of each Zarr store."""
PROTOCOLS = ("http", "https", "s3", "gs", "gcs", "az", "abfs", "ftp", "sftp", "memory")
_URL = re.compile(rf"^({'|'.join(PROTOCOLS)}):/{{1,2}}(?=[^/])")
_METADATA = (*STORE_FILES, ".zattrs")
_REQUESTS = 16
"""Requests for the folders and metadata of a store at a time."""
# What file systems of fsspec state of the version of a file.
_VERSIONS = frozenset(
    "ETag etag LastModified Last-Modified last_modified mtime modify updated Content-MD5".split()
)


def url_of(path: os.PathLike[str] | str) -> str:
    """Return the URL that a path is, "" for a path of this machine.

    As a `Path`, a URL has lost one of its slashes.

    Example:
        >>> url_of(Path("s3://bucket/a.zarr")), url_of("a.zarr")
        ('s3://bucket/a.zarr', '')
    """
    text = os.fspath(path)
    return _URL.sub(r"\1://", text) if _URL.match(text) else ""


def local_path(url: str) -> Path:
    """Return the local path that stands for a remote file, store, folder or pattern.

    Args:
        url: with one of `PROTOCOLS`.

    Raises:
        DataError: it does not exist, or cannot be reached.
        BackendError: fsspec, or its package for the protocol, is not installed.
    """
    with _reaching(url):
        files, place = _file_system(url)
        folder = _cache() / hashlib.sha256(url.encode()).hexdigest()[:16]
        path, query = _split(place)
        if query and set(path).isdisjoint("*["):
            return _copied(files, place, folder / _name(place))
        # In the address of a server, `?` starts the query, such as a signature.
        if not set(path).isdisjoint("*[" if _is_web(place) else "*?["):
            return _several(files, sorted(files.glob(place)), folder, url)
        # A server answers for a folder with a page, as for a file.
        if not url.endswith("/") and (one := _one(files, place, folder)):
            return one
        listed = files.ls(place.rstrip("/") + "/", detail=False)
        # A page of a folder links to itself, also in other orders (`?C=N;O=D`).
        inside = sorted(p for p in listed if _split(p)[0].strip("/") != place.strip("/"))
        return _several(files, inside, folder, url)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise missing_extra("fsspec", "remote", f"reading {url}") from None
    try:
        # Listings that are kept would hide what was written since.
        return url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        package = re.search(r"[Ii]nstall (\w+)", str(error))
        name = package[1] if package else str(error.name)
        extra = "s3" if name == "s3fs" else "remote"
        raise missing_extra(name, extra, f"reading {url}") from None


@contextlib.contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Convert exceptions of a file system into DataError."""
    from scitoolkit.core.errors import ScitoolkitError

    try:
        yield
    except ScitoolkitError:
        raise
    except FileNotFoundError:
        raise DataError("no such file", where=url, fix="check the address") from None
    except Exception as error:  # each protocol has its own
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(
            f"cannot be reached ({text[:300]})",
            where=url,
            fix="check address and network; or copy the file to this machine and pass its path",
        ) from None


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "scitoolkit" / "remote"


def _is_store(files: Any, place: str) -> bool:
    # What is joined to an address with a query would belong to the query.
    names = () if _split(place)[1] else STORE_FILES
    return any(files.isfile(f"{place.rstrip('/')}/{name}") for name in names)


def _is_web(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _split(place: str) -> tuple[str, str]:
    """Return an address without its query, and the query; only those of servers have one."""
    path, _, query = place.partition("?") if _is_web(place) else (place, "", "")
    return path, query


def _name(place: str) -> str:
    return _split(place)[0].rstrip("/").rpartition("/")[2]


def _one(files: Any, place: str, folder: Path) -> Path | None:
    """Return what is local of a store or a file; None for a folder."""
    if _is_store(files, place):
        return _references(files, place, folder / f"{_name(place)}.json")
    return _copied(files, place, folder / _name(place)) if files.isfile(place) else None


def _several(files: Any, places: list[str], folder: Path, url: str) -> Path:
    """Return a pattern for what is local of several files and stores.

    Raises:
        DataError: there are none.
    """
    targets: dict[str, str] = {}
    stores = {place for place in places if _is_store(files, place)}
    for place in places:
        # The page of a server's folder also names the folder above and others.
        if place in stores or (not place.endswith("/") and files.isfile(place)):
            targets[place] = f"{_name(place)}.json" if place in stores else _name(place)
    # Some disks do not tell upper from lower case.
    if len({name.casefold() for name in targets.values()}) < len(targets):
        # The number sorts as the places do; the hash tells places apart after others are added.
        for number, (place, name) in enumerate(targets.items()):
            digest = hashlib.sha256(place.encode()).hexdigest()[:8]
            targets[place] = f"{number:06d}-{digest}-{name}"
    made = [
        (_references if place in stores else _copied)(files, place, folder / name)
        for place, name in targets.items()
    ]
    if not made:
        raise DataError("no file here", where=url, fix="check the address and its pattern")
    for other in {*folder.iterdir()} - {*made}:
        # Other processes may be writing here.
        if not (other.name.startswith(".") and other.suffix in (".tmp", ".tag")):
            other.unlink(missing_ok=True)
    return folder / "*"


def _references(files: Any, place: str, target: Path) -> Path:
    """Write the references of a store, unless they are those that exist.

    Raises:
        DataError: a server that lists no files, so that a missing chunk cannot be told.
    """
    place = place.rstrip("/")
    listed = _listed(files, place)
    inside = {path.rstrip("/")[len(place) + 1 :]: path for path in listed}
    if not {name for name in inside if name.rpartition("/")[2] not in _METADATA}:
        raise DataError(
            "the server lists no files of this store, so that missing chunks cannot be told",
            where=files.unstrip_protocol(place),
            allowed="object stores, and servers that list their folders",
            fix="copy the store to this machine",
        )
    references: dict[str, Any] = {}
    texts = [name for name in sorted(inside) if name.rpartition("/")[2] in _METADATA]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        stored = pool.map(lambda name: files.cat_file(inside[name]).decode(), texts)
        metadata = dict(zip(texts, stored, strict=True))
    for name, path in sorted(inside.items()):
        if name in metadata:
            references[name] = metadata[name]
        else:
            size = listed[path].get("size")
            url = files.unstrip_protocol(path)
            references[name] = [url] if size is None else [url, 0, int(size)]
    text = json.dumps({"version": 1, "refs": references})
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, text)
    return target


def _listed(files: Any, place: str) -> dict[str, Any]:
    """Return {path: information} of all files below a place.

    A server lists one folder a request: those of a level are asked for at once, as each waits.
    """
    if not _is_web(place):
        return dict(files.find(place, detail=True))

    def page(folder: str) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = files.ls(folder, detail=True)
            return entries
        except FileNotFoundError:  # a link that leads nowhere: its chunks are missing
            return []

    inside: dict[str, Any] = {}
    level, seen = [f"{place}/"], {f"{place}/"}
    with ThreadPoolExecutor(_REQUESTS) as pool:
        while level:
            entries = [entry for entries in pool.map(page, level) for entry in entries]
            inside |= {str(e["name"]): e for e in entries if e["type"] == "file"}
            below = (f"{str(e['name']).rstrip('/')}/" for e in entries if e["type"] != "file")
            level = [folder for folder in dict.fromkeys(below) if folder not in seen]
            seen |= {*level}
    return inside


def _copied(files: Any, place: str, target: Path) -> Path:
    """Copy a file, unless the same is there; always if nothing but its size tells versions apart.

    Raises:
        DataError: the copy has another size than the file.
    """
    info = files.info(place)
    stated = {k: str(info[k]) for k in ("size", *_VERSIONS) if info.get(k)}
    tag = _tag_of(target)
    text = json.dumps({**stated, "place": place}, sort_keys=True)
    told = not stated.keys().isdisjoint(_VERSIONS)
    if told and target.is_file() and tag.is_file() and tag.read_text(encoding="utf-8") == text:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary_name(target)
    try:
        files.get_file(place, str(partial))
        size = info.get("size")
        if size is not None and partial.stat().st_size != int(size):
            raise DataError(
                f"{partial.stat().st_size} bytes were received of {size}",
                where=files.unstrip_protocol(place),
                fix="repeat the command",
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    write_atomic(tag, text)
    return target


def _tag_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.tag")
