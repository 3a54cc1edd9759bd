"""Evaluator with supervised worker processes on this machine."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.worker_pool import Ended, Limits, WorkerProcesses
from scitoolkit.search.evaluators.base import Evaluator, InProcess
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.search.worker import Evaluate, run_task


class Processes(Evaluator):
    """One long-lived, spawned process per worker; see `core.worker_pool.WorkerProcesses`.

    Args:
        evaluate: importable function or picklable object; see `TrialContext`.
        workers: number of processes.
        limits: of each trial.
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned in turn; each worker sees one.
        logs: folder for the output of workers; None leaves it on the terminal.

    Raises:
        ConfigError: `evaluate` cannot be pickled.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        workers: int,
        *,
        limits: Limits | None = None,
        threads: int = 1,
        gpus: Sequence[int | str] = (),
        logs: Path | None = None,
    ) -> None:
        self.workers: int = workers
        self._processes = WorkerProcesses(
            _pickled(evaluate), workers, limits=limits, threads=threads, gpus=gpus, logs=logs
        )

    def submit(self, task: TrialTask) -> None:
        """Send the task to a free worker."""
        self._processes.submit(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return outcomes of trials that finished, failed, crashed or exceeded a limit.

        Raises:
            BackendError: workers cannot load the evaluation or end before they have started.
        """
        return [_outcome(ended) for ended in self._processes.wait(timeout)]

    def close(self) -> None:
        """Kill all workers."""
        self._processes.close()


def _outcome(ended: Ended) -> Outcome:
    outcome: Outcome = ended.answer or Outcome(
        ended.task, failure=ended.failure, error=ended.error, epochs=ended.messages
    )
    outcome.started, outcome.finished = ended.started, ended.finished
    outcome.worker = ended.worker
    return outcome


def _pickled(evaluate: Evaluate) -> bytes:
    try:
        return pickle.dumps(partial(run_task, evaluate))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"the evaluation cannot be sent to another process ({error})",
            allowed="a function at the top of a module, or an object of a class defined there",
            fix="move it there, or run in this process: workers=1 without limits (which end a "
            "process), threads or gpus",
        ) from None


class ProcessesConfig(EvaluatorConfig):
    """Worker processes on this machine; a single worker without limits runs in this process."""

    reads: ClassVar[frozenset[str]] = frozenset(
        {"workers", "threads", "gpus", "trial_seconds", "trial_memory"}
    )

    name: Literal["processes"] = "processes"

    def build(self, evaluate: Evaluate, resources: Resources) -> Evaluator:
        """Return the evaluator with started processes; `InProcess` for default resources."""
        if resources == Resources(logs=resources.logs):
            return InProcess(evaluate)
        return Processes(
            evaluate,
            resources.workers,
            limits=resources.limits,
            threads=resources.threads,
            gpus=resources.gpus,
            logs=resources.logs,
        )
