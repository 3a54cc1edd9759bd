"""A multilayer perceptron, for jobs whose variables are all vectors."""

from __future__ import annotations

import itertools

from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers.

    Args:
        inputs: values in.
        outputs: values out.
        width: values of a hidden layer.
        layers: hidden layers.

    Example:
        >>> import torch
        >>> MLP(3, 2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, inputs: int, outputs: int, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        widths = [inputs, *[width] * layers]
        hidden: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            hidden += [nn.Linear(a, b), nn.GELU(approximate="tanh")]
        self.body: nn.Sequential = nn.Sequential(*hidden, nn.Linear(widths[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs) from (B, inputs)."""
        return self.body(x)
