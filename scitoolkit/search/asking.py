"""Ask and tell: the caller runs the trials, the search proposes, logs and learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scitoolkit.core.errors import ConfigError
from scitoolkit.search.history import Event
from scitoolkit.search.loop import Loop
from scitoolkit.search.strategies.base import SpaceExhausted
from scitoolkit.search.trial import Outcome, Task, Trial, checked_metrics
from scitoolkit.search.worker import failure_kind


class Asking:
    """What `Search.asking` yields: trials to run, and where their results go.

    Args:
        loop: of the search; its evaluator only tells the time.
        next_event: issues the next trial of the search.
    """

    def __init__(self, loop: Loop, next_event: Callable[[], Event | None]) -> None:
        self._loop, self._next = loop, next_event
        self._running: dict[int, float] = {}
        self._again: list[Task] = [
            loop.task(trial, resumed=True) for trial in loop.record.history.running
        ]

    def ask(self) -> Task:
        """Return a trial to run; several may run at a time, told in any order.

        What was running when a log ended comes first.

        Raises:
            SpaceExhausted: there is nothing left to try.
        """
        if self._again:
            task = self._again.pop(0)
        else:
            event = self._next()
            if event is None:
                raise SpaceExhausted("nothing is left to try", where="space")
            task = self._loop.issue(event)
            self._loop.record.write([event])
        self._running[task.trial] = self._loop.evaluator.now()
        return task

    def tell(self, task: Task, result: float | Mapping[str, float] | Exception) -> Trial:
        """Log a result: a number, figures by name, or the exception that ended the trial.

        Raises:
            ConfigError: a trial that is not running.
        """
        if task.trial not in self._running:
            raise ConfigError(f"trial {task.trial} is not running", where="tell",
                              fix="tell each trial of `ask` once")  # fmt: skip
        begun = self._running.pop(task.trial)
        metrics: dict[str, float] = {}
        if isinstance(result, Exception):
            failure, error = failure_kind(result), f"{type(result).__name__}: {result}"
        else:
            metrics, failure, error = checked_metrics(result)
        outcome = Outcome(
            task, metrics, failure, error, started=begun, finished=self._loop.evaluator.now()
        )
        self._loop.record.write([self._loop.finish(outcome)])
        self._again += self._loop.take_retries()
        return self._loop.record.history.trials[task.trial]
