"""The trial log: JSON lines, appended and flushed to disk, from which a search is rebuilt.

Every line is one event. What a search knows is a function of the sequence of events alone, so a
search killed at any moment continues as if it had not been. A last line cut short by the crash
is dropped. JSON lines and not SQLite: a write-ahead log needs shared memory, which network file
systems of clusters do not have.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import CheckpointError, ScitoolkitError
from scitoolkit.core.run_directory import disk_error

FILE_NAME = "trials.jsonl"
Event = dict[str, Any]


class LogLocked(ScitoolkitError):
    """Another manager writes this log."""


class TrialLog:
    """Appends events to `directory/trials.jsonl`; one process at a time may hold it.

    A kill of the process loses nothing that was appended; a crash of the machine at most what was
    appended in the last flush of the disk (milliseconds), because flushing goes on in a thread of
    its own: a manager of a thousand workers must not wait for a disk. `close` waits for it.

    Args:
        directory: the run directory of the search.

    Raises:
        LogLocked: another manager holds it.
        CheckpointError: a line in the middle cannot be read.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with TrialLog(folder) as log:
        ...     log.append([{"event": "issue", "trial": 0}])
        >>> read_events(folder)
        [{'event': 'issue', 'trial': 0}]
    """

    events: list[Event]

    def __init__(self, directory: Path) -> None:
        self.path: Path = Path(directory) / FILE_NAME
        try:
            self._lock = self._take_lock()
            self.events, end = _read(self.path)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
        except OSError as error:
            raise disk_error(error, self.path) from None
        self._end = end
        self._flusher = _Flusher(self._file)

    def append(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Write events; they are on their way to the disk when this returns.

        Raises:
            ScitoolkitError: the disk is full or gone; the log is as it was before the call.
        """
        data = b"".join(
            json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
            for event in events
        )
        if not data:
            return
        try:
            self._flusher.check()
            _write_all(self._file, data)
        except OSError as error:
            # Half a line would be taken for the crash of a writer: leave none behind.
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise disk_error(error, self.path) from None
        self._end += len(data)
        self._flusher.wanted.set()

    def close(self) -> None:
        """Close the file and let others have it.

        Raises:
            ScitoolkitError: the last events did not reach the disk.
        """
        if self._file < 0:
            return
        self._flusher.finish()
        os.close(self._file)
        os.close(self._lock)
        self._file = -1
        try:
            self._flusher.check()
        except OSError as error:
            raise disk_error(error, self.path) from None

    def __enter__(self) -> TrialLog:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _take_lock(self) -> int:
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 200).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise LogLocked(
                f"another search is writing this log ({holder})",
                where=str(self.path),
                fix="wait for it, stop it, or use another run directory",
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return lock


class _Flusher:
    """Flushes a file to the disk whenever that is wanted, in a separate thread."""

    def __init__(self, file: int) -> None:
        self._file, self._end = file, False
        self._error: OSError | None = None
        self.wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what the last flush met with, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finish(self) -> None:
        """Flush what is left and end."""
        self._end = True
        self.wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.wanted.wait()
            self.wanted.clear()
            end = self._end
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._error = error
            if end:
                return


def read_events(directory: Path) -> list[Event]:
    """Return the events of a log without locking it: for reports, also of a running search."""
    return _read(Path(directory) / FILE_NAME)[0]


def _read(path: Path) -> tuple[list[Event], int]:
    """Return all whole events and the offset after the last one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    events: list[Event] = []
    end = 0
    for number, line in enumerate(_lines(data), start=1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or "event" not in event:
                raise ValueError("not an event")
        except ValueError as error:
            if end + len(line) >= len(data):
                break
            raise CheckpointError(
                f"a line that is no event ({error})", where=f"{path}:{number}",
                fix="restore the file; only its last line may be incomplete",
            ) from None  # fmt: skip
        events.append(event)
        end += len(line)
    return events, end


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while (stop := data.find(b"\n", start)) >= 0:
        yield data[start : stop + 1]
        start = stop + 1


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
