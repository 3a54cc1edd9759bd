"""Loss of energies, forces and virials, whose weights follow the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.graph import LABELS
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.training.optim.schedules import ScheduleConfig


class PotentialTask:
    """Training task of a potential: loss of energies, forces and virials.

    Args:
        model: a `Potential`.
        loss: weights of the parts.
        schedule: learning-rate schedule that the weights follow; None for constant `start` weights.
    """

    model: nn.Module

    def __init__(
        self, model: torch.nn.Module, loss: LossConfig, schedule: ScheduleConfig | None = None
    ) -> None:
        self.model, self._loss, self._schedule = model, loss, schedule
        self._rate_factor, self._last_factor = 1.0, 0.0

    def at(self, progress: Progress) -> None:
        """Set the weights of the parts for this position of the training."""
        if self._schedule is not None:
            self._rate_factor = self._schedule.factor(progress.step, progress.total_steps)
            self._last_factor = self._schedule.factor(progress.total_steps, progress.total_steps)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the weighted loss, averaged over configurations, and its unweighted parts.

        A configuration without a label has weight 0 in its part, another one that of its frame.
        """
        parts = self._weighted(batch, self._errors(batch, self._loss.huber))
        weights = self._loss.weights(self._rate_factor)
        total = torch.stack([weights[name] * value for name, value in parts.items()]).sum()
        return total, {f"{name}_loss": value.detach() for name, value in parts.items()}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return `loss` and mean squared errors: energy, virial in eV² per atom, forces in (eV/Å)².

        `loss` always has the weights of the end of the training, so that epochs can be compared,
        and the weights of frames; the errors have none. At a constant rate these are the `start`
        weights: others could choose an epoch whose forces are hardly trained.
        """
        errors = self._errors(batch, None)
        parts = self._weighted(batch, errors)
        weights = self._loss.weights(self._last_factor)
        if not any(weights.values()):
            weights = self._loss.weights(1.0)
        total = sum((weights[name] * value for name, value in parts.items()), torch.zeros(()))
        return {"loss": total, **{f"{name}_mse": value.mean() for name, value in errors.items()}}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of configurations."""
        return len(batch["num_atoms"])

    def _weighted(self, batch: Batch, errors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the means over configurations, with their weights."""
        if "weights" not in batch:
            return {name: error.mean() for name, error in errors.items()}
        columns = dict(zip(LABELS, batch["weights"].unbind(1), strict=True))
        return {name: (columns[name].to(e.dtype) * e).mean() for name, e in errors.items()}

    def _errors(self, batch: Batch, huber: float | None) -> dict[str, Tensor]:
        """Return the error of each configuration in each part, (B,); 0 without a label."""
        predicted = self.model(batch)
        atoms = batch["num_atoms"].to(predicted["energy"].dtype)
        parts = {}
        for name in LABELS:
            if not self._loss.uses(name):
                continue
            if name not in batch:
                parts[name] = 0.0 * predicted[name].sum() + torch.zeros_like(atoms)
                continue
            error = _penalty(predicted[name] - batch[name].to(predicted[name].dtype), huber)
            if name == "forces":
                per_frame = place_sums(batch["frame"], error.mean(1), len(atoms))
            else:
                per_frame = error.flatten(1).mean(1) if error.ndim > 1 else error
            per_frame = per_frame / atoms
            if f"has_{name}" in batch:
                per_frame = torch.where(batch[f"has_{name}"], per_frame, 0.0)
            parts[name] = per_frame
        return parts


def _penalty(error: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return error**2
    return 2 * torch.nn.functional.huber_loss(
        error, torch.zeros_like(error), reduction="none", delta=huber
    )
