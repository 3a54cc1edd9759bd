"""Execution of one trial in any process; every failure is converted to an `Outcome`."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import inspect
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from scitoolkit.core.errors import Interrupted, ScitoolkitError
from scitoolkit.core.uncaught import install_hooks
from scitoolkit.search.epoch_bounds import Pruned
from scitoolkit.search.trial import (
    INTERRUPTED,
    PRUNED,
    Outcome,
    TrialContext,
    TrialTask,
    checked_metrics,
)

Evaluate = Callable[..., Any]
Send = Callable[[dict[str, float]], None]
_PR_SET_PDEATHSIG = 1
_FAULTS = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EIO: "machine",
    errno.EROFS: "machine",
    errno.EMFILE: "machine",
    errno.ENFILE: "machine",
    errno.ESTALE: "machine",
}


class TimeLimit(Exception):
    """Raised inside a trial by `TrialContext.report` once its time limit has passed."""


class ProcessesFailed(ScitoolkitError):
    """Failure of the processes that train one trial together.

    Args:
        what: description of the failure.
        failure: kind of failure, as of an `Outcome`.
    """

    def __init__(self, what: str, failure: str) -> None:
        super().__init__(what)
        self.failure: str = failure


def run_task(
    evaluate: Evaluate, task: TrialTask, send: Send | None = None, seconds: float | None = None
) -> Outcome:
    """Evaluate one configuration and return its outcome; exceptions become failures.

    Args:
        evaluate: `evaluate(configuration)` or `evaluate(configuration, trial)`.
        task: configuration, seed, budget and folder.
        send: called with the metrics of every reported epoch.
        seconds: time limit, checked at every reported epoch.
    """
    deadline = None if seconds is None else time.monotonic() + seconds

    def on_report(row: dict[str, float]) -> None:
        if send is not None:
            send(row)
        if deadline is not None and time.monotonic() > deadline:
            raise TimeLimit(f"longer than {seconds:g} s")

    context = TrialContext(task, on_report)
    outcome = Outcome(task, epochs=context.epochs)
    cpu = time.process_time()
    try:
        arguments = (dict(task.configuration), context)[: _num_arguments(evaluate)]
        result = evaluate(*arguments)
        outcome.metrics, outcome.failure, outcome.error = checked_metrics(result)
    except TimeLimit as error:
        outcome.failure, outcome.error = "time limit", str(error)
    except Pruned as error:
        outcome.failure, outcome.error = PRUNED, str(error)
    except SystemExit as error:
        # A training script that ends itself ends its trial, not the search.
        outcome.failure, outcome.error = "raised", f"the evaluation called sys.exit({error.code!r})"
    except Exception as error:
        outcome.failure, outcome.error = failure_kind(error), traceback.format_exc(limit=-12)
    outcome.cpu = time.process_time() - cpu
    return outcome


def _num_arguments(evaluate: Evaluate) -> int:
    try:
        parameters = inspect.signature(evaluate).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p for p in parameters if p.kind in positional]
    return 2 if len(names) > 1 and (names[1].name == "trial" or not _has_default(names[1])) else 1


def _has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def failure_kind(error: BaseException) -> str:
    """Return the kind of failure: `memory`, `disk`, `machine`, `interrupted` or `raised`.

    Faults of the machine are recognised by `errno` along the chain of exceptions, and by the
    system's message, because HDF5, torch and data-loading workers pass only the text on.

    Example:
        >>> failure_kind(OSError(errno.EMFILE, "Too many open files"))
        'machine'
    """
    if isinstance(error, ProcessesFailed):
        return error.failure
    if isinstance(error, Interrupted):
        return INTERRUPTED
    text = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate" in text:
        return "memory"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FAULTS:
            return _FAULTS[cause.errno]
        cause = cause.__cause__ or cause.__context__
    # Libraries such as HDF5 raise other errors with the system's message in the text.
    kinds = [kind for code, kind in _FAULTS.items() if os.strerror(code).lower() in text]
    return kinds[0] if kinds else "raised"


def serve(pipe: Connection, evaluate: bytes, log: str | None) -> None:
    """Main function of a worker process: run tasks from a pipe until it closes.

    Messages to the parent: ("ready",), ("broken", traceback), ("epoch", row), ("done", outcome).

    Args:
        pipe: connection to the parent.
        evaluate: pickled evaluation.
        log: file for standard output and error; None inherits them.
    """
    install_hooks()
    _become_group_leader()
    _terminate_with_parent()
    if log is not None:
        _redirect_output(log)
    try:
        function = pickle.loads(evaluate)
    except BaseException:
        pipe.send(("broken", traceback.format_exc()))
        return
    pipe.send(("ready",))
    while True:
        try:
            task = pipe.recv()
            if task is None:
                return
            pipe.send(("done", run_task(function, task, lambda row: pipe.send(("epoch", row)))))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _become_group_leader() -> None:
    """Become a process-group leader, so that children are killed too; ignore SIGINT."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _terminate_with_parent() -> None:
    """End with the parent process; a resumed search issues the trial again.

    What the trial has started ends too: a forked process kills the group once this process or its
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
