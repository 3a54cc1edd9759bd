"""Bounds on what a trial reports in each epoch, as a worker checks them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scitoolkit.core.errors import ConfigError


class Pruned(Exception):
    """Raised inside a trial by `TrialContext.report` once the trial is worse than its bound."""


@dataclass(frozen=True)
class EpochBounds:
    """Bounds on the metric that a trial reports, as plain data for a worker.

    Attributes:
        metric: name of the reported metric.
        sign: 1 if small values are good, -1 if large ones are.
        bounds: by epoch, `sign` times the value that the best report so far must reach.
    """

    metric: str
    sign: int
    bounds: dict[int, float]

    def check(self, epochs: Sequence[dict[str, float]]) -> None:
        """Raise `Pruned` if the best of the reported epochs is beyond the bound of the last one.

        Raises:
            Pruned: the trial ends.
            ConfigError: the metric is not reported.
        """
        last = epochs[-1]
        if self.metric not in last:
            raise ConfigError(
                f"pruning reads the metric {self.metric!r}, which epoch {last['epoch']} lacks",
                where="TrialContext.report",
                allowed=", ".join(name for name in last if name != "epoch"),
            )
        bound = self.bounds.get(int(last["epoch"]))
        values = [self.sign * row[self.metric] for row in epochs if self.metric in row]
        best = min((v for v in values if not math.isnan(v)), default=math.inf)
        if bound is not None and not best <= bound:
            raise Pruned(
                f"{self.metric} {self.sign * best:.6g} at epoch {last['epoch']} is worse than "
                f"{self.sign * bound:.6g}, the median of finished trials"
            )
