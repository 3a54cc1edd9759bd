"""Positional reads of files from any thread or process, with detection of changes.

HDF5 returns zeros without an error when it reads beyond the end of a truncated file, so the length
of every read is checked here. Reads use `preadv`, which does not share a file position: threads
need no lock, and a forked process can continue to use the descriptor. The number of open files is
bounded; a file that is reopened must be unchanged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.loader.descriptors import descriptors

_logger = get_logger(__name__)
_PROBES, _PROBE_BYTES = 5, 1 << 20


class Counter:
    """Thread-safe counter of requests and bytes.

    Example:
        >>> counter = Counter()
        >>> counter.add(requests=2, nbytes=100)
        >>> counter.requests, counter.nbytes
        (2, 100)
    """

    requests: int
    nbytes: int

    def __init__(self) -> None:
        self.requests = self.nbytes = 0
        self._lock = threading.Lock()

    def add(self, requests: int, nbytes: int) -> None:
        """Add requests and the bytes that they returned."""
        with self._lock:
            self.requests += requests
            self.nbytes += nbytes

    def __getstate__(self) -> tuple[int, int]:
        return self.requests, self.nbytes

    def __setstate__(self, state: tuple[int, int]) -> None:
        self.requests, self.nbytes = state
        self._lock = threading.Lock()


class DataFile:
    """File with counted positional reads.

    Args:
        path: the file.

    Attributes:
        size: size in bytes when the file was first opened.
        counter: of requests and bytes.

    Raises:
        DataError: the file cannot be opened.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "raw"
        >>> _ = path.write_bytes(b"0123456789")
        >>> DataFile(path).read(4, 3).tobytes()
        b'456'
    """

    def __init__(self, path: Path | str) -> None:
        self.path: str = str(Path(path).absolute())
        self.counter: Counter = Counter()
        self._warned = False
        with self._descriptor() as descriptor:
            status = os.fstat(descriptor)
        self.size: int = status.st_size
        self._modified = status.st_mtime_ns
        self._inode = (status.st_dev, status.st_ino)

    @contextmanager
    def _descriptor(self) -> Iterator[int]:
        """Context manager of the file's descriptor."""
        key = id(self)
        try:
            with descriptors.descriptor(key, self.path) as descriptor:
                yield descriptor
        except OSError as error:
            raise DataError(f"cannot be opened ({error.strerror})", where=self.path) from None

    def read(self, offset: int, count: int) -> np.ndarray:
        """Return `count` bytes from `offset` on, (count,) uint8.

        Raises:
            DataError: the file ends earlier, or reading fails.
        """
        out = np.empty(count, np.uint8)
        self.read_into(offset, out)
        return out

    def read_into(self, offset: int, out: np.ndarray) -> None:
        """Read from `offset` into `out` (uint8, contiguous); raises like `read`."""
        view, done, requests = out.data, 0, 0
        with self._descriptor() as descriptor:
            # preadv may return less than asked for: at most 2^31 - 4096 bytes on Linux.
            while done < len(out):
                try:
                    got = os.preadv(descriptor, [view[done:]], offset + done)
                except OSError as error:
                    last = offset + len(out) - 1
                    raise DataError(
                        f"bytes {offset} to {last} cannot be read ({error.strerror})",
                        where=self.path,
                    ) from None
                requests += 1
                if not got:
                    raise self._too_short(os.fstat(descriptor).st_size, offset + done)
                done += got
        self.counter.add(requests, len(out))

    def probe(self) -> tuple[float, float]:
        """Return the latency (s) of a small read and the bandwidth (bytes/s) of a large one."""
        large = min(self.size, _PROBE_BYTES)
        small = []
        with self._descriptor() as descriptor:
            # Far apart, so that the read-ahead of the system does not serve one probe from another.
            for part in range(_PROBES):
                begin = time.perf_counter()
                os.pread(descriptor, 1, self.size * part // _PROBES)
                small.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            os.pread(descriptor, large, self.size - large)
            seconds = time.perf_counter() - begin
        latency = sorted(small)[_PROBES // 2]
        return latency, large / max(seconds - latency, 1e-9)

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced; warn once of other changes."""
        with self._descriptor() as descriptor:
            status = os.fstat(descriptor)
        if status.st_size < self.size:
            raise self._too_short(status.st_size, status.st_size)
        changed = (status.st_size, status.st_mtime_ns) != (self.size, self._modified)
        # Programs replace a file by renaming another one, which has another inode.
        if changed and (status.st_dev, status.st_ino) != self._inode:
            raise DataError("was replaced by another file while being read", where=self.path)
        if self._warned:
            return
        if status.st_nlink == 0:
            self._warned = True
            _logger.warning("%s was removed while being read; reading continues", self.path)
        elif status.st_mtime_ns != self._modified:
            self._warned = True
            _logger.warning("%s is being written while being read", self.path)

    def _too_short(self, now: int, end: int) -> DataError:
        return DataError(
            f"the file was truncated while open: it had {self.size} bytes and has {now}; "
            f"nothing can be read at {end}",
            where=self.path,
            fix="copy or make the file again",
        )

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        descriptors.close(id(self))

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.check()
