"""Signals as a flag that the trainer looks at between steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignals:
    """Within it, SIGTERM, SIGUSR1 and the first Ctrl-C only set `received`.

    A second Ctrl-C stops at once. Forked children (loader workers) treat signals as usual, and
    handlers are restored on leaving.

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
        """Install the handlers; only a process's main thread may."""
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
        """Put the old handlers back."""
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
