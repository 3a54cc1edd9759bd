"""Validation metrics and early stopping."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch

from scitoolkit.core.contracts import Task
from scitoolkit.core.errors import DataError, NumericalError
from scitoolkit.training.config import EarlyStopping
from scitoolkit.training.means import add, agreed_means
from scitoolkit.training.processes import raise_together
from scitoolkit.training.step import OptimizerStep
from scitoolkit.training.strategies.base import TrainingStrategy


class BestLoss:
    """Tracker of the lowest validation loss, and of the progress that early stopping waits for.

    The two differ: the weights with the lowest loss are the best ones, however little lower it is,
    while `min_delta` decides only how long the training continues.

    Args:
        stopping: early-stopping settings; None to never stop early.

    Attributes:
        found: loss and step of the best validation, or None.
        reference: loss that the next one must undercut by `min_delta`, or None.
        bad_epochs: number of validations since the last sufficient decrease.
    """

    bad_epochs: int

    def __init__(self, stopping: EarlyStopping | None) -> None:
        self._stopping = stopping
        self.found: dict[str, float] | None = None
        self.reference: float | None = None
        self.bad_epochs = 0

    def update(self, loss: float, step: int) -> bool:
        """Record a validation loss; return whether it is the lowest so far."""
        least = self._stopping.min_delta if self._stopping else 0.0
        if self.reference is None or loss < self.reference - least:
            self.reference, self.bad_epochs = loss, 0
        else:
            self.bad_epochs += 1
        if self.found is None or loss < self.found["loss"]:
            self.found = {"loss": loss, "step": step}
            return True
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
    modes = {module: module.training for module in model.modules()}
    model.eval()
    sums: dict[str, list[float]] = {}
    total = 0
    error: Exception | None = None
    # Not `inference_mode`: FSDP2's gathered weights would become inference tensors.
    with torch.no_grad(), weights, stepper.autocast():
        try:
            for batch in loader:
                count = stepper.count(batch)
                for name, value in task.metrics(stepper.to_device(batch)).items():
                    add(sums, name, float(value), count)
                total += count
        except Exception as caught:
            error = caught
    for module, training in modes.items():
        module.training = training
    agree_on(error, strategy)
    values, total_all = agreed_means(sums, float(total), strategy)
    if not total_all or "loss" not in values:
        what = "the task's metrics have no `loss`" if total_all else "the validation set is empty"
        raise DataError(what, where="validation", fix="validate on samples, or without validation")
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
