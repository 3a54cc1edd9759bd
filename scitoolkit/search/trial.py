"""A trial: one configuration, what it was asked to do, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scitoolkit.core.errors import ConfigError

Direction = Literal["min", "max"]
INTERRUPTIONS = frozenset({"disk", "machine"})
"""Failures caused by the machine instead of the configuration: such a trial stays unfinished."""


@dataclass(frozen=True)
class Objective:
    """A figure that a search makes small or large.

    Attributes:
        name: of the metric that an evaluation returns.
        direction: whether small or large is good.
        limit: configurations beyond it do not count; when the cost function knows the figure
            beforehand, they are never tried, else the strategy learns where the limit is kept.
        constraint: whether the limit is all that counts: below it, smaller is no better.
    """

    name: str
    direction: Direction = "min"
    limit: float | None = None
    constraint: bool = False

    def __post_init__(self) -> None:
        """Refuse a direction that is none: anything but `min` would be maximised."""
        if self.direction not in ("min", "max"):
            raise ConfigError(
                f"direction {self.direction!r}", where=f"objective {self.name}", allowed="min, max"
            )
        if self.limit is not None and not math.isfinite(self.limit):
            raise ConfigError(f"limit {self.limit}", where=f"objective {self.name}",
                              allowed="a finite number, or none")  # fmt: skip
        if self.constraint and self.limit is None:
            raise ConfigError("a constraint without a limit", where=f"objective {self.name}",
                              fix="limit=...")  # fmt: skip

    def loss(self, metrics: Mapping[str, Any]) -> float:
        """Return the figure as something to minimise."""
        value = float(metrics[self.name])
        return value if self.direction == "min" else -value

    def within(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether the limit is kept; True when the figure is not known."""
        return self.excess(metrics) <= 0

    def excess(self, metrics: Mapping[str, Any]) -> float:
        """Return how far the figure is beyond the limit, in units of the limit; 0 within.

        Example:
            >>> Objective("memory", limit=4.0).excess({"memory": 5.0})
            0.25
        """
        if self.limit is None or self.name not in metrics:
            return 0.0
        beyond = (float(metrics[self.name]) - self.limit) * (1 if self.direction == "min" else -1)
        return max(0.0, beyond / (abs(self.limit) or 1.0))


@dataclass(frozen=True)
class Task:
    """What a worker is asked to do: all of it plain data that can be sent anywhere.

    Attributes:
        trial: number of the trial.
        stage: 0, and one more each time the trial is given a larger budget.
        configuration: parameters by name.
        seed: of this trial.
        budget: epochs (or what the evaluation counts in) at which to stop; None means its own.
        directory: folder for checkpoints; it is made when first asked for.
        resumed: whether an earlier attempt or stage may have left a checkpoint there.
    """

    trial: int
    stage: int
    configuration: dict[str, Any]
    seed: int
    budget: float | None = None
    directory: str | None = None
    resumed: bool = False


@dataclass
class Outcome:
    """What a worker hands back.

    Attributes:
        task: what was asked for.
        metrics: figures by name, when it succeeded.
        failure: the kind of failure, "" when it succeeded.
        error: message or traceback of the failure.
        epochs: metrics of every epoch reported.
        started, finished: clock of the manager, seconds.
        cpu: CPU seconds used, None when not known.
        worker: number of the worker.
    """

    task: Task
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    error: str = ""
    epochs: list[dict[str, float]] = field(default_factory=list)
    started: float = 0.0
    finished: float = 0.0
    cpu: float | None = None
    worker: int = 0


@dataclass
class Trial:
    """Everything known of one trial; `stage` counts the budgets it was given."""

    id: int
    codes: tuple[Any, ...]
    configuration: dict[str, Any]
    seed: int
    origin: str = ""
    parent: int | None = None
    of: int | None = None
    stage: int = 0
    budget: float | None = None
    status: Literal["running", "done", "failed"] = "running"
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    error: str = ""
    epochs: list[dict[str, float]] = field(default_factory=list)
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    cpu: float = 0.0
    values: tuple[float, ...] = ()
    """Objectives of the last finished stage, all to be minimised."""
    reached: int = -1
    """Last finished stage."""
    violation: float = 0.0
    """Sum over limits of how far they are exceeded, each in units of the limit; 0 if all hold."""

    @property
    def wall(self) -> float:
        """Seconds that workers spent on it."""
        return sum(end - start for start, end, _ in self.spans)


class TrialContext:
    """What an evaluation may use besides its configuration: seed, budget, folder, reports.

    An evaluation is `evaluate(configuration)` or `evaluate(configuration, trial)` with this as
    `trial`, and returns a number or a dictionary of figures.
    """

    def __init__(self, task: Task, send: Callable[[dict[str, float]], None] | None = None) -> None:
        self._task, self._send = task, send
        self.seed: int = task.seed
        self.budget: float | None = task.budget
        self.number: int = task.trial
        self.epochs: list[dict[str, float]] = []

    @property
    def directory(self) -> Path:
        """Folder of this trial, kept between attempts and stages."""
        if self._task.directory is None:
            raise ConfigError("this search keeps no files", fix="Search(..., directory=FOLDER)")
        path = Path(self._task.directory)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt or a smaller budget may have left a checkpoint."""
        return self._task.resumed

    def report(self, epoch: int, **metrics: float) -> None:
        """Tell how an epoch went: kept in the log, and a sign of life for the manager."""
        row = {"epoch": epoch, **{name: float(value) for name, value in metrics.items()}}
        self.epochs.append(row)
        if self._send is not None:
            self._send(row)


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a text")
    return float(value)


def checked_metrics(result: Any) -> tuple[dict[str, float], str, str]:
    """Return (metrics, kind of failure, message) of what an evaluation returned.

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
    given = result if isinstance(result, Mapping) else {"objective": result}
    try:
        metrics = {str(name): _number(value) for name, value in given.items()}
    except (TypeError, ValueError):
        return {}, "no result", f"the evaluation returned {result!r:.200}, not numbers by name"
    if not metrics:
        return {}, "no result", "the evaluation returned an empty dictionary"
    bad = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if bad:
        return {}, "not finite", f"the evaluation returned {bad}"
    return metrics, "", ""
