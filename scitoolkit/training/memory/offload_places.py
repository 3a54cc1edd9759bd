"""Storage of offloaded activations: host memory for the GPU, a file for the CPU.

The file is unlinked, so nothing remains when the process is killed. It is read and written and not
memory-mapped: mapped pages count as memory of the process, and a full disk would kill the process
by a signal instead of raising an error.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError

# File systems whose files are memory.
_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


class Place(Protocol):
    """Storage of bytes needed by the backward pass.

    Attributes:
        num_bytes: bytes stored now.
        blocked: total seconds spent waiting for the disk.
    """

    blocked: float

    @property
    def num_bytes(self) -> int: ...

    def write(self, data: Tensor) -> StoredBytes:
        """Copy a 1-D uint8 tensor."""

    def read(self, stored: StoredBytes) -> Tensor:
        """Return the bytes as a new tensor on the device they came from."""

    def release(self, stored: StoredBytes) -> None:
        """Release the memory of a result of `write`."""


class StoredBytes:
    """Handle of stored bytes, which are released with this object.

    Attributes:
        where: location of the bytes in the place.
        num_bytes: number of bytes.
    """

    def __init__(self, place: Place, where: object, num_bytes: int) -> None:
        self._place = place
        self.where, self.num_bytes = where, num_bytes

    def value(self) -> Tensor:
        """Return the bytes as a new tensor."""
        return self._place.read(self)

    def __del__(self) -> None:
        self._place.release(self)


class HostMemory:
    """Page-locked host memory for the tensors of a GPU.

    Copies run on the stream of the computation, so memory is not reused before they complete.

    Args:
        device: device of the tensors.
    """

    blocked: float = 0.0

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes stored now."""
        return self._num_bytes

    def write(self, data: Tensor) -> StoredBytes:
        """Copy a 1-D uint8 tensor of the device."""
        pinned = self._device.type == "cuda"
        host = torch.empty(data.shape, dtype=torch.uint8, pin_memory=pinned)
        host.copy_(data, non_blocking=pinned)
        self._num_bytes += len(data)
        return StoredBytes(self, host, len(data))

    def read(self, stored: StoredBytes) -> Tensor:
        """Return the bytes on the device."""
        assert isinstance(stored.where, Tensor)
        return stored.where.to(self._device, non_blocking=True, copy=True)

    def release(self, stored: StoredBytes) -> None:
        """Release bytes."""
        self._num_bytes -= stored.num_bytes


class FileOnDisk:
    """Unlinked file for CPU tensors; released extents are overwritten.

    Extents form a stack: releasing the last ones frees the end of the file, and releasing all
    truncates it. The backward pass releases them in nearly reverse order.

    Args:
        folder: folder on a disk.

    Raises:
        ConfigError: the folder cannot be written, or is in memory.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory(dir=".") as folder:
        ...     place = FileOnDisk(Path(folder))
        ...     stored = place.write(torch.arange(5, dtype=torch.uint8))
        ...     print(stored.value().tolist(), place.num_bytes, os.listdir(folder))
        [0, 1, 2, 3, 4] 5 []
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if (kind := file_system(folder)) in _MEMORY:
            raise ConfigError(
                f"files in {folder} are in memory ({kind}): offloading would not save any",
                where="training.memory.folder",
                allowed="a folder on a local disk",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be written ({error.strerror or error})",
                where="training.memory.folder",
                allowed="a folder on a local disk",
            ) from error
        weakref.finalize(self, self._file.close)
        # A garbage collection may release extents while this thread holds the lock.
        self._lock = threading.RLock()
        self._extents: dict[int, int] = {}  # first byte -> bytes, in the order of the file
        self._end = 0
        self.blocked = 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes stored now."""
        return sum(self._extents.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def write(self, data: Tensor) -> StoredBytes:
        """Append a 1-D uint8 tensor on the CPU.

        Raises:
            DataError: the disk is full, or fails.
        """
        size = len(data)
        with self._lock:
            start = self._end
            self._extents[start] = size
            self._end = start + size
        stored = StoredBytes(self, start, size)
        self._moved(os.pwrite, data.numpy().data, start)
        return stored

    def read(self, stored: StoredBytes) -> Tensor:
        """Return the bytes.

        Raises:
            DataError: the disk fails.
        """
        assert isinstance(stored.where, int)
        out = torch.empty(stored.num_bytes, dtype=torch.uint8)
        self._moved(self._read, out.numpy().data, stored.where)
        return out

    def release(self, stored: StoredBytes) -> None:
        """Allow the bytes to be overwritten."""
        with self._lock:
            del self._extents[stored.where]  # type: ignore[arg-type]
            last = next(reversed(self._extents), None)
            self._end = 0 if last is None else last + self._extents[last]
            if last is None and not self._file.closed:  # may be finalised in any order
                self._file.truncate(0)

    @staticmethod
    def _read(descriptor: int, view: memoryview, start: int) -> int:
        return os.preadv(descriptor, [view], start)

    def _moved(self, move: object, view: memoryview, start: int) -> None:
        """Call `move` until the whole view is transferred; one call transfers at most 2 GiB."""
        wall, busy = time.perf_counter(), time.thread_time()
        done = 0
        try:
            while done < len(view):
                count = move(self._file.fileno(), view[done:], start + done)  # type: ignore[operator]
                if count == 0:
                    raise DataError("the file of activations was truncated", where=self._where)
                done += count
        except OSError as error:
            raise DataError(
                f"activations cannot be offloaded ({error.strerror or error}); "
                f"{self.num_bytes / 2**20:.0f} MiB were needed",
                where=self._where,
                fix="free space there, or training.memory.folder=ANOTHER",
            ) from error
        waited = time.perf_counter() - wall - (time.thread_time() - busy)
        self.blocked += max(waited, 0.0)

    @property
    def _where(self) -> str:
        return str(self._folder)


def file_system(folder: Path) -> str:
    """Return the file-system type of a folder, "" if unknown.

    Example:
        >>> file_system(Path("/dev/shm")) if Path("/dev/shm").exists() else "tmpfs"
        'tmpfs'
    """
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    path, best, kind = folder.resolve(), -1, ""
    for line in mounts.read_text().splitlines():
        _, at, name, *_ = line.split()
        point = Path(at.encode().decode("unicode_escape"))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), name
    return kind
