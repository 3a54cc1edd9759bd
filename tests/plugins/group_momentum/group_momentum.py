"""Gradient descent whose step is divided by the root mean square of all gradient norms seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import nn
from torch.optim import Optimizer

from scitoolkit.training.optim.optimizers import OptimizerConfig


class NormScaledDescent(Optimizer):
    """Keeps its whole memory, sums over the norms, in the parameter groups."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Do one step with the present gradients."""
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            square = torch.stack([p.grad.square().sum() for p in trained]).sum()
            group["squares"] = group.get("squares", torch.zeros(())) + square
            group["count"] = group.get("count", 0) + 1
            scale = group["lr"] / float((group["squares"] / group["count"]).sqrt() + 1e-12)
            for parameter in trained:
                parameter.add_(parameter.grad, alpha=-scale)


class GroupMomentum(OptimizerConfig):
    """Gradient descent with a step size from all gradient norms seen."""

    shardable: ClassVar[bool] = False  # the norms would be those of a part
    name: Literal["group_momentum"] = "group_momentum"
    lr: PositiveFloat = 0.05

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the optimizer over `parameters`."""
        return NormScaledDescent(parameters, {"lr": self.lr})
