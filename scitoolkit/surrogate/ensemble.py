"""Ensembles: models that differ in their seeds and learn from the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress, Task
from scitoolkit.core.seeds import derive_seed


class Members(nn.Module):
    """Models that differ in their seeds; the output is their mean.

    Args:
        members: the models.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)

    def forward(self, *inputs: Any) -> Any:
        """Return the mean over members of each output: a tensor, or a tuple of them, as a member.

        Tensors have the shapes of one member's.
        """
        answers = [member(*inputs) for member in self.members]
        if isinstance(answers[0], tuple):
            return tuple(torch.stack(parts).mean(0) for parts in zip(*answers, strict=True))
        return torch.stack(answers).mean(0)


def members_of(model: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble, or the model itself in a list."""
    return list(model.members) if isinstance(model, Members) else [model]


def member_seeds(config: Any) -> list[int]:
    """Return the seed of each member; the first has the job's.

    Args:
        config: with `seed`, and `members` or `uncertainty.emulators` if it has ensembles.
    """
    uncertainty = getattr(config, "uncertainty", None)
    count = int(getattr(config, "members", 1) if uncertainty is None else uncertainty.emulators)
    return [config.seed, *(derive_seed(config.seed, n) for n in range(1, count))]


class MembersTask:
    """Mean of the members' losses: they share no weights, and so train independently.

    Args:
        model: the ensemble.
        tasks: the task of each member.
    """

    def __init__(self, model: nn.Module, tasks: Sequence[Task]) -> None:
        self.model: nn.Module = model
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
