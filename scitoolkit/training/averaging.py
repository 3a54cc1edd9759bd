"""Exponential moving average of the trained weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.base import TrainingStrategy


class WeightAverage:
    """Keeps an average of the weights; does nothing without a decay.

    Args:
        model: whose weights are replaced within `swapped`.
        named: its trained parameters by name.
        decay: share of the old average that a step keeps; None for no average.
        strategy: how ranks hold the weights.

    Attributes:
        tensors: the averages by parameter name; each rank holds its part.
    """

    def __init__(
        self,
        model: nn.Module,
        named: list[tuple[str, nn.Parameter]],
        decay: float | None,
        strategy: TrainingStrategy,
    ) -> None:
        self._model, self._strategy = model, strategy
        kept = named if decay else []
        self._parameters = [p for _, p in kept]
        self._share = 1.0 - (decay or 0.0)
        self.tensors: dict[str, Tensor] = {n: p.detach().clone() for n, p in kept}
        self._averages = [local(t) for t in self.tensors.values()]

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the weights."""
        if self._averages:
            torch._foreach_lerp_(self._averages, [local(p) for p in self._parameters], self._share)

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Within it the model has the averaged weights."""
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
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
