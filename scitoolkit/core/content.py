"""Locations of the shipped datasets, surrogates and workflows: a clone, fetched files, or cards.

A wheel contains the cards and the workflows' YAML in one archive, unpacked at first use, and
`manifest.json`, which lists every shipped file, with the SHA-256 of those that are not in it;
`fetch_content` copies all of them from a source distribution or a clone.
"""

from __future__ import annotations

import atexit
import glob
import hashlib
import json
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.remote import local_path, url_of
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.unpacking import unpack

KINDS = ("datasets", "surrogates", "workflows")
FOLDER_VARIABLE = "SCITOOLKIT_CONTENT"
_PACKAGE = Path(__file__).resolve().parents[1]
_MANIFEST = _PACKAGE / "_content" / "manifest.json"
_CARDS = "cards.tar.xz"
"""File beside the manifest. One by one, its files take more than twice the space in a wheel."""
_CARD = re.compile(rf"({'|'.join(KINDS)})(/[\w-][\w.-]*)+")


def content_root(kind: str) -> Path:
    """Return the folder of one kind of content.

    Raises:
        ConfigError: `kind` is not datasets, surrogates or workflows.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"unknown kind {kind!r}", allowed=", ".join(KINDS), fix=nearest_name(kind, KINDS) or ""
        )
    if not _MANIFEST.is_file():
        return _PACKAGE.parent / kind
    fetched = fetched_folder()
    return (fetched if fetched.is_dir() else _cards()) / kind


def list_content(kind: str) -> list[str]:
    """Return the names of one kind of content."""
    root = content_root(kind)
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if p.is_dir() and (p / "README.md").is_file())


def find_content(kind: str, name: str, *, card: bool = False) -> Path:
    """Return the folder `kind/name`; `name` may also be a path, or start with `kind/`.

    Args:
        kind: datasets, surrogates or workflows.
        name: name or path.
        card: only the card is required; otherwise the files must be installed too.

    Raises:
        ConfigError: it does not exist; the message lists the known names.
        DataError: only its card is installed, and it is no workflow.
    """
    direct = Path(name)
    if direct.exists():
        return direct
    short = name.removeprefix(f"{kind}/").strip("/")
    path = content_root(kind) / short
    if not path.exists():
        names = list_content(kind)
        raise ConfigError(
            f"no {kind.removesuffix('s')} {name!r}",
            allowed=", ".join(names),
            fix=nearest_name(short, names) or "",
        )
    # The YAML of workflows comes with the wheel: they run on a user's files without other content.
    if not card and kind != "workflows" and _is_card(path):
        raise _only_card(f"{kind}/{short}")
    return path


def shipped_path(path: os.PathLike[str] | str, base: Path = Path()) -> Path:
    """Return the path, or its counterpart in the shipped content if only that exists.

    Args:
        path: a file, folder or pattern, relative to `base`; one that starts with datasets/,
            surrogates/ or workflows/ is found from any folder, in which a file of this name takes
            precedence. Of a URL, what is local of it, see `core.remote`.
        base: by default the working directory.

    Raises:
        DataError: it is shipped, but only its card is installed; or it is no path.

    Example:
        >>> shipped_path("datasets/cora/cora.npz").name, shipped_path("my.nc").name
        ('cora.npz', 'my.nc')
    """
    if not isinstance(path, str | os.PathLike):
        raise DataError(
            f"a {type(path).__name__} is no path",
            allowed="the path of one file or folder",
            fix="a folder of several files; data in memory are saved to a file",
        )
    if url := url_of(path):
        return local_path(url)
    path = Path(path)
    here = base / path
    if _is_card(here):  # stated beside a workflow of the wheel
        path = here.relative_to(_cards())
    if path.parts[:1] not in {(kind,) for kind in KINDS} or _matches(here):
        return here
    root = content_root(path.parts[0]).parent
    if _is_card(root) and any(_is_below(Path(name), path) for name in _manifest()):
        raise _only_card(path.as_posix())
    return root / path if _matches(root / path) else here


def _is_card(path: Path) -> bool:
    """Return whether a path lies among the cards of a wheel whose other files are not fetched."""
    return _MANIFEST.is_file() and path.is_relative_to(_cards())


@cache
def _cards() -> Path:
    """Return the folder of the cards of a wheel, unpacked beside the files that would be fetched.

    Raises:
        DataError: the archive is damaged.
    """
    archive = _MANIFEST.with_name(_CARDS)
    digest = _sha256(archive)[:12]
    folder = fetched_folder().with_name(f"cards-{digest}")
    try:
        if not folder.is_dir():
            _unpack(archive, folder)
    except OSError:  # no folder that may be written: this process has its own
        private = tempfile.mkdtemp(prefix="scitoolkit-cards-")
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        folder = Path(private) / "cards"
        _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    try:
        unpack(archive, folder, _CARD)
    except (tarfile.TarError, EOFError, lzma.LZMAError) as error:
        raise _damaged(archive, error) from None


def _digests_of_cards(archive: Path) -> dict[str, str]:
    if not archive.is_file():
        return {}
    try:
        with tarfile.open(archive) as cards:
            streams = {m.name: cards.extractfile(m) for m in cards if m.isfile()}
            return {n: hashlib.sha256(s.read()).hexdigest() for n, s in streams.items() if s}
    except (tarfile.TarError, EOFError, lzma.LZMAError) as error:
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    return DataError(
        f"damaged archive of cards ({error})",
        where=str(archive),
        fix="pip install --force-reinstall --no-deps FILE, the wheel that was installed",
    )


def _matches(path: Path) -> bool:
    text = str(path)
    pattern = glob.has_magic(text) and next(glob.iglob(text, recursive=True), None)
    return bool(pattern) or path.exists()


def _is_below(path: Path, folder: Path) -> bool:
    """Return whether a path is, or is below, a folder, whose name may be a pattern."""
    return any(parent.match(str(folder)) for parent in (path, *path.parents))


def _only_card(where: str) -> DataError:
    return DataError(
        "only the card is installed; the wheel does not contain data and weights",
        where=where,
        fix="scitoolkit fetch SOURCE: the release's source archive (path or https), or a clone",
    )


def dataset_path(name: str) -> Path:
    """Return the folder of a shipped dataset, in a clone or after `scitoolkit fetch`.

    Args:
        name: a name listed by `scitoolkit ls datasets`, or a file in it, such as "cora/cora.npz".

    Raises:
        ConfigError: there is no such dataset or file.
        DataError: only its card is installed.

    Example:
        >>> dataset_path("cora/cora.npz").name
        'cora.npz'
    """
    return find_content("datasets", name)


def fetched_folder() -> Path:
    """Return the folder in which `fetch_content` stores the files of this package version."""
    base = os.environ.get(FOLDER_VARIABLE)
    if base is None:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        base = str(Path(data) / "scitoolkit")
    cards = _sha256(_MANIFEST.with_name(_CARDS)).encode()
    digest = hashlib.sha256(_MANIFEST.read_bytes() + cards).hexdigest()
    return Path(base) / f"content-{digest[:12]}"


def fetch_content(source: Path) -> Path:
    """Copy the shipped files from a source archive or a clone and verify their SHA-256.

    If any file is missing or differs, nothing is installed.

    Args:
        source: a .tar.gz with one top-level folder (a source distribution or release archive), or
            a folder that holds datasets/, surrogates/ and workflows/.

    Returns:
        The folder of the installed files; repeated calls return it immediately.

    Raises:
        DataError: a file is missing or differs from this version's, or the source is unreadable.
    """
    if not _MANIFEST.is_file():
        return _PACKAGE.parent
    target = fetched_folder()
    if target.is_dir():
        return target
    # The manifest has no digest of the cards, which are in the wheel themselves.
    wanted = _manifest() | _digests_of_cards(_MANIFEST.with_name(_CARDS))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch) / "content"
        for name, stream in _files_of(source):
            if name in wanted and not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with (folder / name).open("wb") as out:
                    _copy(stream, out, source)
        wrong = [name for name, digest in wanted.items() if _sha256(folder / name) != digest]
        if wrong:
            raise DataError(
                f"{len(wrong)} of {len(wanted)} files are missing or differ, such as {wrong[0]}",
                where=str(source),
                fix="take the source archive of the version that `scitoolkit --version` prints",
            )
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():  # another process fetched meanwhile
                raise
    return target


def _copy(stream: IO[bytes], out: IO[bytes], source: Path) -> None:
    """Copy a file of an archive.

    Raises:
        DataError: the archive is cut short or damaged there.
    """
    try:
        shutil.copyfileobj(stream, out)
    except (EOFError, lzma.LZMAError, tarfile.TarError, zlib.error) as error:
        raise DataError(
            f"a damaged archive: {error}", where=str(source), fix="copy or download it again"
        ) from None


@cache
def _manifest() -> dict[str, str]:
    return dict(json.loads(_MANIFEST.read_text(encoding="utf-8")))


def _sha256(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _files_of(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name relative to the top-level folder and the open stream of every file."""
    if source.is_dir():
        for name in _manifest():
            if (source / name).is_file():
                with (source / name).open("rb") as file:
                    yield name, file
        return
    try:
        with tarfile.open(source, "r:*") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield name, stream
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"not a readable archive or folder: {error}",
            where=str(source),
            allowed="a .tar.gz with one top-level folder, or a clone",
        ) from error
