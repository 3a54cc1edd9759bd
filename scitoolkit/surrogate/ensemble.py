"""Ensembles: models that differ in their seeds and learn from the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress, Task


class Members(nn.Module):
    """Models that differ in their seeds; the output is their mean.

    Args:
        members: the models.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)

    def forward(self, *inputs: Any) -> Tensor:
        """Return the mean over members of the output, a tensor of the shape of one member's."""
        return torch.stack([member(*inputs) for member in self.members]).mean(0)


class MembersTask:
    """Mean of the members' losses: they share no weights, and so train independently.

    Args:
        model: the ensemble.
        tasks: the task of each member.
    """

    def __init__(self, model: Members, tasks: Sequence[Task]) -> None:
        self.model: Members = model
        self._tasks = list(tasks)

    def at(self, progress: Progress) -> None:
        """Receive the position of the training."""
        for task in self._tasks:
            receive = getattr(task, "at", None)
            if receive is not None:
                receive(progress)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean of the members' losses."""
        return torch.stack([task.loss(batch)[0] for task in self._tasks]).mean(), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the mean of the members' metrics."""
        metrics = [task.metrics(batch) for task in self._tasks]
        return {key: sum(m[key] for m in metrics) / len(metrics) for key in metrics[0]}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return self._tasks[0].batch_size(batch)
