"""Search manager: evaluates proposed configurations until the budget is exhausted."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import ConfigError, Interrupted
from scitoolkit.core.log import get_logger
from scitoolkit.core.seeds import derive_seed
from scitoolkit.search.asking import Asking
from scitoolkit.search.evaluators import Evaluator, InProcess, Limits
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.history import Event, History
from scitoolkit.search.importing import ImportedTrial, read_trials
from scitoolkit.search.json_values import json_data, without_numpy
from scitoolkit.search.loop import FIRST_FAILURES, Loop, all_failed, interrupted
from scitoolkit.search.pruning import MedianPruning
from scitoolkit.search.record import SearchRecord
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies import GaussianProcessSearch, SpaceExhausted, Strategy
from scitoolkit.search.strategies.base import Proposal
from scitoolkit.search.table import write_csv
from scitoolkit.search.trial import IMPORTED, Objective, Outcome, finite_or_none
from scitoolkit.search.worker import Evaluate

log: Logger = get_logger(__name__)

Cost = Callable[[dict[str, Any]], Mapping[str, float]]
Progress = Callable[["Search"], None]
# Stream numbers of `derive_seed`: seeds of trials and of retraining are independent.
_TRIAL, _RETRAIN = 1, 2


class Search:
    """Search over a space for configurations that optimise one or several objectives.

    No configuration is evaluated twice, and an interrupted search continues from its log.

    Args:
        space: a `Space` or its parameters.
        evaluate: `evaluate(configuration)` or `evaluate(configuration, trial)`, which returns a
            number or metrics by name; `trial` is a `TrialContext`. None if the caller runs the
            trials (`asking`).
        directory: run directory for the log and checkpoints, required by `resume`. None stores
            everything in memory.
        strategy: proposes configurations; default `GaussianProcessSearch()`.
        objectives: names or `Objective`s. An evaluation that returns a number has the single
            metric `objective`.
        cost: returns metrics of a configuration that are known without training, such as its
            number of parameters. They are added to the metrics of the trial, and configurations
            that exceed a limit on them are not evaluated.
        seed: of the proposals and of every trial.
        limits: time and memory limits of a trial.
        keep: number of best trials whose folders are retained.
        disk_patience: seconds during which a log that cannot be written is retried.
        patience: number of failures before the first success at which the search stops.
        pruning: stops trials that are worse than most earlier ones at the same epoch.

    Attributes:
        history: all trials.
        stopped_because: reason why the search ended.

    Raises:
        ConfigError: invalid arguments.
        ConfigProblems: an invalid space.

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
        evaluate: Evaluate | None,
        *,
        directory: Path | str | None = None,
        strategy: Strategy | None = None,
        objectives: Sequence[str | Objective] = ("objective",),
        cost: Cost | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        keep: int = 5,
        disk_patience: float = 60.0,
        patience: int = FIRST_FAILURES,
        pruning: MedianPruning | None = None,
    ) -> None:
        seed, keep, patience = map(without_numpy, (seed, keep, patience))
        _check_arguments(evaluate, objectives, seed, keep)
        _check_budget(patience, None, "patience")
        self.patience: int = patience
        self.space: Space = space if isinstance(space, Space) else Space(space)
        self.evaluate: Evaluate | None = evaluate
        self.cost: Cost | None = cost
        self.seed: int = seed
        self.directory: Path | None = None if directory is None else Path(directory)
        self.strategy: Strategy = strategy or GaussianProcessSearch()
        self.pruning: MedianPruning | None = pruning
        if pruning is not None and self.strategy.budgets:
            raise ConfigError(
                "successive halving and pruning both stop trials", fix="only one of the two"
            )
        self.objectives: tuple[Objective, ...] = tuple(
            Objective(o) if isinstance(o, str) else o for o in objectives
        )
        self._names = [o.name for o in self.objectives]
        self.limits: Limits = limits or Limits()
        self.record: SearchRecord = SearchRecord(
            self.space,
            self.strategy,
            self.objectives,
            seed=seed,
            directory=self.directory,
            keep=keep,
            disk_patience=disk_patience,
        )
        self.history: History = self.record.history
        self.own_seconds: list[tuple[int, float, float]] = []
        """(trials finished, wall seconds, CPU seconds) of the manager, per iteration."""
        self.stopped_because = ""
        self._stop_signal = ""
        self._exhausted = False
        self._known_costs: dict[Codes, dict[str, float]] = {}
        self._queue: list[Codes] = []
        self._imported: list[ImportedTrial] = []

    def import_trials(self, source: Any) -> Search:
        """Give the strategy the finished trials of another program; return self.

        They are logged when the search begins or resumes, rank with the others, and do not count
        as `trials` of `run`. Those already in the log are skipped.

        Args:
            source: study of Optuna, path of a CSV file (DeepHyper's, ours, or any table with
                columns of parameters and objectives), DataFrame, `History`, or pairs
                (configuration, number or metrics); see `scitoolkit.search.importing.read_trials`.

        Raises:
            ConfigError: parameters or objectives are missing, the directions differ, or the
                strategy gives trials budgets.
            DataError: the file cannot be read, or no trial lies in the space.

        Example:
            >>> from scitoolkit.search import Search, real
            >>> search = Search({"x": real(0, 1)}, lambda c: (c["x"] - 0.3) ** 2)
            >>> history = search.import_trials([({"x": 0.3}, 0.0)]).run(trials=4)
            >>> len(history.done), history.best.configuration
            (5, {'x': 0.3})
        """
        if self.strategy.budgets:
            raise ConfigError(
                "successive halving knows no budget of imported trials",
                where="import_trials",
                fix="a strategy without halving",
            )
        trials = read_trials(source, self.space, self.objectives)
        for trial in trials:
            if trial.failure:
                continue
            costs = {} if self.cost is None else self.cost(self.space.decode(trial.codes))
            if missing := [n for n in self._names if n not in trial.metrics and n not in costs]:
                raise ConfigError(
                    f"imported trials have no metric {', '.join(missing)}",
                    where="import_trials",
                    allowed=", ".join(trial.metrics),
                )
        self._imported += trials
        return self

    def enqueue(self, *configurations: Mapping[str, Any]) -> Search:
        """Evaluate given configurations before the strategy's proposals; return self.

        They count as trials and are passed to the strategy. After a resume, those already in the
        log are skipped.

        Args:
            configurations: with a value for every active parameter.

        Raises:
            ConfigError: a name or value outside the space, or a configuration that `where`
                excludes.

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
                    f"{dict(configuration)} does not satisfy the space's `where`", where="enqueue"
                )
            self._queue.append(codes)
        return self

    # --- running a search -------------------------------------------------------------------

    def run(
        self,
        *,
        trials: int | None = None,
        seconds: float | None = None,
        workers: int | Evaluator | Callable[[], Evaluator] = 1,
        resume: bool = False,
        shared: bool = False,
        retrain: tuple[int, int] | None = None,
        progress: Progress | None = None,
        **processes: Any,
    ) -> History:
        """Run the search until trials or time are used up or the space is exhausted.

        Args:
            trials: number of configurations to evaluate, including earlier sessions.
            seconds: wall time of the search, including earlier sessions; running trials are
                completed.
            workers: number of workers: 1 runs in this process, more start processes; or an
                `Evaluator`, or a function that starts one.
            resume: continue the log in `directory`.
            shared: begin or join a search of several managers, which call `run` with the same
                arguments in other processes, on this machine or on others with the same file
                system (with `flock`). Each waits until all trials are finished, and takes over
                those of a manager that was killed.
            retrain: (number of best configurations, number of seeds) to retrain before the
                final ranking.
            progress: called after every iteration of the loop.
            processes: arguments of `Processes`, such as `threads` or `gpus`.

        Returns:
            The history of all trials.

        Raises:
            ConfigError: an infinite space without `trials` and `seconds`, or a log of another
                search.
            LogLocked: another process writes the log.
            ScitoolkitError: the log cannot be written, all (or the first) trials failed, or
                faults of the machine stop trial after trial.
            Interrupted: SIGINT, SIGTERM or SIGUSR1; `resume` continues the search.
        """
        if trials is None and seconds is None and self.space.size == float("inf"):
            raise ConfigError("an infinite space needs a budget", fix="trials=N or seconds=S")
        trials, workers = without_numpy(trials), without_numpy(workers)
        _check_budget(trials, seconds)
        with contextlib.ExitStack() as stack:
            self.record.open(resume, self._admits, stack, shared)
            evaluator = self._evaluator(workers, processes)
            stack.callback(evaluator.close)
            stack.enter_context(self._signals(evaluator))
            self.history.workers = evaluator.workers
            loop = Loop(
                self.record,
                evaluator,
                complete=self._complete,
                stop_requested=lambda: self.stop_requested,
                after_turn=lambda: None if progress is None else progress(self),
                own_seconds=self.own_seconds,
                patience=self.patience,
                pruning=self.pruning,
            )
            with self.record.turn():
                self.record.write([self.record.header(evaluator.workers)])
                self._log_imported(loop)
            loop.reissue()
            if loop.run(lambda: self._next(trials), seconds):
                self.stopped_because = "the time is used up"
            if retrain is not None and not loop.stop_requested():
                loop.retraining = True
                loop.run(lambda: self._next_retrain(*retrain), None)
            if loop.trial_interrupted and not self._stop_signal:
                self._stop_signal = "a signal to a trial"
            self._end_session()
            if not self._stop_signal:
                self._check_failures()
        if self._stop_signal:
            raise Interrupted(
                f"stopped by {self._stop_signal} after {self.history.num_done} trials",
                fix="continue with --resume" if self.directory else "",
            )
        return self.history

    @contextlib.contextmanager
    def asking(self, *, resume: bool = False, shared: bool = False) -> Iterator[Asking]:
        """Yield an ask-and-tell interface, for trials run by the caller.

        Log, resume, queue, limits and strategy are those of `run`; a search begun with one method
        can be continued with the other. `evaluate` is not called and may be None.

        Args:
            resume: continue the log in `directory`.
            shared: begin or join a search of several managers; see `run`.

        Raises:
            ConfigError: the log belongs to another search.
            LogLocked: another process writes the log.

        Example:
            >>> from scitoolkit.search import Search, real
            >>> search = Search({"x": real(0, 1)}, None)
            >>> with search.asking() as asking:
            ...     for _ in range(10):
            ...         trial = asking.ask()
            ...         _ = asking.tell(trial, (trial.configuration["x"] - 0.3) ** 2)
            >>> search.history.best.values[0] < 0.01
            True
        """
        with contextlib.ExitStack() as stack:
            self.record.open(resume, self._admits, stack, shared)
            clock = InProcess(self.evaluate or _nothing)
            loop = Loop(
                self.record,
                clock,
                complete=self._complete,
                stop_requested=lambda: False,
                after_turn=lambda: None,
                own_seconds=self.own_seconds,
                patience=self.patience,
                pruning=self.pruning,
            )
            with self.record.turn():
                self.record.write([self.record.header(clock.workers)])
                self._log_imported(loop)
            yield Asking(loop, lambda: self._next(None))
            self._end_session()

    def _end_session(self) -> None:
        with self.record.turn():
            self.record.write(self.record.last_events())
            if not self._stop_signal:
                self.record.remove_folders()
            if self.directory is not None:
                write_csv(self.history, self.directory)

    def _check_failures(self) -> None:
        """Raise if no trial has a result; warn if most trials failed or some were interrupted."""
        history = self.history
        if history.interrupted:
            if not history.num_done:
                raise interrupted(history, f"{len(history.interrupted)} trials")
            log.warning(
                "%d trials were stopped by a fault of the machine (%s) and have no result. "
                "Fix: continue with --resume, which evaluates them again",
                len(history.interrupted),
                history.interrupted[-1].error.strip().splitlines()[-1],
            )
        if history.num_failed and not history.num_done:
            raise all_failed(history, f"all {history.num_failed}")
        if history.num_failed > history.num_done:
            kinds = ", ".join(f"{count} {kind}" for kind, count in history.failures().items())
            log.warning("more trials failed than succeeded: %s", kinds)

    # --- next trial -------------------------------------------------------------------------

    def _next(self, trials: int | None) -> Event | None:
        """Return the event that issues the next trial, or None if there is none at present."""
        if self._exhausted and not self.strategy.budgets:
            return None
        enough = trials is not None and self.history.num_searched >= trials
        if enough and not self.strategy.budgets:  # no promotions: skip the proposal
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
        return self._new_event(proposal)

    def _new_event(self, proposal: Proposal) -> Event:
        """Return the event that issues a new configuration."""
        number = len(self.history.trials)
        event = self._event(number, proposal.stage, proposal.budget)
        event |= {
            "codes": list(proposal.codes),
            "values": json_data(self.space.decode(proposal.codes)),
            "seed": derive_seed(self.seed, _TRIAL, number),
            "origin": proposal.origin,
        }
        if proposal.parent is not None:
            event["parent"] = proposal.parent
        return event

    def _log_imported(self, loop: Loop) -> None:
        """Log the imported trials that the log does not hold."""
        events: list[Event] = []
        for trial in self._imported:
            if trial.codes in self.strategy.seen:
                continue
            events.append(self._new_event(Proposal(trial.codes, IMPORTED)))
            task, now = loop.issue(events[-1]), loop.evaluator.now()
            failure = "imported" if trial.failure else ""
            outcome = Outcome(task, dict(trial.metrics), failure, trial.failure, [], now, now)
            # Issued and finished in one write: no imported trial is left running, which a resumed
            # search would evaluate.
            events.append(loop.finish(outcome))
        self.record.write(events)

    def _enqueued(self) -> Proposal | None:
        """Return the first enqueued configuration that is new and within the cost limits."""
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
                # Derived from trial and repetition, not drawn: a resumed search recognises what is
                # done.
                seed = derive_seed(self.seed, _RETRAIN, trial.id, k)
                if (trial.id, seed) not in done:
                    event = self._event(
                        len(self.history.trials), 0, budgets[-1] if budgets else None
                    )
                    return event | {
                        "codes": list(trial.codes),
                        "values": trial.configuration,
                        "seed": seed,
                        "origin": "retrained",
                        "of": trial.id,
                    }
        return None

    def _event(self, number: int, stage: int, budget: float | None) -> Event:
        event: Event = {"event": "issue", "trial": number, "stage": stage}
        return event if budget is None else {**event, "budget": budget}

    def _admits(self, codes: Codes) -> bool:
        if self.cost is None:
            return True
        figures = dict(self.cost(self.space.decode(codes)))
        self._known_costs[codes] = figures
        return all(o.within(figures) for o in self.objectives)

    def _complete(self, outcome: Outcome) -> Outcome:
        """Add the costs to the metrics; a missing objective becomes the failure `no result`."""
        if self.cost is not None:
            codes = self.history.trials[outcome.task.trial].codes
            figures = self._known_costs.pop(codes, None)
            if figures is None:
                figures = dict(self.cost(outcome.task.configuration))
            outcome.metrics = {**figures, **outcome.metrics}
        missing = [name for name in self._names if name not in outcome.metrics]
        if missing:
            outcome.failure = "no result"
            names = ", ".join(outcome.metrics)
            outcome.error = f"no metric {', '.join(missing)} among {names}"
            return outcome
        unknown = {n: outcome.metrics[n] for n in self._names if not _is_finite(outcome.metrics[n])}
        if unknown:
            outcome.failure = "not finite"
            outcome.error = f"the evaluation returned {unknown}"
            outcome.metrics = {}
        outcome.metrics = finite_or_none(outcome.metrics)
        return outcome

    # --- workers and signals ----------------------------------------------------------------

    def _evaluator(
        self, workers: int | Evaluator | Callable[[], Evaluator], processes: dict[str, Any]
    ) -> Evaluator:
        if isinstance(workers, Evaluator):
            return workers
        if callable(workers):
            return workers()
        if self.evaluate is None:
            raise ConfigError("evaluate is None", where="run", fix="Search(space, FUNCTION)")
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ConfigError(f"{workers!r} workers", allowed="1 or more")
        if workers == 1 and self.limits == Limits() and not processes:
            return InProcess(self.evaluate)
        logs = None if self.directory is None else self.directory / "workers"
        return Processes(self.evaluate, workers, limits=self.limits, logs=logs, **processes)

    @contextlib.contextmanager
    def _signals(self, evaluator: Evaluator) -> Iterator[None]:
        """Stop cleanly on SIGINT, SIGTERM or SIGUSR1; running trials are resumed later."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _: Any) -> None:
            self._stop_signal = signal.Signals(number).name
            # A blocking evaluator waits in code of others, which only an exception leaves; the loop
            # over any other one asks `stop_requested` after each turn.
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
        """Whether a stop signal was received."""
        return bool(self._stop_signal)


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _nothing(configuration: Any) -> None:
    """Placeholder for an evaluation that is never called."""


def _check_arguments(evaluate: Any, objectives: Any, seed: Any, keep: Any) -> None:
    if not (evaluate is None or callable(evaluate)):
        raise ConfigError(f"evaluate is {evaluate!r}", allowed="a function of a configuration")
    # The keys of a mapping from names to directions would all be minimised.
    if isinstance(objectives, str | Objective | Mapping | Set) or not objectives:
        raise ConfigError(
            f"objectives are {objectives!r}",
            allowed='a list, such as ["loss", Objective("accuracy", "max")]',
        )
    if all(isinstance(o, Objective) and o.constraint for o in objectives):
        raise ConfigError(
            "all objectives are constraints", allowed="at least one to minimise or maximise"
        )
    names = [o if isinstance(o, str) else o.name for o in objectives]
    if len(set(names)) < len(names):
        raise ConfigError(f"objectives {', '.join(names)}: one is named twice")
    for name, value in {"seed": seed, "keep": keep}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} is {value!r}", allowed="an integer >= 0")


def _check_budget(trials: Any, seconds: Any, name: str = "trials") -> None:
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int)):
        raise ConfigError(f"{name} is {trials!r}", allowed="an integer >= 1")
    if trials is not None and trials < 1:
        raise ConfigError(f"{name} is {trials}", allowed="1 or more")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds is {seconds}", allowed="more than 0")
