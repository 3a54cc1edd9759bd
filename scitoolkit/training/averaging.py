"""Averages of the trained weights: exponential over all steps, or equal over the last ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.base import TrainingStrategy


class WeightAverage:
    """Keeps an average of the weights; does nothing without a decay or a start.

    The equal average over the end of a training (stochastic weight averaging, Izmailov et al. 2018,
    https://arxiv.org/abs/1803.05407) is taken over every step from `start` on; until then it is the
    present weights.

    Args:
        model: whose weights are replaced within `swapped`.
        named: its trained parameters by name.
        decay: share of the old average that a step keeps; None for no exponential average.
        start: share of the training after which the equal average begins; None for none.
        strategy: how ranks hold the weights.

    Attributes:
        tensors: the averages by parameter name; each rank holds its part.
        count: steps in the equal average.
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
        kept = named if decay or start is not None else []
        self._parameters = [p for _, p in kept]
        self._decay, self._start = decay, start
        self.count: int = 0
        self.tensors: dict[str, Tensor] = {n: p.detach().clone() for n, p in kept}
        self._averages = [local(t) for t in self.tensors.values()]

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Move the averages towards the weights.

        Args:
            progress: share of the training that is done, this step included.
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
