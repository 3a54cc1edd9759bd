"""Validation metrics and early stopping."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from logging import Logger
from typing import Any

import torch

from scitoolkit.core.contracts import Task
from scitoolkit.core.errors import ConfigError, DataError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.training.config import BestWeights, EarlyStopping
from scitoolkit.training.means import add, agreed_means
from scitoolkit.training.processes import raise_together
from scitoolkit.training.step import OptimizerStep
from scitoolkit.training.strategies.base import TrainingStrategy

log: Logger = get_logger(__name__)


class BestValidation:
    """Tracker of the best validation, and of the progress that early stopping waits for.

    The two differ: the weights with the best metric are the best ones, however little better it is,
    while early stopping follows the loss, and `min_delta` decides only how long the training
    continues.

    Args:
        stopping: early-stopping settings; None to never stop early.
        choice: the metric of the best weights.

    Attributes:
        found: loss, step and metric of the best validation, or None.
        lowest: lowest loss so far.
        reference: loss that the next one must undercut by `min_delta`, or None.
        bad_epochs: number of validations since the last sufficient decrease.
    """

    bad_epochs: int

    def __init__(self, stopping: EarlyStopping | None, choice: BestWeights | None = None) -> None:
        self._stopping, self._choice = stopping, choice or BestWeights()
        self.found: dict[str, float] | None = None
        self.lowest: float = math.inf
        self.reference: float | None = None
        self.bad_epochs = 0

    def update(self, values: Mapping[str, float], step: int) -> bool:
        """Record validation metrics; return whether they are the best so far.

        Raises:
            ConfigError: the chosen metric is not among them.
        """
        loss, metric = values["loss"], self._choice.metric
        if metric not in values:
            raise ConfigError(
                f"the validation does not report {metric}",
                where="training.best.metric",
                allowed=", ".join(sorted(values)),
            )
        least = self._stopping.min_delta if self._stopping else 0.0
        if self.reference is None or loss < self.reference - least:
            self.reference, self.bad_epochs = loss, 0
        else:
            self.bad_epochs += 1
        self.lowest = min(self.lowest, loss)
        sign = 1.0 if self._choice.mode == "min" else -1.0
        value = values[metric]
        # A metric that is not a number is not the best one.
        if not math.isfinite(value):
            return False
        if self.found is None or sign * value < sign * self.found[metric]:
            self.found = {"loss": loss, "step": step, metric: value}
            return True
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        return {
            "best": self.found,
            "best_by": self._choice.model_dump(),
            "lowest": self.lowest if math.isfinite(self.lowest) else None,
            "bad_epochs": self.bad_epochs,
            "reference": self.reference,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; another choice of the best starts afresh."""
        stored = state["best"]
        lowest = (stored or {}).get("loss")
        same = state.get("best_by", BestWeights().model_dump()) == self._choice.model_dump()
        if stored is not None and not same:
            log.info("the best weights are chosen by %s from here on", self._choice.metric)
        self.found = stored if same else None
        self.bad_epochs = int(state["bad_epochs"])
        self.reference = state.get("reference", lowest)  # not in older checkpoints
        stored_lowest = state.get("lowest", lowest)
        self.lowest = math.inf if stored_lowest is None else stored_lowest

    def exhausted(self) -> bool:
        """Return whether the patience is exhausted or the target is reached."""
        if self._stopping is None:
            return False
        target = self._stopping.target
        reached = target is not None and self.lowest <= target
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
                    add(sums, name, value, count)
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
