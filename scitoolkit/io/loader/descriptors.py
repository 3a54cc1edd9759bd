"""LRU cache of open file descriptors.

A process can usually open about a thousand files; a campaign may have tens of thousands.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scitoolkit.core.errors import DataError

MAX_OPEN = 160
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


def too_many_open(error: BaseException) -> bool:
    """Return whether an error means that the limit of open files is reached.

    Libraries of file formats put the errno into the text of their exceptions.
    """
    number = getattr(error, "errno", None)
    return number in _TOO_MANY or any(f"errno = {n}," in str(error) for n in _TOO_MANY)


def limit_reached(path: Path | str) -> DataError:
    """Return the error for a file that cannot be opened because too many others are open."""
    return DataError(
        "cannot be opened: this process, or the machine, has too many open files",
        where=str(path),
        fix="run ulimit -n 4096 before the command",
    )


class DescriptorCache:
    """LRU cache of descriptors for reading; those in use may exceed the limit.

    Args:
        limit: maximum number of descriptors; halved when the system refuses to open one.

    Example:
        >>> import tempfile
        >>> cache = DescriptorCache(limit=2)
        >>> for name in "abc":
        ...     path = Path(tempfile.mkdtemp()) / name
        ...     _ = path.write_bytes(b"x")
        ...     with cache.descriptor(name, str(path)) as number:
        ...         assert os.pread(number, 1, 0) == b"x"
        >>> len(cache)
        2
    """

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self.limit: int = limit
        # Re-entrant, because garbage collection may close a file while the lock is held.
        self._lock = threading.RLock()
        self._open: OrderedDict[object, list[int]] = OrderedDict()  # key: [descriptor, users]

    def __len__(self) -> int:
        """Return the number of open descriptors."""
        return len(self._open)

    @contextmanager
    def descriptor(self, key: object, path: str) -> Iterator[int]:
        """Context manager of a descriptor, which stays open within the context.

        Raises:
            OSError: the file cannot be opened.
            DataError: too many files are open even after closing those of this cache.
        """
        with self._lock:
            if key not in self._open:
                self._shrink(self.limit - 1)
                self._open[key] = [self._opened(path), 0]
            self._open.move_to_end(key)
            entry = self._open[key]
            entry[1] += 1
        try:
            yield entry[0]
        finally:
            with self._lock:
                entry[1] -= 1

    def close(self, key: object) -> None:
        """Close the descriptor of a file, if it is open."""
        with self._lock:
            entry = self._open.pop(key, None)
            if entry is not None:
                os.close(entry[0])

    def make_room(self) -> None:
        """Halve the limit and close descriptors above it, so that libraries can open files."""
        with self._lock:
            self.limit = max(1, min(self.limit, len(self._open)) // 2)
            self._shrink(self.limit - 1)

    def after_fork(self) -> None:
        """Replace the lock in a forked process, where its owner thread may not exist."""
        self._lock = threading.RLock()
        for entry in self._open.values():
            entry[1] = 0

    def _opened(self, path: str) -> int:
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        try:
            return os.open(path, flags)
        except OSError as error:
            if not too_many_open(error):
                raise
            self.make_room()
        try:
            return os.open(path, flags)
        except OSError as error:
            raise limit_reached(path) if too_many_open(error) else error from None

    def _shrink(self, size: int) -> None:
        for key in [k for k, (_, users) in self._open.items() if not users]:
            if len(self._open) <= size:
                return
            with suppress(OSError):
                os.close(self._open.pop(key)[0])


descriptors: DescriptorCache = DescriptorCache()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=descriptors.after_fork)
