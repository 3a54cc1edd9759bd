"""Signal handlers that set a flag, which the trainer polls between steps.

A step may take minutes, or hang: in a compiler, on a GPU, in a collective. Python runs handlers
only between its own instructions, so it is a thread, which reads the numbers of signals as they
arrive, that ends the process at the second SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType, TracebackType

HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
ENDED = 128 + signal.SIGTERM
"""Exit code after the second SIGTERM."""
# A job's scheduler and its launcher may both pass on one request to stop.
SAME_REQUEST_SECONDS = 0.25


class StopSignals:
    """Context in which SIGTERM, SIGUSR1 and the first Ctrl-C only set `received`.

    A second Ctrl-C raises KeyboardInterrupt, and a second SIGTERM ends the process at once with
    exit code 143, whatever it does. Forked children (loader workers) get the default behaviour, and
    the previous handlers are restored on exit.

    Example:
        >>> with StopSignals() as stop:
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     stop.received
        'SIGTERM'
    """

    received: str

    def __init__(self) -> None:
        self.received = ""
        self._owner = os.getpid()
        self._previous: dict[int, object] = {}
        self._watch: _Watch | None = None

    def __enter__(self) -> StopSignals:
        """Install the handlers, if called in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED:
                self._previous[number] = signal.signal(number, self._handle)
            self._watch = _Watch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
        if self._watch is not None:
            self._watch.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


class _Watch:
    """Thread that ends the process at the second SIGTERM."""

    active: _Watch | None = None

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, name="second SIGTERM", daemon=True)
        self._thread.start()
        self._outer, _Watch.active = _Watch.active, self

    def close(self) -> None:
        """Give the signals' numbers back to their former reader, and end the thread."""
        _Watch.active = self._outer
        signal.set_wakeup_fd(self._before)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        first = None
        while 0 not in (numbers := os.read(self._read, 64)):
            if self._before != -1:
                with contextlib.suppress(OSError):
                    os.write(self._before, numbers)
            if signal.SIGTERM not in numbers:
                continue
            first = first or time.monotonic()
            if time.monotonic() - first > SAME_REQUEST_SECONDS:
                os.write(2, b"ended at once by a second SIGTERM; nothing more is saved\n")
                os._exit(ENDED)


def _forget_in_child() -> None:
    """Keep the signals of a forked child from its parent's thread."""
    if _Watch.active is not None:
        _Watch.active = None
        with contextlib.suppress(ValueError):  # forked by a thread, where no signal arrives
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget_in_child)
