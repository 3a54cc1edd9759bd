"""Trials on many nodes: workers of a Ray cluster, or MPI ranks.

Limits and failures are handled by supervised processes on the worker's node, so that a trial
behaves the same on a laptop and on a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from scitoolkit.core.cluster import Pool, pool
from scitoolkit.core.errors import BackendError
from scitoolkit.search.evaluators.base import Evaluator, Limits
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.trial import Outcome, Task
from scitoolkit.search.worker import Evaluate

KEY = "budget.evaluator"
_processes: dict[tuple[bytes, Limits], Processes] = {}
_ranks: list[Pool] = []
"""The MPI ranks of the present session, on rank 0."""


class ClusterEvaluator(Evaluator):
    """Runs trials on workers of an executor.

    Args:
        evaluate: importable function or picklable object; see `TrialContext`.
        cluster: workers, of which each runs one trial at a time.
        limits: of each trial, enforced by the node that runs it.
    """

    def __init__(self, evaluate: Evaluate, cluster: Pool, limits: Limits | None = None) -> None:
        assert cluster.executor is not None
        self._executor = cluster.executor
        self.workers: int = cluster.workers
        self._sent = pickle.dumps(evaluate), limits or Limits(), list(sys.path)
        self._running: dict[Future[Outcome], tuple[int, float]] = {}
        self._free = list(range(self.workers))
        self._stack = contextlib.ExitStack()

    def submit(self, task: Task) -> None:
        """Send the task to a worker of the cluster."""
        future = self._executor.submit(run_remotely, task, *self._sent)
        self._running[future] = (self._free.pop(0), self.now())

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return the finished outcomes, waiting up to `timeout` seconds for the first one.

        Raises:
            BackendError: a worker of the cluster was lost.
        """
        done = wait(self._running, timeout, FIRST_COMPLETED).done if self._running else set()
        return [self._outcome(future) for future in done]

    def _outcome(self, future: Future[Outcome]) -> Outcome:
        worker, started = self._running.pop(future)
        self._free.append(worker)
        try:
            outcome = future.result()
        except Exception as error:
            raise BackendError(
                f"a worker of the cluster was lost ({type(error).__name__}: {error})",
                fix="continue with --resume, which issues its trial again",
            ) from None
        outcome.worker, outcome.started, outcome.finished = worker, started, self.now()
        return outcome

    def until_closed(self, context: AbstractContextManager[Any]) -> Any:
        """Enter a context, which `close` leaves; return what it yields."""
        return self._stack.enter_context(context)

    def close(self) -> None:
        """Disconnect from the cluster; Ray then ends the trials, MPI waits for them."""
        for future in self._running:
            future.cancel()
        self._stack.close()


def run_remotely(task: Task, evaluate: bytes, limits: Limits, paths: list[str]) -> Outcome:
    """Run a task in a child process, so that a crash does not end the cluster's worker.

    Args:
        task: of the trial.
        evaluate: pickled evaluation.
        limits: of the trial.
        paths: import paths of the manager, added to those of this process.
    """
    sys.path += [path for path in paths if path not in sys.path]
    key = evaluate, limits
    if key not in _processes:
        _processes[key] = Processes(pickle.loads(evaluate), 1, limits=limits)
        atexit.register(_processes[key].close)
    process = _processes[key]
    process.submit(task)
    while not (outcomes := process.wait(1.0)):
        pass
    return outcomes[0]


class RayConfig(EvaluatorConfig):
    """Workers of a Ray cluster (RAY_ADDRESS, else this machine); with `gpus`, one GPU per trial."""

    requires: ClassVar[tuple[str, ...]] = ("ray",)
    reads: ClassVar[frozenset[str]] = frozenset(
        {"workers", "gpus", "trial_seconds", "trial_memory"}
    )

    name: Literal["ray"] = "ray"

    def build(self, evaluate: Evaluate, resources: Resources) -> ClusterEvaluator:
        """Return the evaluator, connected to the cluster."""
        return on_ray(
            evaluate, resources.workers, limits=resources.limits, gpus=1 if resources.gpus else 0
        )


def on_ray(
    evaluate: Evaluate, workers: int, *, limits: Limits | None = None, gpus: int = 0
) -> ClusterEvaluator:
    """Return an evaluator on Ray: the cluster at RAY_ADDRESS, else this machine.

    Args:
        evaluate: importable function or picklable object; see `TrialContext`.
        workers: number of parallel trials.
        limits: of each trial.
        gpus: that Ray reserves for a trial.

    Raises:
        BackendError: Ray is missing or cannot start.
    """
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(pool("ray", workers, gpus=gpus, key=KEY))
        assert cluster is not None
        made = ClusterEvaluator(evaluate, Pool(cluster.executor, workers), limits)
        made.until_closed(stack.pop_all())
    return made


class MpiConfig(EvaluatorConfig):
    """All MPI ranks except the first as workers."""

    requires: ClassVar[tuple[str, ...]] = ("mpi4py",)
    reads: ClassVar[frozenset[str]] = frozenset({"trial_seconds", "trial_memory"})

    name: Literal["mpi"] = "mpi"

    def build(self, evaluate: Evaluate, resources: Resources) -> ClusterEvaluator:
        """Return the evaluator on the ranks of the session."""
        if not _ranks:
            raise BackendError("no session of MPI ranks", fix="MpiConfig().session() around build")
        return ClusterEvaluator(evaluate, _ranks[-1], resources.limits)

    def session(self) -> AbstractContextManager[bool]:
        """Return the context in which the other ranks run trials."""
        return mpi_ranks()


@contextlib.contextmanager
def mpi_ranks() -> Iterator[bool]:
    """Yield True on rank 0, the manager; on other ranks run trials until it ends, then yield False.

    The trainer treats every rank as a single process, regardless of Slurm's variables.

    Raises:
        BackendError: mpi4py is missing.
        ConfigError: there is only one rank.
    """
    with pool("mpi", 1, key=KEY) as ranks:
        if ranks is None:
            yield False
            return
        _ranks.append(ranks)
        try:
            yield True
        finally:
            _ranks.pop()
