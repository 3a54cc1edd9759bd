"""Pruning: trials that are worse than most earlier ones at the same epoch are stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.search.epoch_bounds import EpochBounds
from scitoolkit.search.history import History


@dataclass(frozen=True)
class MedianPruning:
    """Median stopping rule, for evaluations that call `trial.report` in every epoch.

    A trial is stopped at an epoch if its best report so far is worse than the median of the
    finished trials' reports at that epoch. The bounds are computed from the history when a trial
    is issued. A pruned trial has no result: it is not ranked, and the
    Gaussian process assigns it the upper quartile of the losses.

    Args:
        metric: name of a reported metric.
        direction: `min` or `max`.
        trials: number of finished trials before any is stopped.
        epochs: last epoch at which no trial is stopped.

    Raises:
        ConfigError: another direction, or fewer than 1 trial or 0 epochs.

    Source:
        Golovin et al. 2017, doi:10.1145/3097983.3098043, section 3.2.2, with the reports in place
        of their running means, as in Optuna's `MedianPruner`.

    Example:
        >>> from scitoolkit.search import MedianPruning, Search, real
        >>> def evaluate(configuration, trial):
        ...     for epoch in range(1, 11):
        ...         trial.report(epoch, loss=configuration["x"] + 1 / epoch)
        ...     return configuration["x"]
        >>> search = Search({"x": real(0, 1)}, evaluate, pruning=MedianPruning("loss"))
        >>> search.run(trials=20).num_pruned > 0
        True
    """

    metric: str
    direction: Literal["min", "max"] = "min"
    trials: int = 5
    epochs: int = 1

    def __post_init__(self) -> None:
        """Validate the arguments."""
        if self.direction not in ("min", "max") or not (self.trials >= 1 and self.epochs >= 0):
            raise ConfigError(
                f"direction {self.direction!r}, trials {self.trials}, epochs {self.epochs}",
                where="pruning",
                allowed="direction min or max, trials >= 1, epochs >= 0",
            )

    def bounds(self, history: History) -> EpochBounds:
        """Return the bounds of a trial that begins after the trials of a history."""
        sign = 1 if self.direction == "min" else -1
        reports: dict[int, list[float]] = {}
        for trial in history.done:
            for row in trial.epochs:
                value, epoch = row.get(self.metric), row["epoch"]
                if value is not None and epoch is not None and epoch > self.epochs:
                    reports.setdefault(int(epoch), []).append(sign * value)
        bounds = {e: float(np.median(v)) for e, v in reports.items() if len(v) >= self.trials}
        return EpochBounds(self.metric, sign, bounds)
