"""Trials of a search: objective, task, outcome, record and evaluation context."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from scitoolkit.core.errors import ConfigError
from scitoolkit.search.epoch_bounds import EpochBounds
from scitoolkit.search.reports import write_report

Direction = Literal["min", "max", "equal"]
INTERRUPTED = "interrupted"
"""Failure of a trial whose training was stopped by a signal: the search stops as well."""
PRUNED = "pruned"
"""Failure, in an outcome, of a trial that was stopped for its reports; it counts as no failure."""
IMPORTED = "imported"
"""Origin of a trial that another program evaluated: it does not count for the budget."""
INTERRUPTIONS = frozenset({"disk", "machine", INTERRUPTED})
"""Failures not caused by the configuration: such a trial stays unfinished."""


@dataclass(frozen=True)
class Objective:
    """Metric that a search minimises or maximises, or a constraint on a metric.

    Attributes:
        name: of a metric returned by the evaluation or by the cost function.
        direction: `min`, `max`, or `equal` for a constraint that is met within `tolerance` of
            `limit`.
        limit: bound beyond which a configuration is infeasible. If the cost function returns the
            metric, infeasible configurations are not evaluated; otherwise strategies use the
            excess of finished trials.
        constraint: whether only the limit matters, so that the metric is not optimised.
        tolerance: largest allowed distance from the limit of an equality.

    Raises:
        ConfigError: unknown direction, non-finite limit, a constraint without a limit, or an
            equality that is no constraint or has no positive tolerance.
    """

    name: str
    direction: Direction = "min"
    limit: float | None = None
    constraint: bool = False
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        """Validate direction and limit."""
        if self.direction not in get_args(Direction):
            raise ConfigError(
                f"direction {self.direction!r}",
                where=f"objective {self.name}",
                allowed="min, max, equal",
            )
        equality = self.direction == "equal"
        within = 0 < self.tolerance < math.inf
        if (equality and not (self.constraint and within)) or (self.tolerance and not equality):
            raise ConfigError(
                f"direction {self.direction} with a tolerance of {self.tolerance}",
                where=f"objective {self.name}",
                allowed="an equality is a constraint with a tolerance above 0; others have none",
                fix=f'Objective({self.name!r}, "equal", limit=..., constraint=True, tolerance=...)',
            )
        if self.limit is not None and not math.isfinite(self.limit):
            raise ConfigError(
                f"limit {self.limit}",
                where=f"objective {self.name}",
                allowed="a finite number, or none",
            )
        if self.constraint and self.limit is None:
            raise ConfigError(
                "a constraint without a limit", where=f"objective {self.name}", fix="limit=..."
            )

    def loss(self, metrics: Mapping[str, Any]) -> float:
        """Return the metric, negated for `max`, so that smaller is better."""
        value = float(metrics[self.name])
        return value if self.direction == "min" else -value

    def within(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether the limit is satisfied; True if the metric is missing."""
        return self.excess(metrics) <= 0

    def excess(self, metrics: Mapping[str, Any]) -> float:
        """Return the violation of the limit relative to its absolute value; 0 if satisfied.

        Example:
            >>> Objective("memory", limit=4.0).excess({"memory": 5.0})
            0.25
        """
        if self.limit is None or self.name not in metrics:
            return 0.0
        value = metrics[self.name]
        if value is None or math.isnan(value):
            return math.inf  # an unknown value satisfies no limit
        beyond = (float(value) - self.limit) * (1 if self.direction == "min" else -1)
        if self.direction == "equal":
            beyond = abs(beyond) - self.tolerance
        return max(0.0, beyond / (abs(self.limit) or 1.0))


@dataclass(frozen=True)
class TrialTask:
    """Unit of work for a worker, as plain serialisable data.

    Attributes:
        trial: number of the trial.
        stage: 0 for the first budget, incremented with each larger budget.
        configuration: values of the parameters by name.
        seed: of this trial.
        budget: number of epochs (or of the evaluation's own unit) at which to stop; None for the
            evaluation's default.
        directory: folder for checkpoints, created on first access.
        resumed: whether an earlier attempt or stage may have left a checkpoint in the folder.
        bounds: on the reported metrics, beyond which the trial is pruned.
    """

    trial: int
    stage: int
    configuration: dict[str, Any]
    seed: int
    budget: float | None = None
    directory: str | None = None
    resumed: bool = False
    bounds: EpochBounds | None = None


@dataclass
class Outcome:
    """Result of a task.

    Attributes:
        task: the task.
        metrics: values by name, if it succeeded; None for values that are not finite.
        failure: kind of failure, "" if it succeeded.
        error: message or traceback of the failure.
        epochs: reported metrics of every epoch.
        started, finished: seconds on the evaluator's clock.
        cpu: CPU seconds, None if unknown.
        worker: number of the worker.
    """

    task: TrialTask
    metrics: dict[str, float | None] = field(default_factory=dict)
    failure: str = ""
    error: str = ""
    epochs: list[dict[str, float]] = field(default_factory=list)
    started: float = 0.0
    finished: float = 0.0
    cpu: float | None = None
    worker: int = 0


@dataclass
class Trial:
    """State of a trial, updated by the events of the log.

    Attributes:
        id: number of the trial.
        codes: of the configuration; see `Space.encode`.
        configuration: values of the parameters by name.
        seed: of the evaluation.
        origin: how the strategy found the configuration, such as `random` or `mutation`.
        parent: trial from which the configuration was mutated.
        of: trial that this one retrains with another seed.
        stage: number of its current budget.
        budget: at which the current stage stops.
        status: `running` until a result, a failure or pruning is logged.
        metrics: of the last finished stage.
        failure, error: of the last attempt.
        epochs: reported metrics of every epoch.
        spans: (start, stop, worker) of every attempt, seconds of search.
        cpu: CPU seconds of all attempts.
    """

    id: int
    codes: tuple[Any, ...]
    configuration: dict[str, Any]
    seed: int
    origin: str = ""
    parent: int | None = None
    of: int | None = None
    stage: int = 0
    budget: float | None = None
    status: Literal["running", "done", "failed", "pruned"] = "running"
    metrics: dict[str, float | None] = field(default_factory=dict)
    failure: str = ""
    error: str = ""
    epochs: list[dict[str, float | None]] = field(default_factory=list)
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    cpu: float = 0.0
    values: tuple[float, ...] = ()
    """Losses of the last finished stage, one per objective; smaller is better."""
    reached: int = -1
    """Last finished stage, -1 before the first."""
    violation: float = 0.0
    """Sum of the relative violations of all limits; 0 if the trial is feasible."""
    first_stage: int = 0
    """Number of its first budget; above 0 in the later brackets of Hyperband."""
    manager: str = ""
    """Manager that runs it, where several share a log."""
    outside: bool = False
    """Whether the configuration is outside the space, which changed: the trial is set aside."""

    @property
    def searched(self) -> bool:
        """Whether the trial counts for the search: inside its space, and not a retrained one."""
        return self.of is None and not self.outside

    @property
    def wall(self) -> float:
        """Wall seconds of all attempts."""
        return sum(end - start for start, end, _ in self.spans)


class TrialContext:
    """Context of an evaluation: seed, budget, checkpoint folder and epoch reports.

    An evaluation is `evaluate(configuration)` or `evaluate(configuration, trial)`, where `trial`
    is this object; it returns a number or a dictionary of metrics.

    Attributes:
        seed: of the trial.
        budget: at which to stop, None for the evaluation's default.
        number: of the trial.
        epochs: metrics reported so far.
    """

    def __init__(
        self, task: TrialTask, send: Callable[[dict[str, float]], None] | None = None
    ) -> None:
        self._task, self._send = task, send
        self.seed: int = task.seed
        self.budget: float | None = task.budget
        self.number: int = task.trial
        self.epochs: list[dict[str, float]] = []

    @property
    def directory(self) -> Path:
        """Folder of this trial, shared by its attempts and stages; created on first access.

        Raises:
            ConfigError: the search has no directory.
        """
        if self._task.directory is None:
            raise ConfigError("this search has no directory", fix="Search(..., directory=FOLDER)")
        path = Path(self._task.directory)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt or stage may have left a checkpoint."""
        return self._task.resumed

    def report(self, epoch: int, **metrics: float) -> None:
        """Report the metrics of an epoch; they are logged, and shown while the trial runs.

        An exception ends the trial here if its time is used up or if it is pruned.
        """
        row = {"epoch": epoch, **{name: float(value) for name, value in metrics.items()}}
        self.epochs.append(row)
        if self._task.directory is not None:
            # A worker of another machine may not reach the folder; the log has all at the end.
            with contextlib.suppress(OSError):
                write_report(self.directory, finite_or_none(row), first=len(self.epochs) == 1)
        if self._send is not None:
            self._send(row)
        if self._task.bounds is not None:
            self._task.bounds.check(self.epochs)


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a string is not a number")
    return float(value.item() if hasattr(value, "item") else value)  # an array of one number


def finite_or_none(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return metrics with None, JSON's null, for values that are not finite.

    Example:
        >>> finite_or_none({"loss": 0.5, "r2": float("nan")})
        {'loss': 0.5, 'r2': None}
    """
    return {n: v if v is not None and math.isfinite(v) else None for n, v in metrics.items()}


def checked_metrics(result: Any) -> tuple[dict[str, float | None], str, str]:
    """Return (metrics, kind of failure, error message) for the return value of an evaluation.

    At least one metric must be finite; which ones, the objectives of the search decide.

    Example:
        >>> checked_metrics(0.5)
        ({'objective': 0.5}, '', '')
        >>> checked_metrics(float("nan"))[1]
        'not finite'
        >>> checked_metrics({"loss": "0.5"})[1]
        'no result'
    """
    if result is None:
        return {}, "no result", "the evaluation returned nothing"
    named = result if isinstance(result, Mapping) else {"objective": result}
    try:
        numbers = {str(name): _number(value) for name, value in named.items()}
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last by tensors
        return {}, "no result", f"the evaluation returned {result!r:.200}, not numbers by name"
    if not numbers:
        return {}, "no result", "the evaluation returned an empty dictionary"
    if not any(math.isfinite(value) for value in numbers.values()):
        return {}, "not finite", f"the evaluation returned {numbers}"
    return {**numbers}, "", ""
