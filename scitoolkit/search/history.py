"""History of a search: its trials, rebuilt from the events of the log or updated live."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.core.notebook import html_page, html_table
from scitoolkit.search.pareto import pareto_front
from scitoolkit.search.replay import Replay
from scitoolkit.search.space import Space
from scitoolkit.search.trial import IMPORTED, PRUNED, Objective, Trial
from scitoolkit.search.trial_log import Event

DAMAGES = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What an event raises that lacks a key, has another type, or whose trial was never issued."""


def damaged_event(event: str, error: Exception, where: str = "") -> CheckpointError:
    """Return the refusal of an event that raised one of `DAMAGES`."""
    text = f"{event} is damaged ({type(error).__name__}: {error})"
    return CheckpointError(text, where=where, fix="restore trials.jsonl")


def checked_header(events: Sequence[Event], where: str = "") -> Event:
    """Return the first event of a log, which describes the search.

    Args:
        events: of the log.
        where: path of the log, for messages.

    Raises:
        CheckpointError: the first event is no description.
    """
    header = events[0] if events else {}
    missing = {"version", "space", "seed", "strategy", "objectives"} - header.keys()
    if header.get("event") != "open" or missing:
        raise CheckpointError(
            "the log does not begin with the description of a search",
            where=where,
            fix="restore the file, or start a new search",
        )
    return header


class History:
    """Trials of a search, with rankings and statistics.

    Args:
        objectives: objectives and constraints; the first objective ranks trials.

    Attributes:
        objectives: objectives without constraints.
        limits: all objectives and constraints.
        trials: by number, including retrained finalists.
        clock: seconds of search, excluding pauses between sessions.
        workers: of the last session.
        best_known: best feasible trial so far.
        space: in which a log's search ended; None while a search runs.
    """

    clock: float
    workers: int
    num_done: int
    num_failed: int
    num_searched: int
    num_pruned: int

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.limits: tuple[Objective, ...] = tuple(objectives)
        self.objectives: tuple[Objective, ...] = tuple(o for o in objectives if not o.constraint)
        self.trials: dict[int, Trial] = {}
        self.clock = 0.0
        self.workers = 1
        self._workers: dict[str, int] = {}
        self.best_known: Trial | None = None
        self.space: Space | None = None
        self.num_done = self.num_failed = self.num_searched = self.num_pruned = 0

    def _repr_html_(self) -> str:
        """Return counts, and the trials with the best first objective, for a notebook."""
        counts = f"{self.num_done} trials done, {self.num_failed} failed, {self.clock:.0f} s"
        names = [objective.name for objective in self.limits]
        rows = [[t.id, *(t.metrics.get(name) for name in names)] for t in self.ranked()]
        return html_page("Search", [counts], html_table(["trial", *names], rows))

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> History:
        """Return the history of a log.

        Raises:
            CheckpointError: the log does not begin with the description of a search, or an event
                lacks a required key.
        """
        events = list(events)
        header = checked_header(events)
        applied = 0
        try:
            history = cls([Objective(**o) for o in header["objectives"]])
            spaces = [e["space"] for e in events if "space" in e]
            # A resumed search may have changed the space: the last one counts, and `Replay`
            # rewrites the codes of earlier events.
            history.space = Space(spaces[-1])
            for event in map(Replay(history.space), events) if len(spaces) > 1 else events:
                history.apply(event)
                applied += 1
        except (*DAMAGES, ConfigError) as error:
            raise damaged_event(f"event {applied + 1} of the log", error) from None
        return history

    def apply(self, event: Event) -> Trial | None:
        """Update the history by one event; return the trial it concerns, None if it has none."""
        self.clock = max(self.clock, float(event.get("t", 0.0)))
        kind = event["event"]
        if kind in ("open", "resume"):
            workers, manager = int(event.get("workers", self.workers)), event.get("manager", "")
            self._workers = {**(self._workers if manager else {}), manager: workers}
            self.workers = sum(self._workers.values())
        if kind == "leave" and len(self._workers) > 1:  # the last one counts for the report
            self._workers.pop(event["manager"], None)
            self.workers = sum(self._workers.values())
        if kind == "adopt":
            trial = self.trials[event["trial"]]
            trial.manager = event["manager"]
            return trial
        if kind == "issue":
            return self._issue(event)
        if kind == "finish":
            return self._finish(event)
        if kind == "interrupt":
            return self._interrupt(event)
        return None

    def _issue(self, event: Event) -> Trial:
        number, stage = event["trial"], event["stage"]
        # The event of a later stage has no codes: it continues the trial.
        if number not in self.trials or "codes" in event:
            self.trials[number] = Trial(
                number,
                tuple(event["codes"]),
                event["values"],
                event["seed"],
                event["origin"],
                event.get("parent"),
                event.get("of"),
                first_stage=stage,
                outside=event.get("outside", False),
            )
            trial = self.trials[number]
            self.num_searched += trial.searched and trial.origin != IMPORTED
        trial = self.trials[number]
        trial.manager = event.get("manager", "")
        trial.stage, trial.budget, trial.status = stage, event.get("budget"), "running"
        return trial

    def _interrupt(self, event: Event) -> Trial:
        trial = self.trials[event["trial"]]
        trial.spans.append((event["start"], event["t"], event["worker"]))
        trial.cpu += event.get("cpu") or 0.0
        trial.failure, trial.error = event["failure"], event["error"]
        return trial

    def _finish(self, event: Event) -> Trial:
        trial = self.trials[event["trial"]]
        trial.epochs = [*trial.epochs, *event.get("epochs", [])]
        trial.spans.append((event["start"], event["t"], event["worker"]))
        trial.cpu += event.get("cpu") or 0.0
        trial.failure, trial.error = event.get("failure", ""), event.get("error", "")
        if trial.failure:
            trial.status = "pruned" if trial.failure == PRUNED else "failed"
            self.num_pruned += trial.status == "pruned" and not trial.outside
            self.num_failed += trial.status == "failed" and not trial.outside
            return trial
        # A trial of several stages counts once, with the first of them.
        self.num_done += trial.status != "done" and trial.reached < 0 and not trial.outside
        trial.status, trial.metrics, trial.reached = "done", event["metrics"], event["stage"]
        trial.values = tuple(o.loss(trial.metrics) for o in self.objectives)
        if not all(map(math.isfinite, trial.values)):
            raise ValueError(f"objectives {trial.metrics}")
        trial.violation = sum(o.excess(trial.metrics) for o in self.limits)
        if trial.searched and self._better(trial):
            self.best_known = trial
        return trial

    def _better(self, trial: Trial) -> bool:
        best = self.best_known
        if not self.feasible(trial):
            return False
        # A larger budget precedes any loss: losses of different budgets cannot be compared.
        return best is None or (-trial.reached, trial.values) < (-best.reached, best.values)

    # --- queries ----------------------------------------------------------------------------

    @property
    def searched(self) -> list[Trial]:
        """Trials of the space without retrained finalists, ordered by number."""
        return [t for t in self.trials.values() if t.searched]

    @property
    def done(self) -> list[Trial]:
        """Trials with a result, without retrained finalists."""
        return [t for t in self.searched if t.reached >= 0 and t.status != "failed"]

    @property
    def running(self) -> list[Trial]:
        """Trials that were issued and have not finished, interrupted ones included."""
        return [t for t in self.trials.values() if t.status == "running" and not t.outside]

    @property
    def interrupted(self) -> list[Trial]:
        """Unfinished trials whose last attempt was stopped by a fault of the machine."""
        return [t for t in self.running if t.failure]

    def feasible(self, trial: Trial) -> bool:
        """Return whether a trial satisfies all limits."""
        return all(o.within(trial.metrics) for o in self.limits)

    def ranked(self) -> list[Trial]:
        """Return the feasible trials, best first; trials with larger budgets precede others."""
        trials = [t for t in self.done if self.feasible(t)]
        return sorted(trials, key=lambda t: (-t.reached, t.values, t.id))

    @property
    def best(self) -> Trial | None:
        """Best feasible trial by the first objective, None if there is none."""
        return next(iter(self.ranked()), None)

    def front(self) -> list[Trial]:
        """Return the Pareto front of the feasible trials at the largest budget reached."""
        trials = self.ranked()
        trials = [t for t in trials if t.reached == trials[0].reached]
        return [trials[i] for i in pareto_front([t.values for t in trials])]

    def failures(self) -> Counter[str]:
        """Return the number of failed trials per kind of failure."""
        failed = (t for t in self.trials.values() if t.status == "failed" and not t.outside)
        return Counter(t.failure for t in failed)

    def duplicates(self) -> int:
        """Return the number of trials whose configuration had been evaluated before."""
        searched = self.searched
        return len(searched) - len({t.codes for t in searched})

    def busy_share(self, until: float | None = None) -> float:
        """Return the share of the workers' time up to `until` (seconds) spent on trials."""
        end = self.clock if until is None else until
        busy = sum(
            max(0.0, min(stop, end) - start)
            for t in self.trials.values()
            for start, stop, _ in t.spans
        )
        return busy / (end * self.workers) if end > 0 else 0.0

    def finalists(self) -> list[dict[str, Any]]:
        """Return the retrained configurations, best mean first.

        Returns:
            Rows with `trial`, number of `seeds`, `mean` and standard deviation (`spread`, None for
            one seed) of the loss over the seeds, and the numbers of the retraining `runs`.
        """
        groups: dict[int, list[Trial]] = {}
        for trial in self.trials.values():
            if trial.of is not None and not trial.outside:
                groups.setdefault(trial.of, []).append(trial)
        rows = []
        for number, trials in groups.items():
            values = [t.values[0] for t in trials if t.status == "done"]
            if values:
                rows.append(
                    {
                        "trial": number,
                        "seeds": len(values),
                        "mean": statistics.fmean(values),
                        "spread": statistics.stdev(values) if len(values) > 1 else None,
                        "runs": [t.id for t in trials if t.status == "done"],
                    }
                )
        return sorted(rows, key=lambda row: row["mean"])

    def winner(self) -> Trial | None:
        """Return the finalist with the best mean over its seeds, else the best trial."""
        finalists = self.finalists()
        return self.trials[finalists[0]["trial"]] if finalists else self.best


def event_values(trial: Trial) -> Mapping[str, Any]:
    """Return the fields of a trial that are compared between histories: no times, no workers."""
    return {
        "id": trial.id,
        "codes": trial.codes,
        "seed": trial.seed,
        "origin": trial.origin,
        "parent": trial.parent,
        "of": trial.of,
        "stage": trial.stage,
        "status": trial.status,
        "metrics": trial.metrics,
        "failure": trial.failure,
    }


def same_history(a: History, b: History) -> bool:
    """Return whether two histories have equal trials, ignoring times and workers."""
    return [event_values(t) for t in a.trials.values()] == [
        event_values(t) for t in b.trials.values()
    ]


def load_history(directory: Any) -> History:
    """Return the history of a run directory; the search may still be running.

    Raises:
        CheckpointError: the log is missing or damaged.
    """
    from pathlib import Path

    from scitoolkit.search.trial_log import read_events

    return History.from_events(read_events(Path(directory)))
