"""Signal handlers that set a flag, which the trainer polls between steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignals:
    """Context in which SIGTERM, SIGUSR1 and the first Ctrl-C only set `received`.

    A second Ctrl-C raises KeyboardInterrupt. Forked children (loader workers) get the default
    behaviour, and the previous handlers are restored on exit.

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

    def __enter__(self) -> StopSignals:
        """Install the handlers, if called in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
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
