"""Wall time of training steps by phase: compute, exchange, waiting, optimizer, data.

The time that a rank is blocked in a collective consists of exchange and waiting. The last rank to
arrive waits for no other, so the shortest blocked time of all ranks is the exchange time. This
needs no synchronised clock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from scitoolkit.core.contracts import Batch
from scitoolkit.training.traffic import TrafficCounter

PHASES = ("compute", "optimizer", "data")


class StepClock:
    """Measures the steps of a training on this rank.

    Args:
        counter: counts this rank's collectives.

    Attributes:
        seconds: seconds of each of `PHASES`, without the time blocked in collectives.
        optimizer: the optimizer that made the last step.
    """

    seconds: dict[str, float]

    def __init__(self, counter: TrafficCounter) -> None:
        self._counter = counter
        self.optimizer: Optimizer | None = None
        self._started: dict[str, tuple[float, float]] = {}
        self.reset()

    def reset(self) -> None:
        """Discard all measurements, including those of the counter."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._counter.by_collective.clear()
        self._counter.blocked.clear()
        self._started.clear()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure optimizers and collectives inside this context."""

        def before(optimizer: Optimizer, arguments: Any, options: Any) -> None:
            self.optimizer = optimizer
            self.begin("optimizer")

        handles = (
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(lambda *_: self.end("optimizer")),
        )
        try:
            with self._counter.counting():
                yield
        finally:
            for handle in handles:
                handle.remove()

    def begin(self, phase: str) -> None:
        """Start a phase."""
        self._started[phase] = time.perf_counter(), self._blocked()

    def end(self, phase: str) -> None:
        """End a phase; no effect if it was not started."""
        if phase in self._started:
            started, blocked = self._started.pop(phase)
            elapsed = time.perf_counter() - started
            self.seconds[phase] += elapsed - (self._blocked() - blocked)

    def computing(self, loss: Callable[[Batch], tuple[Tensor, Any]], batch: Batch) -> Any:
        """Return `loss(batch)` and measure compute until the end of the loss's backward pass."""
        self.begin("compute")
        value, logs = loss(batch)
        engine: Any = torch.autograd.Variable._execution_engine

        # The hook of the loss runs when the backward pass begins, and a callback queued then runs
        # when it has ended.
        def at_backward(gradient: Tensor) -> None:
            engine.queue_callback(lambda: self.end("compute"))

        value.register_hook(at_backward)
        return value, logs

    def _blocked(self) -> float:
        return sum(traffic.seconds for traffic in self._counter.by_collective.values())


def time_split(
    wall: Sequence[float],
    phases: Sequence[Mapping[str, float]],
    blocked: Sequence[Sequence[float]],
) -> dict[str, float]:
    """Return the mean over ranks of each phase of the wall time, in seconds.

    Args:
        wall: wall time of the steps, by rank.
        phases: `StepClock.seconds`, by rank.
        blocked: seconds of each call of a collective, by rank and call.

    Returns:
        compute, optimizer, data, exchange, waiting, and the rest as other, such as copies into
        buckets at the end of a step and the trainer's loop.

    Example:
        >>> split = time_split([10.0, 10.0], [{"compute": 6.0}, {"compute": 2.0}],
        ...                    [[3.0], [7.0]])
        >>> split["exchange"], split["waiting"], split["other"]
        (3.0, 2.0, 1.0)
    """
    calls = np.array(blocked, dtype=float).reshape(len(wall), -1)
    exchange = calls.min(0).sum()
    split = {name: float(np.mean([p.get(name, 0.0) for p in phases])) for name in PHASES}
    split |= {"exchange": float(exchange), "waiting": float(calls.sum(1).mean() - exchange)}
    split["other"] = float(np.mean(wall)) - sum(split.values())
    return split
