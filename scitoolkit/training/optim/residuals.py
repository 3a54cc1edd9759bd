"""Residuals of a task over the batches of a step, and their Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from scitoolkit.core.contracts import Batch, ResidualTask


class StepResiduals:
    """Weighted residuals of this rank's samples; their squares, summed over ranks, are the loss.

    The Jacobian is computed per sample and batched by `vmap`, instead of by m backward passes over
    the whole batch.

    Args:
        task: provides the residuals of one sample.
        names: names of the trainable parameters, in the optimizer's order.
        batches: this rank's batches.
        samples: number of samples of the step, over all ranks.
        total: sums a tensor over the ranks, in place.
    """

    def __init__(
        self,
        task: ResidualTask,
        names: Sequence[str],
        batches: Sequence[Batch],
        samples: float,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        self._task, self._names = task, list(names)
        self._batches = [_samples_only(batch) for batch in batches]
        self._scale = 1.0 / math.sqrt(samples)
        self.total: Callable[[Tensor], Tensor] = total

    def values(self, weights: Sequence[Tensor]) -> Tensor:
        """Return the residuals (m,) at `weights`, in float64."""
        with torch.no_grad():
            parts = [self._mapped(self._one, weights, batch) for batch in self._batches]
        return self._joined([part.flatten() for part in parts], weights)

    def rows(self, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return residuals (m,) and Jacobian (m, n) at `weights`, in float64."""
        residuals, jacobian = [], []
        for batch in self._batches:
            gradients, value = self._mapped(jacrev(self._twice, has_aux=True), weights, batch)
            residuals.append(value.flatten().detach())
            parts = [g.flatten(value.dim()) for g in gradients]
            jacobian.append(torch.cat(parts, -1).flatten(0, -2).detach())
        if not jacobian:
            columns = sum(w.numel() for w in weights)
            jacobian.append(weights[0].new_zeros(0, columns))
        rows = torch.cat(jacobian).double().mul_(self._scale)
        return self._joined(residuals, weights), rows

    def _joined(self, parts: list[Tensor], weights: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(parts) if parts else weights[0].new_zeros(0)
        return joined.double() * self._scale

    def _one(self, weights: Sequence[Tensor], sample: Batch) -> Tensor:
        return self._task.residual(dict(zip(self._names, weights, strict=True)), sample)

    def _twice(self, weights: Sequence[Tensor], sample: Batch) -> tuple[Tensor, Tensor]:
        value = self._one(weights, sample)
        return value, value

    def _mapped(self, function: Any, weights: Sequence[Tensor], batch: Batch) -> Any:
        # Random numbers inside a residual would differ between its evaluations.
        return vmap(function, (None, 0), randomness="error")(list(weights), batch)


def _samples_only(batch: Batch) -> Batch:
    """Return the batch without 0-dimensional tensors, which have no sample dimension."""
    return {key: value for key, value in batch.items() if value.dim()}
