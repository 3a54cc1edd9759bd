"""Validation metrics and early stopping."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch

from scitoolkit.core.contracts import Task
from scitoolkit.core.errors import DataError, NumericalError
from scitoolkit.training.config import EarlyStopping
from scitoolkit.training.processes import raise_together
from scitoolkit.training.step import OptimizerStep
from scitoolkit.training.strategies.base import TrainingStrategy


class BestLoss:
    """Tracker of the lowest validation loss, for early stopping.

    Args:
        stopping: early-stopping settings; None to never stop early.

    Attributes:
        found: loss and step of the best validation, or None.
        bad_epochs: number of validations since the best one.
    """

    bad_epochs: int

    def __init__(self, stopping: EarlyStopping | None) -> None:
        self._stopping = stopping
        self.found: dict[str, float] | None = None
        self.bad_epochs = 0

    def update(self, loss: float, step: int) -> bool:
        """Record a validation loss; return whether it is the lowest so far."""
        least = self._stopping.min_delta if self._stopping else 0.0
        if self.found is None or loss < self.found["loss"] - least:
            self.found, self.bad_epochs = {"loss": loss, "step": step}, 0
            return True
        self.bad_epochs += 1
        return False

    def exhausted(self) -> bool:
        """Return whether the patience is exhausted or the target is reached."""
        if self._stopping is None:
            return False
        target = self._stopping.target
        reached = target is not None and self.found is not None and self.found["loss"] <= target
        return reached or self.bad_epochs >= self._stopping.patience


def validate(
    task: Task,
    loader: Any,
    stepper: OptimizerStep,
    strategy: TrainingStrategy,
    weights: contextlib.AbstractContextManager[None],
    step: int,
) -> dict[str, float]:
    """Return a task's metrics as means over all samples of all ranks.

    Args:
        task: provides the metrics.
        loader: this rank's share of the batches.
        stepper: counts samples, moves batches to the device, provides the precision.
        strategy: sums over the ranks.
        weights: context in which the model has the weights to validate.
        step: completed optimizer steps.

    Raises:
        NumericalError: the loss is not finite.
        DataError: there are no samples, or no metric `loss`.
    """
    loader.set_epoch(0)
    model = task.model
    model.eval()
    sums: dict[str, float] = {}
    total = 0
    error: Exception | None = None
    # Not `inference_mode`: FSDP2's gathered weights would become inference tensors.
    with torch.no_grad(), weights, stepper.autocast():
        try:
            for batch in loader:
                count = stepper.count(batch)
                for name, value in task.metrics(stepper.to_device(batch)).items():
                    sums[name] = sums.get(name, 0.0) + (float(value) * count if count else 0.0)
                total += count
        except Exception as caught:
            error = caught
    model.train()
    agree_on(error, strategy)
    names = sorted(sums)
    *sums_all, total_all = strategy.sum([*(sums[n] for n in names), float(total)])
    if not total_all or "loss" not in names:
        what = "the task's metrics have no `loss`" if total_all else "the validation set is empty"
        raise DataError(what, where="validation", fix="validate on samples, or without validation")
    values = {n: s / total_all for n, s in zip(names, sums_all, strict=True)}
    if not math.isfinite(values["loss"]):
        raise NumericalError(
            f"the validation loss is {values['loss']} after step {step}",
            fix="a smaller training.optimizer.lr, training.clip_norm=1, or check the data",
        )
    return values


def agree_on(error: Exception | None, strategy: TrainingStrategy) -> None:
    """Raise on all ranks if any has an error; on this rank only if the strategy cannot agree."""
    if strategy.agrees_on_errors:
        raise_together(error)
    elif error is not None:
        raise error
