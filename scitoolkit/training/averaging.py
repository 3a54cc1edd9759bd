"""Weight averaging: exponential moving average, or stochastic weight averaging."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.base import TrainingStrategy


class WeightAverage:
    """Running average of the weights; does nothing without `decay` or `start`.

    Stochastic weight averaging (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407) averages
    the weights after each step from `start` on with equal weight; until then the average equals
    the current weights.

    Args:
        model: the model whose weights `swapped` replaces.
        named: its trainable parameters with their names.
        decay: weight of the old average in each update; None disables the exponential average.
        start: fraction of the training after which equal averaging starts; None disables it.
        strategy: the strategy that shards the weights.

    Attributes:
        tensors: the averages by name of parameter or buffer (running statistics); each rank holds
            its shard.
        count: number of steps in the equal average.
    """

    def __init__(
        self,
        model: nn.Module,
        named: list[tuple[str, nn.Parameter]],
        decay: float | None,
        start: float | None,
        strategy: TrainingStrategy,
    ) -> None:
        self._model, self._strategy = model, strategy
        averaged: list[tuple[str, Tensor]] = list(named) if decay or start is not None else []
        # Running statistics belong to the weights with which they were computed.
        averaged = [
            *averaged,
            *((n, b) for n, b in model.named_buffers() if averaged and b.is_floating_point()),
        ]
        self._parameters = [p for _, p in averaged]
        self._decay, self._start = decay, start
        self.count: int = 0
        self.tensors: dict[str, Tensor] = {n: p.detach().clone() for n, p in averaged}
        self._averages = [local(t) for t in self.tensors.values()]

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Update the averages after a step.

        Args:
            progress: completed fraction of the training, including this step.
        """
        if not self._averages:
            return
        if self._start is None:
            share = 1.0 - (self._decay or 0.0)
        else:
            self.count = self.count + 1 if progress > self._start else 0
            share = 1.0 / max(1, self.count)
        torch._foreach_lerp_(self._averages, [local(p) for p in self._parameters], share)

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Return a context in which the model has the averaged weights."""
        pairs = list(zip((local(p) for p in self._parameters), self._averages, strict=True))
        self._swap(pairs)
        try:
            yield
        finally:
            self._swap(pairs)

    @torch.no_grad()
    def _swap(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self._strategy.reshard(self._model)
        for weight, average in pairs:
            trained = weight.clone()
            weight.copy_(average)
            average.copy_(trained)
