"""Where trials run: in this process, in threads, in processes of this machine, or nowhere.

An evaluator takes tasks and gives outcomes back, in any order. It also keeps the clock of the
search, so that a simulated one can run an hour in a second.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scitoolkit.search.trial import Outcome, Task
from scitoolkit.search.worker import Evaluate, run_task


@dataclass(frozen=True)
class Limits:
    """What a single trial may use.

    Attributes:
        seconds: wall time of one stage of a trial.
        memory: bytes of resident memory of a worker process.
    """

    seconds: float | None = None
    memory: int | None = None


class Evaluator(ABC):
    """Runs tasks on `workers` workers."""

    workers: int = 1
    blocking = False
    """Whether `wait` runs the trial itself, in the thread of the manager."""

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Give a task to a free worker; never more tasks than workers."""

    @abstractmethod
    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return what has finished; wait up to `timeout` seconds for the first."""

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stop all workers, whatever they are doing."""

    def now(self) -> float:
        """Return the time in seconds, from any origin."""
        return time.monotonic()


class InProcess(Evaluator):
    """One trial at a time, in this process: simple, and easy to debug.

    The time limit is looked at whenever a trial reports an epoch; memory is not limited.
    """

    blocking = True

    def __init__(self, evaluate: Evaluate, limits: Limits | None = None) -> None:
        self._evaluate, self._limits = evaluate, limits or Limits()
        self._tasks: list[Task] = []

    def submit(self, task: Task) -> None:
        """Keep the task for the next `wait`."""
        self._tasks.append(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Run the oldest task."""
        if not self._tasks:
            return []
        started = self.now()
        outcome = run_task(self._evaluate, self._tasks.pop(0), seconds=self._limits.seconds)
        outcome.started, outcome.finished = started, self.now()
        return [outcome]


class Threads(Evaluator):
    """Threads of this process: for evaluations that wait for another program or machine.

    Limits as for `InProcess`.
    """

    def __init__(self, evaluate: Evaluate, workers: int, limits: Limits | None = None) -> None:
        self.workers: int = workers
        self._evaluate = evaluate
        self._limits = limits or Limits()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
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

    def submit(self, task: Task) -> None:
        """Queue the task."""
        self._tasks.put(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return all that has finished, after at least one or the timeout."""
        try:
            found = [self._outcomes.get(timeout=timeout)]
        except queue.Empty:
            return []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def close(self) -> None:
        """Let the threads end after their trial; a thread cannot be stopped."""
        for _ in range(self.workers):
            self._tasks.put(None)


class Simulated(Evaluator):
    """Workers that take a stated time on a simulated clock: for studying searches themselves.

    Between two waits the clock advances by the real time that the manager took, so a manager
    that cannot keep its workers busy shows it.

    Args:
        evaluate: gives the metrics, at once.
        workers: number of simulated workers.
        duration: seconds that a task takes.
        charge: whether the manager's own time is added to the clock.
        clock: measures that time; `time.thread_time` leaves out what other programs take.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        workers: int,
        duration: Callable[[Task], float],
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

    def submit(self, task: Task) -> None:
        """Start the task on the simulated clock."""
        now = self.now()
        pause = self._clock()
        outcome = run_task(self._evaluate, task)
        outcome.started, outcome.finished = now, now + self._duration(task)
        outcome.worker = heapq.heappop(self._free)
        self._count += 1
        heapq.heappush(self._running, (outcome.finished, self._count, outcome))
        self._real += self._clock() - pause  # evaluating is not the manager's work

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Advance the clock to the next finish (or by the timeout) and return what is done."""
        now = self.now()
        until = float("inf") if timeout is None else now + timeout
        nearest = self._running[0][0] if self._running else until
        self._time = max(now, min(nearest, until))
        self._real = self._clock()
        found: list[Any] = []
        while self._running and self._running[0][0] <= self._time:
            found.append(heapq.heappop(self._running)[2])
            heapq.heappush(self._free, found[-1].worker)
        return found
