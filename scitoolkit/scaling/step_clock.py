"""Where the wall time of training steps goes: compute, exchange, waiting, optimizer, data.

The time for which a rank is blocked in a collective is exchange as far as all ranks need it, and
waiting beyond: the rank that comes last waits for nobody, so the shortest blocked time of all ranks
is the exchange's. This needs no clock that the ranks share.
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
        seconds: of each of `PHASES`, without what was blocked in collectives.
        optimizer: the one that stepped last.
    """

    seconds: dict[str, float]

    def __init__(self, counter: TrafficCounter) -> None:
        self._counter = counter
        self.optimizer: Optimizer | None = None
        self._started: dict[str, tuple[float, float]] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what was measured; the counter's counts too."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._counter.by_collective.clear()
        self._counter.blocked.clear()
        self._started.clear()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Within it optimizers and collectives are measured."""

        def before(optimizer: Optimizer, arguments: Any, options: Any) -> None:
            self.optimizer = optimizer
            self.begin("optimizer")

        handles = (
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(lambda *given: self.end("optimizer")),
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
        """End a phase that was started."""
        if phase in self._started:
            started, blocked = self._started.pop(phase)
            elapsed = time.perf_counter() - started
            self.seconds[phase] += elapsed - (self._blocked() - blocked)

    def computing(self, loss: Callable[[Batch], tuple[Tensor, Any]], batch: Batch) -> Any:
        """Return `loss(batch)`; the phase compute ends with the backward pass of the loss."""
        self.begin("compute")
        value, logs = loss(batch)
        engine: Any = torch.autograd.Variable._execution_engine

        def at_backward(gradient: Tensor) -> None:
            engine.queue_callback(lambda: self.end("compute"))

        value.register_hook(at_backward)
        return value, logs

    def _blocked(self) -> float:
        return sum(traffic.seconds for traffic in self._counter.by_collective.values())


def time_split(
    wall: Sequence[float], phases: Sequence[Mapping[str, float]],
    blocked: Sequence[Sequence[float]],
) -> dict[str, float]:  # fmt: skip
    """Return the mean over ranks of each part of the wall time, in seconds.

    Args:
        wall: of the steps, by rank.
        phases: `StepClock.seconds`, by rank.
        blocked: seconds of each collective's call, by rank and call.

    Returns:
        compute, optimizer, data, exchange, waiting, and other: the rest, such as copies into
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
