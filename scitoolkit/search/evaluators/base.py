"""Base class of evaluators, and evaluators in this process, in threads or simulated.

An evaluator accepts tasks and returns outcomes in any order. It also provides the clock of the
search, so that a simulated search of an hour can run in a second.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from scitoolkit.core.worker_pool import Limits
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.search.worker import Evaluate, run_task


class Evaluator(ABC):
    """Runs tasks on `workers` workers.

    Attributes:
        workers: largest number of tasks that run at a time.
    """

    workers: int = 1
    blocking = False
    """Whether `wait` runs the trial itself, in the thread of the manager."""

    @abstractmethod
    def submit(self, task: TrialTask) -> None:
        """Submit a task to a free worker; the caller never submits more tasks than workers."""

    @abstractmethod
    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return the finished outcomes, waiting up to `timeout` seconds for the first one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stop all workers immediately."""

    def now(self) -> float:
        """Return the time in seconds since an arbitrary origin."""
        return time.monotonic()


class InProcess(Evaluator):
    """Runs one trial at a time in this process, which is easy to debug.

    The time limit is checked at every reported epoch; memory is not limited.
    """

    blocking = True

    def __init__(self, evaluate: Evaluate, limits: Limits | None = None) -> None:
        self._evaluate, self._limits = evaluate, limits or Limits()
        self._tasks: list[TrialTask] = []

    def submit(self, task: TrialTask) -> None:
        """Store the task for the next `wait`."""
        self._tasks.append(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Run the oldest task and return its outcome; `timeout` is ignored."""
        if not self._tasks:
            return []
        started = self.now()
        outcome = run_task(self._evaluate, self._tasks.pop(0), seconds=self._limits.seconds)
        outcome.started, outcome.finished = started, self.now()
        return [outcome]


class Threads(Evaluator):
    """Runs trials in threads, for evaluations that wait for another program or machine.

    Limits are those of `InProcess`.
    """

    def __init__(self, evaluate: Evaluate, workers: int, limits: Limits | None = None) -> None:
        self.workers: int = workers
        self._evaluate = evaluate
        self._limits = limits or Limits()
        self._tasks: queue.SimpleQueue[TrialTask | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        for number in range(workers):
            threading.Thread(target=self._serve, args=(number,), daemon=True).start()

    def _serve(self, number: int) -> None:
        while (task := self._tasks.get()) is not None:
            started = self.now()
            outcome = run_task(self._evaluate, task, seconds=self._limits.seconds)
            outcome.started, outcome.finished, outcome.worker = started, self.now(), number
            outcome.cpu = None  # the clock of the process counts all threads
            self._outcomes.put(outcome)

    def submit(self, task: TrialTask) -> None:
        """Queue the task."""
        self._tasks.put(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return all finished outcomes, waiting up to `timeout` seconds for the first one."""
        try:
            outcomes = [self._outcomes.get(timeout=timeout)]
        except queue.Empty:
            return []
        while not self._outcomes.empty():
            outcomes.append(self._outcomes.get())
        return outcomes

    def close(self) -> None:
        """Let each thread end after its current trial; threads cannot be killed."""
        for _ in range(self.workers):
            self._tasks.put(None)


class Simulated(Evaluator):
    """Simulated workers with given task durations, for benchmarking search strategies.

    Between two waits the simulated clock advances by the real time spent in the manager, so that
    a manager too slow for its workers lowers the busy share.

    Args:
        evaluate: returns the metrics immediately.
        workers: number of simulated workers.
        duration: returns the simulated seconds of a task.
        charge: whether the manager's time is added to the clock.
        clock: measures that time; `time.thread_time` excludes the load by other programs.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        workers: int,
        duration: Callable[[TrialTask], float],
        *,
        charge: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.workers: int = workers
        self._evaluate = evaluate
        self._duration = duration
        self._charge, self._clock, self._time = charge, clock, 0.0
        self._real = clock()
        self._running: list[tuple[float, int, Outcome]] = []
        self._free = list(range(workers))
        self._count = 0

    def now(self) -> float:
        """Return the simulated time."""
        spent = self._clock() - self._real if self._charge else 0.0
        return self._time + spent

    def submit(self, task: TrialTask) -> None:
        """Evaluate the task now; its outcome is due after its simulated duration."""
        now = self.now()
        pause = self._clock()
        outcome = run_task(self._evaluate, task)
        outcome.started, outcome.finished = now, now + self._duration(task)
        outcome.worker = heapq.heappop(self._free)
        self._count += 1
        heapq.heappush(self._running, (outcome.finished, self._count, outcome))
        self._real += self._clock() - pause  # the evaluation is not charged to the manager

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Advance the clock to the next finished task, at most by `timeout`; return outcomes."""
        now = self.now()
        until = float("inf") if timeout is None else now + timeout
        nearest = self._running[0][0] if self._running else until
        self._time = max(now, min(nearest, until))
        self._real = self._clock()
        outcomes: list[Any] = []
        while self._running and self._running[0][0] <= self._time:
            outcomes.append(heapq.heappop(self._running)[2])
            heapq.heappush(self._free, outcomes[-1].worker)
        return outcomes
