"""Read-only view of a training run for callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scitoolkit.core.contracts import Task
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training.config import TrainingConfig

if TYPE_CHECKING:
    from scitoolkit.training.strategies.base import TrainingStrategy


class TrainingView(Protocol):
    """Read-only view of a training run; implemented by `Trainer`.

    Attributes:
        task: the task; `task.model` holds this rank's weights.
        config: the `training:` section.
        run: the run directory, or None.
        strategy: how ranks share the training; `strategy.rank` is the rank of this process.
        step, epoch: completed optimizer steps and epochs.
        total_steps: optimizer steps of the whole training.
        best: lowest validation loss so far and its step, or None.
    """

    @property
    def task(self) -> Task: ...
    @property
    def config(self) -> TrainingConfig: ...
    @property
    def run(self) -> RunDirectory | None: ...
    @property
    def strategy(self) -> TrainingStrategy: ...
    @property
    def step(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def best(self) -> dict[str, float] | None: ...
