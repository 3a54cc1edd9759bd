"""On-disk cache of compiled kernels: content-addressed, verified before loading, private.

A library is stored under the SHA-256 digest of its bytes; a note under the key of its source has
that digest. A library is loaded only if its bytes match the digest, so that a truncated or damaged
file is compiled again instead of crashing the process. Since loading executes code, a folder is
used only if the current user (or root) owns it and no other user may write to it. The folder is
checked and the library is loaded through the same open descriptor, so that renaming a parent folder
in between has no effect.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from scitoolkit.core.errors import BackendError
from scitoolkit.core.log import get_logger

try:
    import fcntl
except ImportError:  # no POSIX locks on Windows; atomic renames alone keep the cache consistent
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
DIGEST = re.compile(r"[0-9a-f]{64}")
POSIX = hasattr(os, "geteuid")


def cache_directory() -> Path:
    """Return the folder of compiled kernels: $SCITOOLKIT_CACHE, else $XDG_CACHE_HOME/scitoolkit.

    Example:
        >>> cache_directory().name
        'kernels'
    """
    base = os.environ.get("SCITOOLKIT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) if base else Path(home) / "scitoolkit") / "kernels"


def fallback_directory() -> Path:
    """Return this user's folder in the temporary directory, used if the cache is unusable."""
    user = os.geteuid() if POSIX else "user"
    return Path(tempfile.gettempdir()) / f"scitoolkit-{user}" / "kernels"


def distrust(status: os.stat_result) -> str:
    """Return why libraries must not be loaded from a folder, empty if they may.

    Args:
        status: of the folder.

    Example:
        >>> distrust(os.stat_result((0o40777, 0, 0, 2, 0, 0, 0, 0, 0, 0)))
        'others may write it (mode 777)'
    """
    if not POSIX:
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}, neither to you ({os.geteuid()}) nor to root"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it (mode {mode:o})"
    return ""


class KernelCache:
    """A folder that only the current user may write, with atomic reads and writes of whole files.

    Args:
        folder: the folder; created by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open a descriptor of the folder.

        Raises:
            OSError: no such folder.
            PermissionError: a folder that is not trusted.
        """
        descriptor = os.open(self.folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            reason = distrust(os.fstat(descriptor))
            if reason:
                raise PermissionError(f"kernels are not loaded from {self.folder}: {reason}")
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if the folder or file does not exist.

        Raises:
            PermissionError: a folder that is not trusted.
            OSError: a file that cannot be read.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._opened() as folder:
            file = os.open(name, os.O_RDONLY, dir_fd=folder)
            with open(file, "rb") as handle:
                return handle.read()
        return None

    def load(self, key: str, loader: Callable[[str], T]) -> T | None:
        """Return `loader(path)` of the library stored under a key, or None.

        A library whose bytes do not match the digest in the note counts as not stored.

        Args:
            key: the key passed to `store`.
            loader: opens a shared library by its path.
        """
        digest = (self.read(f"{key}.of") or b"").decode("ascii", "replace")
        if not DIGEST.fullmatch(digest):
            return None
        library = self.read(f"{digest}.so")
        if library is None or hashlib.sha256(library).hexdigest() != digest:
            return None
        with self._opened() as folder:
            through = Path(f"/proc/self/fd/{folder}")
            return loader(str((through if through.exists() else self.folder) / f"{digest}.so"))

    def store(self, key: str, library: bytes) -> None:
        """Store a library, then its note, so that readers never see a partial entry.

        Raises:
            OSError: the folder cannot be written, or is not trusted.
        """
        digest = hashlib.sha256(library).hexdigest()
        self.write(f"{digest}.so", library)
        self.write(f"{key}.of", digest.encode())

    def alias(self, alias: str, key: str) -> None:
        """Store the note of `key` under a second key as well.

        Raises:
            OSError: the folder cannot be written, or is not trusted.
        """
        note = self.read(f"{key}.of")
        if note is not None and self.read(f"{alias}.of") != note:
            self.write(f"{alias}.of", note)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically and durably: fsync of the file, then of its folder.

        Raises:
            OSError: the folder cannot be written, or is not trusted.
        """
        self.make()
        with self._opened() as folder:
            scratch = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
            file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
            try:
                with open(file, "wb") as handle:
                    handle.write(data)
                    handle.flush()
                    os.fsync(handle.fileno())
                os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(scratch, dir_fd=folder)
                raise

    def make(self) -> None:
        """Create the folder with access for the current user only, and check that it is usable.

        Raises:
            OSError: it cannot be created, or is not trusted.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._opened():
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(f"{self.folder} is read-only")

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock under which one process at a time compiles the library of `key`."""
        with open(self.folder / f"{key}.lock", "a") as handle:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(handle, fcntl.LOCK_EX)
            yield  # closing the file releases the lock


def caches() -> list[KernelCache]:
    """Return the caches in order of preference: the configured one, the temporary one."""
    return [KernelCache(cache_directory()), KernelCache(fallback_directory())]


@functools.cache
def _warn(reason: str, where: str) -> None:
    get_logger(__name__).warning("%s. Kernels are stored in %s instead", reason, where)


def first_usable(work: Callable[[KernelCache], T]) -> T:
    """Return `work(cache)` for the first usable cache; log a warning if that is the fallback.

    Args:
        work: function of a cache; an OSError selects the next cache.

    Raises:
        BackendError: no cache is usable; the message has the reason for each.
    """
    reasons: list[str] = []
    for cache in caches():
        try:
            result = work(cache)
        except OSError as error:
            reasons.append(f"kernel cache {cache.folder} cannot be used: {error}")
            continue
        if reasons:
            _warn(reasons[0], str(cache.folder))
        return result
    raise BackendError(
        "; ".join(reasons),
        fix="set SCITOOLKIT_CACHE to a folder with free space that only you may write to",
    )
