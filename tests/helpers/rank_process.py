"""The part of `subprocess.Popen` with which the launcher starts ranks, for other ways to start."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence


class Rank(ABC):
    """A rank `python -m MODULE ARGUMENTS...`, in a new session."""

    pid: int

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        start_new_session: bool,
        preexec_fn: Callable[[], None],
    ) -> None:
        _python, option, module, *arguments = command
        assert option == "-m"
        assert start_new_session
        self.begin(module, arguments, env, preexec_fn)

    @abstractmethod
    def begin(
        self,
        module: str,
        arguments: list[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        """Start the process and set `pid`; `prepare` is called in it, if its parent launches."""

    @abstractmethod
    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""

    @abstractmethod
    def wait(self) -> int | None:
        """Wait for the end of the process; return its exit code."""

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
