"""Ask-and-tell interface of a search whose trials are run by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scitoolkit.core.errors import ConfigError
from scitoolkit.search.history import Event
from scitoolkit.search.loop import Loop
from scitoolkit.search.strategies.base import SpaceExhausted
from scitoolkit.search.trial import Outcome, Trial, TrialTask, checked_metrics
from scitoolkit.search.worker import failure_kind


class Asking:
    """Ask-and-tell interface, yielded by `Search.asking`.

    Args:
        loop: of the search; its evaluator serves as the clock only.
        next_event: returns the event of the next trial, None if the space is exhausted.
    """

    def __init__(self, loop: Loop, next_event: Callable[[], Event | None]) -> None:
        self._loop, self._next = loop, next_event
        self._running: dict[int, float] = {}
        self._again: list[TrialTask] = [loop.task(trial, resumed=True) for trial in loop.adopt()]

    def ask(self) -> TrialTask:
        """Return a trial to run; several may run at a time and be told in any order.

        Unfinished trials of a resumed log come first.

        Raises:
            SpaceExhausted: no configuration is left to evaluate.
        """
        if self._again:
            task = self._again.pop(0)
        else:
            with self._loop.record.turn():
                event = self._next()
                if event is None:
                    raise SpaceExhausted("no configuration is left to evaluate", where="space")
                task = self._loop.issue(event)
                self._loop.record.write([event])
        self._running[task.trial] = self._loop.evaluator.now()
        return task

    def tell(self, task: TrialTask, result: float | Mapping[str, float] | Exception) -> Trial:
        """Log the result of a trial and return the trial.

        Args:
            task: returned by `ask`.
            result: a number, metrics by name, or the exception that ended the trial. A fault of
                the machine (see `failure_kind`) leaves the trial unfinished, and `ask` returns
                it once more.

        Raises:
            ConfigError: the trial is not running.
        """
        if task.trial not in self._running:
            raise ConfigError(
                f"trial {task.trial} is not running",
                where="tell",
                fix="tell each trial of `ask` once",
            )
        begun = self._running.pop(task.trial)
        metrics: dict[str, float | None] = {}
        if isinstance(result, Exception):
            failure, error = failure_kind(result), f"{type(result).__name__}: {result}"
        else:
            metrics, failure, error = checked_metrics(result)
        outcome = Outcome(
            task, metrics, failure, error, started=begun, finished=self._loop.evaluator.now()
        )
        with self._loop.record.turn():
            self._loop.record.write([self._loop.finish(outcome)])
        self._again += self._loop.take_retries()
        return self._loop.record.history.trials[task.trial]
