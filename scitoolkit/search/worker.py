"""Execution of one trial in any process; every failure is converted to an `Outcome`."""

from __future__ import annotations

import errno
import inspect
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

from scitoolkit.core.errors import Interrupted, ScitoolkitError
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
