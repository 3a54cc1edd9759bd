"""Evaluator with supervised worker processes on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from scitoolkit.core.supervised_pool import Ended, Limits, Send, SupervisedPool
from scitoolkit.search.evaluators.base import Evaluator, InProcess
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.trial import Outcome, Task
from scitoolkit.search.worker import Evaluate, run_task


class Processes(Evaluator):
    """One long-lived, spawned process per worker; see `SupervisedPool`.

    A trial that exceeds a limit, or whose process dies, fails alone. Workers end with the manager;
    a resumed search issues their trials again.

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
        self._pool = SupervisedPool(
            _Trial(evaluate), workers, limits=limits, threads=threads, gpus=gpus, logs=logs
        )

    def submit(self, task: Task) -> None:
        """Send the task to a free worker."""
        self._pool.submit(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return outcomes of trials that finished, failed, crashed or exceeded a limit.

        Raises:
            BackendError: workers cannot load the evaluation or end before they have started.
        """
        return [_outcome(ended) for ended in self._pool.wait(timeout)]

    def close(self) -> None:
        """Kill all workers."""
        self._pool.close()


class _Trial:
    """An evaluation as a function of the pool, whose reports are those of epochs."""

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate

    def __call__(self, task: Task, send: Send) -> Outcome:
        return run_task(self.evaluate, task, send)


def _outcome(ended: Ended) -> Outcome:
    outcome: Outcome = ended.result
    if ended.failure:
        outcome = Outcome(
            ended.order, failure=ended.failure, error=ended.error, epochs=ended.reports
        )
    outcome.worker, outcome.started, outcome.finished = ended.worker, ended.started, ended.finished
    return outcome


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
