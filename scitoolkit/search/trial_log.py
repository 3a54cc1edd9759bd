"""Trial log: append-only JSON lines from which a search is rebuilt.

Every line is one event: `open`, `resume`, `issue`, `finish`, `interrupt` or `state`. The state of
a search is a function of the sequence of events, so a search killed at any moment continues as if
it had not been interrupted. A last line truncated by a crash is dropped. SQLite is not used
because its write-ahead log needs shared memory, which network file systems lack.
"""

from __future__ import annotations

import contextlib
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
from scitoolkit.core.files import disk_error

FILE_NAME = "trials.jsonl"
Event = dict[str, Any]


class LogLocked(ScitoolkitError):
    """Another process writes this log."""


class TrialLog:
    """Append-only event log `directory/trials.jsonl`, locked by one process at a time.

    Killing the process loses no appended event. A crash of the machine loses at most the events
    since the last `fdatasync`, which runs in a separate thread so that the manager of a thousand
    workers does not wait for the disk. `close` waits for the last flush.

    Args:
        directory: run directory of the search.
        shared: whether other managers may append too, each in its `turn`.

    Attributes:
        events: found in the file when it was opened.
        manager: name of this manager in a shared log, "" otherwise.

    Raises:
        LogLocked: another process holds the lock.
        CheckpointError: a line other than the last one is damaged.
        ScitoolkitError: the file cannot be opened for writing.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with TrialLog(folder) as log:
        ...     log.append([{"event": "issue", "trial": 0}])
        >>> read_events(folder)
        [{'event': 'issue', 'trial': 0}]
    """

    events: list[Event]

    def __init__(self, directory: Path, *, shared: bool = False) -> None:
        self.path: Path = Path(directory) / FILE_NAME
        self.shared = shared
        self.manager: str = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        self._locks: list[int] = []
        try:
            self._locks.append(self._take_lock())
            if shared:
                self._take_names()
            self.manager = self.manager if shared else ""
            with self.turn():
                self.events, end = _read(self.path)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            if not shared and os.fstat(self._file).st_size > end:  # a line that was cut
                os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
        except BaseException as error:
            # A damaged log can be mended and opened again by this process.
            self._release()
            if isinstance(error, OSError):
                raise disk_error(error, self.path) from None
            raise
        self._end = end
        self._flusher = _Flusher(self._file)

    def append(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append events and request a flush to disk, without waiting for it.

        Raises:
            ScitoolkitError: the write or an earlier flush failed; the log is unchanged.
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
            # Remove a partial line: readers would take it for a crash of the writer.
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise disk_error(error, self.path) from None
        self._end += len(data)
        self._flusher.wanted.set()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other manager appends to a shared log, and keep them out meanwhile."""
        if not self.shared:
            yield
            return
        fcntl.flock(self._locks[1], fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._locks[1], fcntl.LOCK_UN)

    def read_new(self) -> list[Event]:
        """Return the events that other managers have appended; to be called in a `turn`.

        Raises:
            CheckpointError: a line is damaged.
        """
        if os.fstat(self._file).st_size == self._end:
            return []
        events, end = _read(self.path, self._end)
        # No manager is writing now: an incomplete line is of one that was killed.
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        self._end = end
        return events

    def is_alive(self, manager: str) -> bool:
        """Return whether a manager of this shared log still holds its lock."""
        try:
            lock = os.open(self._name_of(manager), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def _name_of(self, manager: str) -> Path:
        return self.path.parent / "managers" / f"{manager}.lock"

    def _take_names(self) -> None:
        """Open the lock of turns, and take the lock by which others see that this one lives."""
        own = self._name_of(self.manager)
        own.parent.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT
        self._locks.append(os.open(self.path.with_suffix(".turn"), flags, 0o644))
        self._locks.append(os.open(own, flags, 0o644))
        fcntl.flock(self._locks[2], fcntl.LOCK_EX)

    def close(self) -> None:
        """Flush and close the file and release the lock.

        Raises:
            ScitoolkitError: the last events did not reach the disk.
        """
        if self._file < 0:
            return
        self._flusher.finish()
        os.close(self._file)
        self._release()
        self._file = -1
        try:
            self._flusher.check()
        except OSError as error:
            raise disk_error(error, self.path) from None

    def _release(self) -> None:
        if self.shared and self.manager:
            # Before its lock is released: others see a manager that is alive or none, but no stale
            # file.
            self._name_of(self.manager).unlink(missing_ok=True)
        while self._locks:
            os.close(self._locks.pop())

    def __enter__(self) -> TrialLog:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _take_lock(self) -> int:
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Shared managers admit each other and exclude a search that believes to be alone. The
            # kernel releases locks of processes that were killed.
            kind = fcntl.LOCK_SH if self.shared else fcntl.LOCK_EX
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 200).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise LogLocked(
                f"another search is writing this log ({holder})",
                where=str(self.path),
                fix="wait for it, stop it, use another run directory, or run all with shared=True",
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return lock


class _Flusher:
    """Thread that flushes a file to disk whenever `wanted` is set."""

    def __init__(self, file: int) -> None:
        self._file, self._end = file, False
        self._error: OSError | None = None
        self.wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the last flush, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finish(self) -> None:
        """Flush once more and end the thread."""
        self._end = True
        self.wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.wanted.wait()
            self.wanted.clear()
            # Read before flushing: if `finish` is called meanwhile, one more flush follows, with
            # what was written in between.
            end = self._end
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._error = error
            if end:
                return


def read_events(directory: Path) -> list[Event]:
    """Return the events of a log without locking it; the search may still be running."""
    return _read(Path(directory) / FILE_NAME)[0]


def _read(path: Path, start: int = 0) -> tuple[list[Event], int]:
    """Return all complete events after a byte offset, and the offset after the last one."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
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
            # An invalid last line is what a crash leaves; anywhere else it is damage.
            if end + len(line) >= len(data):
                break
            raise CheckpointError(
                f"the line is not an event ({error})",
                where=f"{path}:{number}",
                fix="restore the file; only its last line may be incomplete",
            ) from None
        events.append(event)
        end += len(line)
    return events, start + end


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while (stop := data.find(b"\n", start)) >= 0:
        yield data[start : stop + 1]
        start = stop + 1


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
