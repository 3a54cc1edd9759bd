"""What a supervised worker process runs: tasks from a pipe, until the pipe or its parent ends."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from scitoolkit.core.uncaught import install_hooks

Send = Callable[[Any], None]
_PR_SET_PDEATHSIG = 1


def serve(pipe: Connection, function: bytes, log: str | None) -> None:
    """Main function of a worker process: call a function for each task that arrives.

    Messages to the parent: ("ready",), ("broken", traceback), ("message", content) for what the
    function sends, ("done", answer), ("raised", exception).

    Args:
        pipe: connection to the parent.
        function: pickled `function(task, send)`, which returns the answer.
        log: file for standard output and error; None inherits them.
    """
    install_hooks()
    _become_group_leader()
    _terminate_with_parent()
    if log is not None:
        _redirect_output(log)
    try:
        call = pickle.loads(function)
    except BaseException:
        pipe.send(("broken", traceback.format_exc()))
        return
    pipe.send(("ready",))
    while True:
        try:
            _answer(pipe, call, pipe.recv())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _answer(pipe: Connection, call: Callable[[Any, Send], Any], task: Any) -> None:
    try:
        answer = call(task, lambda content: pipe.send(("message", content)))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(("raised", _sendable(error)))
    else:
        pipe.send(("done", answer))


def _sendable(error: Exception) -> Exception:
    """Return the exception, or one with its traceback as text if it cannot be sent.

    Example:
        >>> _sendable(ValueError("x"))
        ValueError('x')
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def _become_group_leader() -> None:
    """Become a process-group leader, so that children are killed too; ignore SIGINT."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _terminate_with_parent() -> None:
    """End with the parent process.

    What the task has started ends too: a forked process kills the group once this process or its
    parent has ended.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(write_end)
        wait([read_end, parent.sentinel])
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.close(read_end)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _redirect_output(log: str) -> None:
    """Redirect standard output, standard error and crash tracebacks to a file."""
    os.makedirs(os.path.dirname(log), exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()
