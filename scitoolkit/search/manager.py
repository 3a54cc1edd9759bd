"""The manager of a search: asks, issues, collects, records; nothing is lost and nothing repeated.

Each turn of its loop collects what has finished, asks for as many new trials as workers are
free, writes all of that to the log in one flush, and only then hands the new trials out.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import CheckpointError, ConfigError, Interrupted, ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.core.seeds import derive_seed
from scitoolkit.search.evaluators import Evaluator, InProcess, Limits
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.history import Event, History, checked_header
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies import GaussianProcessSearch, SpaceExhausted, Strategy
from scitoolkit.search.strategies.base import Proposal
from scitoolkit.search.table import write_csv
from scitoolkit.search.trial import Objective, Outcome, Task, Trial
from scitoolkit.search.trial_log import TrialLog
from scitoolkit.search.worker import Evaluate

log: Logger = get_logger(__name__)

VERSION = 1
STATE_EVERY = 50
FIRST_FAILURES = 10
_TURN = 1.0
Cost = Callable[[dict[str, Any]], Mapping[str, float]]
Progress = Callable[["Search"], None]
# Which seeds are drawn for what: streams of `derive_seed` that never meet.
_TRIAL, _RETRAIN = 1, 2


class Search:
    """Searches a space for configurations with small (or large) objectives.

    Args:
        space: a `Space`, or the parameters of one.
        evaluate: `evaluate(configuration)` or `evaluate(configuration, trial)`; returns a number
            or figures by name. See `TrialContext` for what `trial` offers.
        directory: run directory; log and checkpoints are kept there and `resume` continues from
            them. None keeps everything in memory.
        strategy: `GaussianProcessSearch()` unless stated.
        objectives: names or `Objective`s; an evaluation that returns a number has one called
            `objective`.
        cost: figures of a configuration that are known without training it, such as its number
            of parameters; they join the metrics, and limits on them are kept beforehand.
        seed: of the proposals and of every trial.
        limits: what one trial may use.
        keep: number of best trials whose folders are kept.
        disk_patience: seconds to wait for space when the disk is full.

    Example:
        >>> from scitoolkit.search import Search, real
        >>> search = Search({"x": real(-2, 2), "sign": [-1, 1]}, lambda c: (c["x"] - 1) ** 2)
        >>> found = search.run(trials=30)
        >>> len(found.done), found.duplicates(), found.best.values[0] < 0.1
        (30, 0, True)
    """

    stopped_because: str

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        evaluate: Evaluate,
        *,
        directory: Path | str | None = None,
        strategy: Strategy | None = None,
        objectives: Sequence[str | Objective] = ("objective",),
        cost: Cost | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        keep: int = 5,
        disk_patience: float = 60.0,
    ) -> None:
        _check_arguments(evaluate, objectives, seed, keep)
        self.space: Space = space if isinstance(space, Space) else Space(space)
        self.evaluate: Evaluate = evaluate
        self.cost: Cost | None = cost
        self.seed: int = seed
        self.keep: int = keep
        self.directory: Path | None = None if directory is None else Path(directory)
        self.strategy: Strategy = strategy or GaussianProcessSearch()
        self.objectives: tuple[Objective, ...] = tuple(
            Objective(o) if isinstance(o, str) else o for o in objectives
        )
        self.limits: Limits = limits or Limits()
        self.disk_patience: float = disk_patience
        self.history: History = History(self.objectives)
        self.own_seconds: list[tuple[int, float, float]] = []
        """(trials finished, own wall seconds, own CPU seconds) of every turn of the loop."""
        self.stopped_because = ""
        self.trial_log: TrialLog | None = None
        self._stop_signal = ""
        self._exhausted = False
        self.known_costs: dict[Codes, dict[str, float]] = {}
        self._kept: list[tuple[Any, int]] = []
        self._queue: list[Codes] = []

    def enqueue(self, *configurations: Mapping[str, Any]) -> Search:
        """Try known-good configurations before the strategy proposes any; return self.

        They count as trials, and the strategy learns from them. After a resume those that are in
        the log are left out.

        Args:
            configurations: with a value for every parameter that applies.

        Raises:
            ConfigError: a name or a value that is not of the space, or not allowed by it.

        Example:
            >>> from scitoolkit.search import Search, real
            >>> search = Search({"x": real(0, 1)}, lambda c: (c["x"] - 0.3) ** 2)
            >>> search.enqueue({"x": 0.3}).run(trials=4).best.configuration
            {'x': 0.3}
        """
        for configuration in configurations:
            codes = self.space.encode(configuration)
            if not self.space.allows(codes):
                raise ConfigError(
                    f"{dict(configuration)} is not allowed by the space", where="enqueue"
                )
            self._queue.append(codes)
        return self

    # --- the whole --------------------------------------------------------------------------

    def run(
        self,
        *,
        trials: int | None = None,
        seconds: float | None = None,
        workers: int | Evaluator | Callable[[], Evaluator] = 1,
        resume: bool = False,
        retrain: tuple[int, int] | None = None,
        progress: Progress | None = None,
        **processes: Any,
    ) -> History:
        """Search until the trials or the time are used up, or nothing is left to try.

        Args:
            trials: number of configurations to try, those of earlier sessions included.
            seconds: time to search, earlier sessions included; running trials then end.
            workers: 1 stays in this process, more are processes; or any
                `Evaluator`, or a function that starts one.
            resume: continue the log of `directory`.
            retrain: (best configurations, seeds of each) to train again before they are ranked.
            progress: called after every turn of the loop.
            processes: settings of `Processes`, such as `threads` or `gpus`.

        Raises:
            ConfigError: neither `trials` nor `seconds`, or the log is of another search.
            LogLocked: another manager writes the log.
            ScitoolkitError: the disk stays full, or the first trials (or all) fail.
            Interrupted: a signal; `resume` continues.
        """
        if trials is None and seconds is None and self.space.size == float("inf"):
            raise ConfigError("the search has no end", fix="trials=N or seconds=S")
        _check_budget(trials, seconds)
        with contextlib.ExitStack() as stack:
            self._open(resume, workers, stack)
            evaluator = self._evaluator(workers, processes)
            stack.callback(evaluator.close)
            stack.enter_context(self._signals(evaluator))
            self.history.workers = evaluator.workers
            loop = _Loop(self, evaluator, progress)
            loop.record([self._header(resume, evaluator.workers)])
            loop.reissue()
            loop.run(lambda: self._next(trials), seconds)
            if retrain is not None and not self._stop_signal:
                loop.run(lambda: self._next_retrain(*retrain), None)
            loop.record([self.state_event()])
            self._remove_folders()
            if self.directory is not None:
                write_csv(self.history, self.directory)
            if not self._stop_signal:
                self._check_failures()
        if self._stop_signal:
            raise Interrupted(
                f"stopped by {self._stop_signal} after {self.history.num_done} trials",
                fix="continue with --resume" if self.directory else "",
            )
        return self.history

    def _check_failures(self) -> None:
        """Refuse a search without a result; warn of one in which failures are the rule."""
        history = self.history
        if history.num_failed and not history.num_done:
            raise _all_failed(history, f"all {history.num_failed}")
        if history.num_failed > history.num_done:
            kinds = ", ".join(f"{count} {kind}" for kind, count in history.failures().items())
            log.warning("more trials failed than succeeded: %s", kinds)

    # --- what comes next --------------------------------------------------------------------

    def _next(self, trials: int | None) -> Event | None:
        """Return the event that issues the next trial of the search, or None to wait or end."""
        if self._exhausted and not self.strategy.budgets:
            return None
        enough = trials is not None and self.history.num_searched >= trials
        if enough and not self.strategy.budgets:  # nothing is promoted: save the proposal
            self.stopped_because = "all trials are done"
            return None
        try:
            proposal = self._enqueued() or self.strategy.ask()
        except SpaceExhausted:
            self._exhausted, self.stopped_because = True, "the space is exhausted"
            return None
        if proposal.promote is not None:
            return self._event(proposal.promote, proposal.stage, proposal.budget)
        if enough:
            self.stopped_because = "all trials are done"
            return None
        number = len(self.history.trials)
        configuration = _plain(self.space.decode(proposal.codes))
        event = self._event(number, 0, proposal.budget)
        event |= {
            "codes": list(proposal.codes),
            "values": configuration,
            "seed": derive_seed(self.seed, _TRIAL, number),
            "origin": proposal.origin,
        }
        if proposal.parent is not None:
            event["parent"] = proposal.parent
        return event

    def _enqueued(self) -> Proposal | None:
        """Return the first configuration of the queue that was not tried and keeps the limits."""
        for codes in self._queue:
            if codes not in self.strategy.seen and self._admits(codes):
                budgets = self.strategy.budgets
                return Proposal(codes, "enqueued", budget=budgets[0] if budgets else None)
        return None

    def _next_retrain(self, count: int, seeds: int) -> Event | None:
        budgets = self.strategy.budgets
        done = {(t.of, t.seed) for t in self.history.trials.values() if t.of is not None}
        for trial in self.history.ranked()[:count]:
            for k in range(seeds):
                seed = derive_seed(self.seed, _RETRAIN, trial.id, k)
                if (trial.id, seed) not in done:
                    event = self._event(
                        len(self.history.trials), 0, budgets[-1] if budgets else None
                    )
                    return event | {
                        "codes": list(trial.codes), "values": trial.configuration, "seed": seed,
                        "origin": "retrained", "of": trial.id,
                    }  # fmt: skip
        return None

    def _event(self, number: int, stage: int, budget: float | None) -> Event:
        event: Event = {"event": "issue", "trial": number, "stage": stage}
        return event if budget is None else {**event, "budget": budget}

    def _admits(self, codes: Codes) -> bool:
        if self.cost is None:
            return True
        figures = dict(self.cost(self.space.decode(codes)))
        self.known_costs[codes] = figures
        return all(o.within(figures) for o in self.objectives)

    # --- log and folders --------------------------------------------------------------------

    def _open(self, resume: bool, workers: Any, stack: contextlib.ExitStack) -> None:
        self.strategy.start(self.space, self.seed, self._admits)
        if self.directory is None:
            if resume:
                raise ConfigError("nothing to resume: the search keeps no files",
                                  fix="Search(..., directory=FOLDER)")  # fmt: skip
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trial_log = stack.enter_context(TrialLog(self.directory))
        events = self.trial_log.events
        if events and not resume:
            raise ConfigError(
                f"there is a search of {sum(e['event'] == 'finish' for e in events)} finished "
                "trials already", where=str(self.trial_log.path),
                fix="resume it, or use another folder",
            )  # fmt: skip
        if events:
            self._replay(events)

    def _replay(self, events: list[Event]) -> None:
        self._check_header(
            checked_header(events, where=str(self.trial_log and self.trial_log.path))
        )
        for event in events:
            trial = self.apply(event)
            if event["event"] == "state" and event["strategy"] != self.strategy.state():
                raise CheckpointError(
                    "the log does not lead to the state that it states",
                    where=str(self.trial_log and self.trial_log.path),
                    fix="resume with the version of scitoolkit that wrote it",
                )
            if event["event"] == "finish" and trial is not None:
                self.rank(trial)

    def _check_header(self, header: Event) -> None:
        where = str(self.trial_log and self.trial_log.path)
        if header["version"] != VERSION:
            raise CheckpointError(
                f"a log of version {header['version']}", where=where, allowed=f"version {VERSION}",
                fix="resume with the version of scitoolkit that wrote it, or start a new search",
            )  # fmt: skip
        changed = [f"space {line}" for line in self.space.difference(header["space"])]
        mine = self._settings()
        changed += [
            f"{name}: {header[name]} -> {mine[name]}"
            for name in mine
            if name != "space" and header.get(name) != mine[name]
        ]
        if changed:
            raise ConfigError(
                "resumed with another search: " + "; ".join(changed), where=where,
                fix="undo the change, or start a new search",
            )  # fmt: skip

    def _settings(self) -> dict[str, Any]:
        objectives = [{"name": o.name, "direction": o.direction, "limit": o.limit}
                      for o in self.objectives]  # fmt: skip
        return {"space": _plain(self.space.describe()), "seed": self.seed,
                "strategy": self.strategy.describe(), "objectives": objectives}  # fmt: skip

    def _header(self, resume: bool, workers: int) -> Event:
        stamp = {"workers": workers, "time": time.time(), "t": self.history.clock}
        if self.history.trials or (resume and self.trial_log is not None and self.trial_log.events):
            return {"event": "resume", **stamp}
        return {"event": "open", "version": VERSION, **self._settings(), **stamp}

    def state_event(self) -> Event:
        """Return the event that proves where a replay must lead."""
        return {"event": "state", "strategy": self.strategy.state()}

    def apply(self, event: Event) -> Trial | None:
        """Apply an event to history and strategy; all state changes pass here, on replay too."""
        trial = self.history.apply(event)
        if trial is not None and trial.of is None:
            if event["event"] == "issue":
                self.strategy.on_issue(trial)
            else:
                self.strategy.observe(trial)
        return trial

    def folder(self, trial: Trial) -> Path | None:
        """Return the folder of a trial, which may not exist."""
        if self.directory is None:
            return None
        return self.directory / "trials" / f"{trial.id:06d}"

    def rank(self, trial: Trial) -> None:
        """Note a finished trial among the best, and remove the folder of who fell out."""
        if trial.of is not None:
            return
        if trial.status == "done":
            self._kept.append(((-trial.reached, trial.values), trial.id))
            self._kept.sort()
        if self.strategy.budgets:
            return  # any of them may go on; folders are removed at the end
        out = [trial.id] if trial.status == "failed" else []
        out += [number for _, number in self._kept[self.keep :]]
        del self._kept[self.keep :]
        for number in out:
            self._remove(number)

    def _remove(self, number: int) -> None:
        folder = self.folder(self.history.trials[number])
        if folder is not None and folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_folders(self) -> None:
        if self.directory is None or self._stop_signal:
            return
        kept = {t.id for t in self.history.ranked()[: self.keep]}
        kept |= {t.id for t in self.history.trials.values() if t.of is not None}
        for trial in self.history.trials.values():
            if trial.id not in kept and trial.status != "running":
                self._remove(trial.id)

    # --- workers and signals ----------------------------------------------------------------

    def _evaluator(
        self, workers: int | Evaluator | Callable[[], Evaluator], processes: dict[str, Any]
    ) -> Evaluator:
        if isinstance(workers, Evaluator):
            return workers
        if callable(workers):
            return workers()
        if workers < 1:
            raise ConfigError(f"{workers} workers", allowed="1 or more")
        if workers == 1 and self.limits == Limits() and not processes:
            return InProcess(self.evaluate)
        logs = None if self.directory is None else self.directory / "workers"
        return Processes(self.evaluate, workers, limits=self.limits, logs=logs, **processes)

    @contextlib.contextmanager
    def _signals(self, evaluator: Evaluator) -> Iterator[None]:
        """Stop on SIGINT, SIGTERM or SIGUSR1: with the log whole and running trials to resume."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _: Any) -> None:
            self._stop_signal = signal.Signals(number).name
            if evaluator.blocking:
                raise KeyboardInterrupt

        names = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        before = {number: signal.signal(number, stop) for number in names}
        try:
            yield
        except KeyboardInterrupt:
            if not self._stop_signal:
                raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def stop_requested(self) -> bool:
        """Whether a signal has asked the search to stop."""
        return bool(self._stop_signal)


class _Loop:
    """The turns of a search over one evaluator."""

    def __init__(self, search: Search, evaluator: Evaluator, progress: Progress | None) -> None:
        self.search, self.evaluator, self.progress = search, evaluator, progress
        self.running = 0
        self.origin = evaluator.now() - search.history.clock
        self.unwritten: list[Event] = []
        self.since_state = 0

    def time(self) -> float:
        """Return the seconds of search so far."""
        return self.evaluator.now() - self.origin

    def run(self, next_event: Callable[[], Event | None], seconds: float | None) -> None:
        """Issue what `next_event` gives and collect, until it gives nothing and all is back."""
        search = self.search
        outcomes: list[Outcome] = []
        while True:
            began, cpu = time.perf_counter(), time.thread_time()
            events = [self._finish(outcome) for outcome in outcomes]
            tasks: list[Any] = []
            expired = seconds is not None and self.time() >= seconds
            if expired:
                search.stopped_because = "the time is used up"
            while not (expired or search.stop_requested) and self._free(len(tasks)) > 0:
                event = next_event()
                if event is None:
                    break
                events.append(event)
                tasks.append(self._issue(event))
            self.record(events)
            for task in tasks:
                self.evaluator.submit(task)
            self.running += len(tasks)
            self._give_up_early()
            if self.progress is not None:
                self.progress(search)
            own = time.perf_counter() - began, time.thread_time() - cpu
            search.own_seconds.append((len(outcomes), *own))
            if search.stop_requested or not self.running:
                return
            outcomes = self.evaluator.wait(self._patience(seconds, expired))
            self.running -= len(outcomes)

    def _free(self, taken: int) -> int:
        return self.evaluator.workers - self.running - taken

    def _patience(self, seconds: float | None, expired: bool) -> float | None:
        if self.evaluator.blocking:
            return None
        if seconds is None or expired:
            return _TURN
        return max(0.0, min(_TURN, seconds - self.time()))

    def reissue(self) -> None:
        """Give out again what was running when the log ended; it goes on from its checkpoint."""
        for trial in self.search.history.running:
            while self._free(0) <= 0:
                outcomes = self.evaluator.wait(_TURN)
                self.running -= len(outcomes)
                self.record([self._finish(outcome) for outcome in outcomes])
            self.evaluator.submit(self._task(trial, resumed=True))
            self.running += 1

    def _issue(self, event: Event) -> Task:
        event["t"] = round(self.time(), 6)
        trial = self.search.apply(event)
        assert trial is not None
        return self._task(trial, resumed=trial.stage > 0)

    def _task(self, trial: Trial, *, resumed: bool) -> Task:
        folder = self.search.folder(trial)
        return Task(
            trial.id, trial.stage, trial.configuration, trial.seed, trial.budget,
            None if folder is None else str(folder), resumed,
        )  # fmt: skip

    def _finish(self, outcome: Outcome) -> Event:
        search, task = self.search, outcome.task
        event: Event = {
            "event": "finish", "trial": task.trial, "stage": task.stage, "worker": outcome.worker,
            "start": round(outcome.started - self.origin, 6),
            "t": round(outcome.finished - self.origin, 6),
        }  # fmt: skip
        if outcome.cpu is not None:
            event["cpu"] = round(outcome.cpu, 6)
        if not outcome.failure:
            outcome = self._complete(outcome)
        if outcome.failure:
            event |= {"failure": outcome.failure, "error": outcome.error[-4000:]}
        else:
            event["metrics"] = outcome.metrics
        if outcome.epochs:
            event["epochs"] = outcome.epochs
        trial = search.apply(event)
        assert trial is not None
        search.rank(trial)
        return event

    def _complete(self, outcome: Outcome) -> Outcome:
        """Add the costs, and make sure that every objective is there."""
        search = self.search
        if search.cost is not None:
            codes = search.history.trials[outcome.task.trial].codes
            figures = search.known_costs.pop(codes, None)
            if figures is None:
                figures = dict(search.cost(outcome.task.configuration))
            outcome.metrics = {**figures, **outcome.metrics}
        missing = [o.name for o in search.objectives if o.name not in outcome.metrics]
        if missing:
            outcome.failure = "no result"
            found = ", ".join(outcome.metrics)
            outcome.error = f"no figure {', '.join(missing)} among {found}"
        return outcome

    def _give_up_early(self) -> None:
        history = self.search.history
        first = max(FIRST_FAILURES, 2 * self.evaluator.workers)
        if history.num_done == 0 and history.num_failed >= first:
            raise _all_failed(history, f"the first {history.num_failed}")

    def record(self, events: list[Event]) -> None:
        """Write events; when the disk is full, wait for space before giving up."""
        search = self.search
        self.since_state += sum(e["event"] == "finish" for e in events)
        if self.since_state >= STATE_EVERY:
            self.since_state = 0
            events = [*events, search.state_event()]
        if events and events[0]["event"] in ("open", "resume") and not search.history.trials:
            search.history.apply(events[0])
        if search.trial_log is None or not events:
            return
        until = time.monotonic() + search.disk_patience
        while True:
            try:
                return search.trial_log.append(events)
            except ScitoolkitError as error:
                if time.monotonic() >= until:
                    raise
                log.warning("%s; trying again", error)
                time.sleep(min(1.0, search.disk_patience / 10))


def _all_failed(history: History, which: str) -> ScitoolkitError:
    last = next(t for t in reversed(history.trials.values()) if t.status == "failed")
    return ScitoolkitError(
        f"{which} trials have all failed; the last: {last.failure}: "
        f"{last.error.strip().splitlines()[-1]}",
        fix="evaluate one configuration by hand",
    )


def _check_arguments(evaluate: Any, objectives: Any, seed: Any, keep: Any) -> None:
    if not callable(evaluate):
        raise ConfigError(f"evaluate is {evaluate!r}", allowed="a function of a configuration")
    if isinstance(objectives, str | Objective) or not objectives:
        raise ConfigError(f"objectives are {objectives!r}", allowed='a list, such as ["loss"]')
    names = [o if isinstance(o, str) else o.name for o in objectives]
    if len(set(names)) < len(names):
        raise ConfigError(f"objectives {', '.join(names)}: one is named twice")
    for name, value in {"seed": seed, "keep": keep}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} is {value!r}", allowed="a whole number from 0")


def _check_budget(trials: Any, seconds: Any) -> None:
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int)):
        raise ConfigError(f"trials is {trials!r}", allowed="a whole number")
    if trials is not None and trials < 1:
        raise ConfigError(f"trials is {trials}", allowed="1 or more")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds is {seconds}", allowed="more than 0")


def _plain(value: Any) -> Any:
    """Return data as it looks after JSON."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
