"""Models by name and version from an index: a folder, the same folder behind an HTTP server, or a
hub of repositories.

    index.json                       names and versions: {"models": {NAME: [VERSION, ...]}}
    models/NAME/VERSION/entry.json   files with size and SHA-256, licence, date
    models/NAME/VERSION/...          configuration, weights, facts of the data, README.md

`hf://OWNER` is an account of the Hugging Face Hub, or of the server in $HF_ENDPOINT: a model is the
repository OWNER/NAME, a version is a tag, and the files lie in its root.

A version is never replaced. Files are checked before a model is used, and kept in a cache, from
which a model opens without the index.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import disk_error, write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name

log = get_logger(__name__)
VARIABLE = "SCITOOLKIT_INDEX"
"""Environment variable with the folder or URL of the index."""
HUB = "hf://"
ENDPOINT, TOKEN = "HF_ENDPOINT", "HF_TOKEN"
"""Environment variables of huggingface_hub: address of the hub, and a token for private models."""
ENTRY, INDEX, CARD = "entry.json", "index.json", "README.md"
MOST_TEXT = 4 << 20
"""Bytes of `index.json` and `entry.json` that are read; a longer one is refused."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PIECE = 1 << 20
TELL_OWNER = "fetch again; if it stays so, tell the owner of the index"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_reference(text: str) -> bool:
    """Return whether a text is `NAME@VERSION`, and no path.

    Example:
        >>> is_reference("flow@1.2"), is_reference("runs/flow"), is_reference("a/b@1")
        (True, False, False)
    """
    name, sign, version = text.partition("@")
    return bool(sign and _NAME.fullmatch(name) and (not version or _NAME.fullmatch(version)))


def add_model(
    index: Path | str, model: Path, name: str, version: str, *, licence: str, facts: dict[str, Any]
) -> Path | str:
    """Copy the files of a model into an index as a new version.

    Args:
        index: folder of the index, created if necessary, or `hf://OWNER`.
        model: folder with the files.
        name: of the model: letters, digits, `_`, `.` and `-`.
        version: of the model, with the same characters.
        licence: SPDX identifier of the licence of the weights.
        facts: JSON values stored with the version.

    Returns:
        The folder of the version; of a hub, its address.

    Raises:
        BackendError: huggingface_hub is needed and not installed.
        ConfigError: a name or version with other characters, no licence, a version that exists, or
            an index that cannot be written.
        DataError: the hub refuses.
    """
    for what, text in (("name", name), ("version", version)):
        if not _NAME.fullmatch(text):
            raise ConfigError(f"{what} {text!r}", allowed="letters, digits and _ . -")
    if not licence.strip():
        raise ConfigError("no licence", where=f"{name}@{version}", fix="--licence CC-BY-4.0")
    on_hub = str(index).startswith(HUB)
    if "://" in str(index) and not on_hub:
        raise ConfigError(
            f"{index}: an index behind a server cannot be written",
            fix="--to FOLDER, the folder that the server shows",
        )
    target = Path(index) / "models" / name / version
    if not on_hub:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=None if on_hub else target.parent, prefix=".new-"
    ) as scratch:
        staged = Path(scratch) / "version"
        staged.mkdir()
        for file in sorted(p for p in Path(model).iterdir() if p.is_file() and p.name != ENTRY):
            shutil.copyfile(file, staged / file.name)
        if on_hub:
            _head_card(staged / CARD, licence)
        entry = {
            "name": name,
            "version": version,
            "licence": licence,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "files": {p.name: _described(p) for p in sorted(staged.iterdir())},
            **facts,
        }
        write_atomic(staged / ENTRY, json.dumps(entry, indent=1) + "\n")
        if on_hub:
            from scitoolkit.core.model_hub import upload

            return upload(staged, str(index).removeprefix(HUB), name, version)
        try:
            staged.rename(target)
        except OSError:
            if not target.exists():
                raise
            raise ConfigError(
                f"version {version} of {name} exists already",
                where=str(index),
                fix="publish another version; a published one is never replaced",
            ) from None
    _write_index(Path(index))
    return target


def _head_card(card: Path, licence: str) -> None:
    """Write the head that the hub reads: licence and library, by which it lists models."""
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    if not text.startswith("---\n"):
        head = f"---\nlicense: {json.dumps(licence.lower())}\nlibrary_name: scitoolkit\n---\n\n"
        write_atomic(card, head + text)


def open_model(reference: str, index: Path | str | None = None) -> Path:
    """Return the folder of `NAME@VERSION`, fetched from an index and verified.

    Args:
        reference: name and version; `NAME@` is the newest version.
        index: folder, URL or `hf://OWNER`; by default the environment variable
            `SCITOOLKIT_INDEX`.

    Raises:
        ConfigError: no index, no such name or version, or a URL that is not https.
        DataError: a file that is missing, larger than stated, or differs from its SHA-256, or an
            index that cannot be read while the model is not in the cache.
    """
    name, _, version = reference.partition("@")
    source = str(index or os.environ.get(VARIABLE, ""))
    if not source:
        raise ConfigError(
            "no index of models", where=reference, fix=f"export {VARIABLE}=FOLDER-OR-URL"
        )
    _require_safe(source)
    cache = cache_folder(source) / name
    if version and (cache / version / ENTRY).is_file():  # versions never change
        return cache / version
    versions = _versions_on_hub(source, name) if _on_hub(source) else _versions(source, name)
    version = version or versions[-1]
    if version not in versions:
        raise ConfigError(
            f"no version {version!r} of {name}",
            where=source,
            allowed=", ".join(versions),
            fix=f"{name}@{versions[-1]}",
        )
    if (cache / version / ENTRY).is_file():
        return cache / version
    return _fetched(source, name, version, cache / version)


def _versions(source: str, name: str) -> list[str]:
    """Return the versions of a model that an index lists, oldest first."""
    names = _json(source, INDEX).get("models")
    if not isinstance(names, dict):
        raise DataError(
            "not an index of models", where=f"{source}/{INDEX}", fix="scitoolkit publish makes one"
        )
    if name not in names:
        raise ConfigError(
            f"no model {name!r}",
            where=source,
            allowed=", ".join(sorted(map(str, names))),
            fix=f"{near}@" if (near := nearest_name(name, list(names))) else "",
        )
    versions = names[name]
    if not isinstance(versions, list) or not versions:
        raise DataError(f"no list of versions of {name}", where=f"{source}/{INDEX}", fix=TELL_OWNER)
    return [str(version) for version in versions]


def _versions_on_hub(source: str, name: str) -> list[str]:
    """Return the tags of a model's repository, oldest first."""
    path = f"api/models/{source.removeprefix(HUB)}/{name}/refs"
    tags = _json(source, path).get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, dict) for tag in tags):
        raise DataError("no list of tags", where=f"{source}/{name}", fix=_check(source))
    versions = [str(tag.get("name")) for tag in tags]
    versions = sorted(filter(_NAME.fullmatch, versions), key=_version_key)
    if not versions:
        raise ConfigError(
            "a repository without tags, which are the versions",
            where=f"{source}/{name}",
            fix=f"scitoolkit publish RUN {name}@1.0 --to {source}",
        )
    return versions


def _on_hub(source: str) -> bool:
    return source.startswith(HUB)


def _base(source: str) -> str:
    """Return the folder or URL to which the paths of files are relative."""
    if not _on_hub(source):
        return source.rstrip("/")
    return os.environ.get(ENDPOINT, "https://huggingface.co").rstrip("/")


def cache_folder(source: str) -> Path:
    """Return the folder in which models of an index are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # Equal relative paths in two working directories are two indices.
    place = source.rstrip("/") if "://" in source else str(Path(source).resolve())
    digest = hashlib.sha256(place.encode()).hexdigest()
    return Path(base) / "scitoolkit" / "models" / digest[:12]


def _fetched(source: str, name: str, version: str, target: Path) -> Path:
    owner = source.removeprefix(HUB)
    place = f"{owner}/{name}/resolve/{version}" if _on_hub(source) else f"models/{name}/{version}"
    entry = _json(source, f"{place}/{ENTRY}")
    files = entry.get("files")
    if not isinstance(files, dict) or (entry.get("name"), entry.get("version")) != (name, version):
        raise DataError(
            "not the entry of this model", where=f"{source}/{place}/{ENTRY}", fix=TELL_OWNER
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        staged = Path(scratch) / "version"
        staged.mkdir()
        for file, about in files.items():
            if not _NAME.fullmatch(str(file)) or file == ENTRY:  # no folders, no `..`
                raise DataError(
                    f"a file named {file!r}", where=f"{source}/{place}/{ENTRY}", fix=TELL_OWNER
                )
            _fetch_file(source, f"{place}/{file}", about, staged / file)
        write_atomic(staged / ENTRY, json.dumps(entry, indent=1) + "\n")
        try:
            staged.rename(target)
        except OSError:
            if not target.exists():  # another process fetched meanwhile
                raise
    log.info("%s@%s fetched from %s, licence %s", name, version, source, entry.get("licence"))
    return target


def _fetch_file(source: str, path: str, about: Any, target: Path) -> None:
    where = f"{source}/{path}"
    try:
        size, wanted = int(about["bytes"]), str(about["sha256"])
    except (KeyError, TypeError, ValueError):
        raise DataError("no size and SHA-256 in the entry", where=where, fix=TELL_OWNER) from None
    digest, count = hashlib.sha256(), 0
    with target.open("wb") as out, _opened(source, path) as stream:
        while piece := stream.read(_PIECE):
            count += len(piece)
            if count > size:
                break
            digest.update(piece)
            try:
                out.write(piece)
                out.flush()  # an error on closing would be taken for one of the index
            except OSError as error:
                raise disk_error(error, target.parent.parent, "XDG_CACHE_HOME") from None
    if count != size or digest.hexdigest() != wanted:
        raise DataError(
            f"differs from its SHA-256 or its {size} bytes",
            where=where,
            fix=TELL_OWNER,
        )


def _json(source: str, path: str) -> dict[str, Any]:
    where = f"{source}/{path}"
    with _opened(source, path) as stream:
        data = stream.read(MOST_TEXT + 1)
    try:
        if len(data) > MOST_TEXT:
            raise ValueError(f"more than {MOST_TEXT} bytes")
        parsed = json.loads(data)
        if not isinstance(parsed, dict):
            raise ValueError("no object")
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({str(error)[:100]})", where=where, fix=_check(source)) from None
    return parsed


@contextmanager
def _opened(source: str, path: str) -> Iterator[IO[bytes]]:
    where = f"{source}/{path}"
    try:
        if "://" in source:
            request = urllib.request.Request(f"{_base(source)}/{urllib.parse.quote(path)}")
            if _on_hub(source) and (token := os.environ.get(TOKEN)):
                # Not sent on to the storage to which a hub redirects.
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            with urllib.request.urlopen(request, timeout=60) as stream:
                _require_safe(stream.geturl())
                yield stream
        else:
            with (Path(source) / path).open("rb") as file:
                yield file
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"cannot be read ({error})", where=where, fix=_check(source)) from None


def _check(source: str) -> str:
    return f"check {VARIABLE}" + (f", and {TOKEN} for a private model" if _on_hub(source) else "")


def _require_safe(source: str) -> None:
    """Raise ConfigError for a URL that is neither https nor on this machine."""
    if _on_hub(source):
        owner = source.removeprefix(HUB)
        if not _NAME.fullmatch(owner):
            raise ConfigError(f"{source!r} names no account", allowed=f"{HUB}OWNER")
        source = _base(source)
    if "://" not in source:
        return
    parts = urllib.parse.urlsplit(source)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        raise ConfigError(
            f"{source}: not an https address", allowed=f"https://..., {HUB}OWNER, or a folder"
        )


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _write_index(index: Path) -> None:
    """Write `index.json` from the folders, one writer at a time: the last one sees all."""
    with (index / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_atomic(index / INDEX, json.dumps(_listed(index), indent=1) + "\n")


def _listed(index: Path) -> dict[str, Any]:
    models: dict[str, list[str]] = {}
    for entry in sorted((index / "models").glob("*/*/" + ENTRY)):
        version = entry.parent
        if _NAME.fullmatch(version.name) and _NAME.fullmatch(version.parent.name):
            models.setdefault(version.parent.name, []).append(version.name)
    for versions in models.values():
        versions.sort(key=_version_key)
    return {"format": 1, "models": models}


def _version_key(version: str) -> list[tuple[int, int, str]]:
    """Order versions by their numbers: 1.10 after 1.9."""
    parts = re.split(r"[._-]", version)
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts]
