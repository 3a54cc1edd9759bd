"""Binary file for the HDF5 library, which can crash in any call after a write that failed."""

from __future__ import annotations

import os
from pathlib import Path


class UnfailingFile:
    """New binary file whose writes never fail; `check` raises the error of the first that did.

    Blocks that could not be written are kept in memory and are read from there, so that HDF5 stays
    consistent and can close the file. Call `check` between writes, so that these blocks are few.
    An interruption during a write is such an error too: HDF5 would take it for a failed write.

    Args:
        path: the file to create.

    Attributes:
        error: of the first write that failed or was interrupted.

    Raises:
        OSError: the file cannot be created.

    Example:
        >>> import tempfile
        >>> file = UnfailingFile(Path(tempfile.mkdtemp()) / "a")
        >>> file.write(b"abc")
        3
        >>> file.seek(1), file.readinto(found := bytearray(2)), bytes(found)
        (1, 2, b'bc')
        >>> file.close()
    """

    error: OSError | KeyboardInterrupt | None

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self.error = None
        self._place = self._size = 0
        self._kept: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise the error of the first write that failed."""
        if self.error is not None:
            raise self.error

    def tell(self) -> int:
        """Return the position."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Read into a buffer; return the number of bytes."""
        view, begin = memoryview(buffer).cast("B"), self._place
        count = max(0, min(len(view), self._size - begin))
        view[:count] = bytes(count)  # blocks that only memory holds may be followed by a gap
        done = 0
        while done < count and (part := os.pread(self._file, count - done, begin + done)):
            view[done : done + len(part)] = part
            done += len(part)
        for place, block in self._kept:
            low, high = max(place, begin), min(place + len(block), begin + count)
            if low < high:
                view[low - begin : high - begin] = block[low - place : high - place]
        self._place += count
        return count

    def read(self, count: int = -1) -> bytes:
        """Return up to `count` bytes, by default all that follow."""
        buffer = bytearray(max(0, self._size - self._place) if count < 0 else count)
        return bytes(buffer[: self.readinto(buffer)])

    def write(self, data: bytes | memoryview) -> int:
        """Write, or keep in memory what cannot be written; return the number of bytes."""
        view, done = memoryview(data).cast("B"), 0
        try:
            while self.error is None and done < len(view):
                done += os.pwrite(self._file, view[done:], self._place + done)
        except (OSError, KeyboardInterrupt) as error:
            self.error = error
        if done < len(view):
            self._kept.append((self._place + done, bytes(view[done:])))
        self._place += len(view)
        self._size = max(self._size, self._place)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the size and return it."""
        self._size = self._place if size is None else size
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self.error = self.error or error
        return self._size

    def flush(self) -> None:
        """Return; nothing is buffered."""

    def close(self) -> None:
        """Close the file; its owner flushes it to the disk before it gets its final name."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
