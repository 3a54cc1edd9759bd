"""Where offloaded activations are: host memory for those of a GPU, a file for those of a CPU.

The file has no name in its folder, so nothing is left behind when the process is killed. It is
written and read, not mapped into memory: mapped pages count as the process's memory, and a full
disk would end it by a signal instead of an error.
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
    """Memory for bytes that the backward pass needs again.

    Attributes:
        num_bytes: held now.
        blocked: seconds for which reads and writes waited for a disk, in all.
    """

    blocked: float

    @property
    def num_bytes(self) -> int: ...

    def write(self, data: Tensor) -> Stored:
        """Copy a 1-D uint8 tensor."""

    def read(self, stored: Stored) -> Tensor:
        """Return the bytes as a new tensor on the device they came from."""

    def release(self, stored: Stored) -> None:
        """Forget what `write` returned."""


class Stored:
    """Bytes in a place, which are released with this object.

    Attributes:
        where: what the place knows them by.
        num_bytes: of them.
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

    Copies are put into the stream of the computation, so no memory is used again before they end.

    Args:
        device: of the tensors.
    """

    blocked = 0.0

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes held now."""
        return self._num_bytes

    def write(self, data: Tensor) -> Stored:
        """Copy a 1-D uint8 tensor of the device."""
        pinned = self._device.type == "cuda"
        host = torch.empty(data.shape, dtype=torch.uint8, pin_memory=pinned)
        host.copy_(data, non_blocking=pinned)
        self._num_bytes += len(data)
        return Stored(self, host, len(data))

    def read(self, stored: Stored) -> Tensor:
        """Return the bytes on the device."""
        assert isinstance(stored.where, Tensor)
        return stored.where.to(self._device, non_blocking=True, copy=True)

    def release(self, stored: Stored) -> None:
        """Forget bytes."""
        self._num_bytes -= stored.num_bytes


class FileOnDisk:
    """A file for the tensors of a CPU; bytes that the backward pass is done with are overwritten.

    Extents are stacked: the last one written ends the file, and the file is emptied with the last
    of all. The backward pass releases them in nearly the reverse order.

    Args:
        folder: on a disk.

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
                f"files in {folder} are memory ({kind}): nothing would be saved",
                where="training.memory.folder", allowed="a folder on a local disk",
            )  # fmt: skip
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be written ({error.strerror or error})",
                where="training.memory.folder", allowed="a folder on a local disk",
            ) from error  # fmt: skip
        weakref.finalize(self, self._file.close)
        # Releases may run inside any allocation of this thread, also while it holds the lock.
        self._lock = threading.RLock()
        self._extents: dict[int, int] = {}  # first byte -> bytes, in the order of the file
        self._end = 0
        self.blocked = 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes held now."""
        return sum(self._extents.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def write(self, data: Tensor) -> Stored:
        """Append a 1-D uint8 tensor on the CPU.

        Raises:
            DataError: the disk is full, or fails.
        """
        size = len(data)
        with self._lock:
            start = self._end
            self._extents[start] = size
            self._end = start + size
        stored = Stored(self, start, size)
        self._moved(os.pwrite, data.numpy().data, start)
        return stored

    def read(self, stored: Stored) -> Tensor:
        """Return the bytes.

        Raises:
            DataError: the disk fails.
        """
        assert isinstance(stored.where, int)
        out = torch.empty(stored.num_bytes, dtype=torch.uint8)
        self._moved(self._read, out.numpy().data, stored.where)
        return out

    def release(self, stored: Stored) -> None:
        """Let bytes be overwritten."""
        with self._lock:
            del self._extents[stored.where]  # type: ignore[arg-type]
            last = next(reversed(self._extents), None)
            self._end = 0 if last is None else last + self._extents[last]
            if last is None and not self._file.closed:  # collected together, in any order
                self._file.truncate(0)

    @staticmethod
    def _read(descriptor: int, view: memoryview, start: int) -> int:
        return os.preadv(descriptor, [view], start)

    def _moved(self, move: object, view: memoryview, start: int) -> None:
        """Call `move` until a whole view is done: one call moves at most 2 GiB."""
        wall, busy = time.perf_counter(), time.thread_time()
        done = 0
        try:
            while done < len(view):
                count = move(self._file.fileno(), view[done:], start + done)  # type: ignore[operator]
                if count == 0:
                    raise DataError("the file of offloaded activations was cut", where=self._where)
                done += count
        except OSError as error:
            raise DataError(
                f"activations cannot be offloaded ({error.strerror or error}); "
                f"{self.num_bytes / 2**20:.0f} MiB were wanted",
                where=self._where, fix="free space there, or training.memory.folder=ANOTHER",
            ) from error  # fmt: skip
        waited = time.perf_counter() - wall - (time.thread_time() - busy)
        self.blocked += max(waited, 0.0)

    @property
    def _where(self) -> str:
        return str(self._folder)


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on, "" where it is not known.

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
