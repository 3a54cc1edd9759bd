"""Main loop of a search.

Each iteration collects finished trials, requests one new trial per free worker, writes all events
to the log in one flush, and only then submits the new trials, so that a crash loses no trial.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.search.evaluators import Evaluator
from scitoolkit.search.history import Event, History
from scitoolkit.search.pruning import MedianPruning
from scitoolkit.search.record import SearchRecord
from scitoolkit.search.trial import (
    INTERRUPTED,
    INTERRUPTIONS,
    Outcome,
    Trial,
    TrialTask,
    finite_or_none,
)

FIRST_FAILURES = 10
_TURN = 1.0
_PAUSE = 0.2


class Loop:
    """Main loop of a search over one evaluator.

    Args:
        record: history, strategy and log of the search.
        evaluator: runs the trials.
        complete: adds costs to a successful outcome and checks that all objectives are present.
        stop_requested: returns True once no more trials may be issued.
        after_turn: called after the new trials of an iteration were submitted.
        own_seconds: receives (trials finished, wall seconds, CPU seconds) of every iteration.
        patience: number of failures before the first success at which the search stops.
        pruning: rule by which trials are stopped for their reports.

    Attributes:
        retraining: whether finalists are trained again, for which other managers are waited too.
        trial_interrupted: whether a signal stopped a trial, so that no more trials are issued.
    """

    def __init__(
        self,
        record: SearchRecord,
        evaluator: Evaluator,
        *,
        complete: Callable[[Outcome], Outcome],
        stop_requested: Callable[[], bool],
        after_turn: Callable[[], None],
        own_seconds: list[tuple[int, float, float]],
        patience: int = FIRST_FAILURES,
        pruning: MedianPruning | None = None,
    ) -> None:
        self.record, self.evaluator = record, evaluator
        self.complete, self.after_turn = complete, after_turn
        self._stop_requested = stop_requested
        self.trial_interrupted = False
        self.running = 0
        # Times in the log continue those of earlier sessions, whose clocks had other origins.
        self.origin: float = evaluator.now() - record.history.clock
        self.own_seconds = own_seconds
        self.patience, self.pruning = patience, pruning
        self.retraining = False
        self._retries: list[TrialTask] = []
        self._retried: set[tuple[int, int]] = set()
        self._interrupted_in_a_row = 0

    def time(self) -> float:
        """Return the seconds searched so far, including earlier sessions."""
        return self.evaluator.now() - self.origin

    def stop_requested(self) -> bool:
        """Return whether no more trials may be issued."""
        return self.trial_interrupted or self._stop_requested()

    def run(self, next_event: Callable[[], Event | None], seconds: float | None) -> bool:
        """Issue trials and collect results until no trial is left to issue or running.

        Args:
            next_event: returns the event of the next trial, None if there is none at present.
            seconds: time after which no trial is issued; None for no limit.

        Returns:
            Whether the time was used up.

        Raises:
            ScitoolkitError: the first trials all failed, or the machine stopped several in a row.
        """
        outcomes: list[Outcome] = []
        while True:
            began, cpu = time.perf_counter(), time.thread_time()
            with self.record.turn():
                # Results first, so that the proposals of this turn know them. The order of events
                # decides the strategy's state, and a replay repeats it.
                events = [self.finish(outcome) for outcome in outcomes]
                tasks: list[Any] = []
                expired = seconds is not None and self.time() >= seconds
                while not (expired or self.stop_requested()) and self._free(len(tasks)) > 0:
                    event = next_event()
                    if event is not None:
                        events.append(event)
                        tasks.append(self.issue(event))
                    elif self._retries:
                        tasks.append(self._retries.pop(0))
                    else:
                        break
                self.record.write(events)
            for task in tasks:
                self.evaluator.submit(task)
            self.running += len(tasks)
            self._give_up_early()
            self.after_turn()
            own = time.perf_counter() - began, time.thread_time() - cpu
            self.own_seconds.append((len(outcomes), *own))
            if self.stop_requested():
                return expired
            if not self.running and not self._waits_for_others(expired):
                return expired
            outcomes = self.evaluator.wait(self._timeout(seconds, expired))
            self.running -= len(outcomes)

    def _waits_for_others(self, expired: bool) -> bool:
        """Wait while trials of other managers run; take over those of managers that ended."""
        running = [t for t in self.record.history.running if t.of is None or self.retraining]
        if expired or not self.record.shared or not running:
            return False
        self.reissue()
        if not self.running:
            time.sleep(_PAUSE)
        return True

    def _free(self, taken: int) -> int:
        return self.evaluator.workers - self.running - taken

    def _timeout(self, seconds: float | None, expired: bool) -> float | None:
        if self.evaluator.blocking:
            return None
        if seconds is None or expired:
            return _TURN
        return max(0.0, min(_TURN, seconds - self.time()))

    def reissue(self) -> None:
        """Submit the trials that were running when their manager ended, with `resumed` set."""
        for trial in self.adopt():
            while self._free(0) <= 0 and not self.stop_requested():
                outcomes = self.evaluator.wait(_TURN)
                self.running -= len(outcomes)
                with self.record.turn():
                    self.record.write([self.finish(outcome) for outcome in outcomes])
            if self.stop_requested():
                return
            self.evaluator.submit(self.task(trial, resumed=True))
            self.running += 1

    def adopt(self) -> list[Trial]:
        """Return the running trials whose manager has ended; they are this manager's now."""
        with self.record.turn():
            orphans = self.record.orphans()
            if self.record.shared:
                manager = {"manager": self.record.manager}
                events = [{"event": "adopt", "trial": t.id, **manager} for t in orphans]
                for event in events:
                    self.record.apply(event)
                self.record.write(events)
        return orphans

    def issue(self, event: Event) -> TrialTask:
        """Apply the event of a new trial or stage; return its task."""
        event["t"] = round(self.time(), 6)
        if self.record.shared:
            event["manager"] = self.record.manager
        trial = self.record.apply(event)
        assert trial is not None
        return self.task(trial, resumed=trial.reached >= 0)

    def task(self, trial: Trial, *, resumed: bool) -> TrialTask:
        """Return the task of a trial's current stage."""
        folder = self.record.folder(trial)
        return TrialTask(
            trial.id,
            trial.stage,
            trial.configuration,
            trial.seed,
            trial.budget,
            None if folder is None else str(folder),
            resumed,
            self.pruning.bounds(self.record.history) if self.pruning and trial.searched else None,
        )

    def finish(self, outcome: Outcome) -> Event:
        """Apply an outcome; return its event, not yet written.

        A trial stopped by a fault of the machine stays unfinished. It is evaluated once more when
        nothing new is to be issued, and again when the search is resumed. A trial that a signal
        stopped ends the search, and is continued when it is resumed.
        """
        task = outcome.task
        event: Event = {
            "event": "finish",
            "trial": task.trial,
            "stage": task.stage,
            "worker": outcome.worker,
            "start": round(outcome.started - self.origin, 6),
            "t": round(outcome.finished - self.origin, 6),
        }
        if outcome.cpu is not None:
            event["cpu"] = round(outcome.cpu, 6)
        if not outcome.failure:
            outcome = self.complete(outcome)
        if outcome.failure:
            # The end of a traceback names the error.
            event |= {"failure": outcome.failure, "error": outcome.error[-4000:]}
        else:
            event["metrics"] = outcome.metrics
        if outcome.failure in INTERRUPTIONS:
            event["event"] = "interrupt"
            self.record.apply(event)
            self._interrupted_in_a_row += 1
            self.trial_interrupted |= outcome.failure == INTERRUPTED
            # Once more in this session: a fault of the machine may pass, and a full disk must not
            # keep the search busy with one trial.
            if (task.trial, task.stage) not in self._retried:
                self._retried.add((task.trial, task.stage))
                self._retries.append(dataclasses.replace(task, resumed=True))
            return event
        self._interrupted_in_a_row = 0
        if outcome.epochs:
            event["epochs"] = [finite_or_none(row) for row in outcome.epochs]
        trial = self.record.apply(event)
        assert trial is not None
        self.record.rank(trial)
        return event

    def take_retries(self) -> list[TrialTask]:
        """Return the interrupted trials to evaluate once more, and forget them."""
        tasks, self._retries = self._retries, []
        return tasks

    def _give_up_early(self) -> None:
        history = self.record.history
        # At least two failures per worker: with many workers the first ones all run at once.
        first = max(self.patience, 2 * self.evaluator.workers)
        if history.num_done == 0 and history.num_failed >= first:
            raise all_failed(history, f"the first {history.num_failed}")
        if self._interrupted_in_a_row >= first:
            raise interrupted(history, f"{self._interrupted_in_a_row} trials in a row")


def all_failed(history: History, which: str) -> ScitoolkitError:
    """Return the error for a search without any result, with the last failure."""
    last = next(t for t in reversed(history.trials.values()) if t.status == "failed")
    return ScitoolkitError(
        f"{which} trials have all failed; the last: {last.failure}: "
        f"{last.error.strip().splitlines()[-1]}",
        fix="evaluate one configuration by hand, or raise `patience` where few are feasible",
    )


def interrupted(history: History, which: str) -> ScitoolkitError:
    """Return the error for trials stopped by faults of the machine, with the last fault."""
    last = history.interrupted[-1]
    return ScitoolkitError(
        f"{which} were stopped by a fault of the machine; the last: "
        f"{last.error.strip().splitlines()[-1]}",
        fix="mend it and continue with --resume, which evaluates these trials again",
    )
