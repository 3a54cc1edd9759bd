"""Multilayer perceptron, for jobs whose variables are all vectors."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film


class MLP(nn.Module):
    """Multilayer perceptron.

    Args:
        inputs: number of input values.
        outputs: number of output values.
        width: size of a hidden layer.
        layers: number of hidden layers.
        conditioning: size of the condition that scales and shifts hidden values; 0 for none.

    Example:
        >>> import torch
        >>> MLP(3, 2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, inputs: int, outputs: int, *, width: int = 64, layers: int = 2, conditioning: int = 0
    ) -> None:
        super().__init__()
        widths = [inputs, *[width] * layers]
        hidden: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            hidden += [nn.Linear(a, b), nn.GELU(approximate="tanh")]
        self.body: nn.Sequential = nn.Sequential(*hidden, nn.Linear(widths[-1], outputs))
        self.film: nn.ModuleList = nn.ModuleList(Film(conditioning, width) for _ in range(layers))

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs) from (B, inputs) and (B, conditioning)."""
        *hidden, last = self.body
        for layer, act, film in zip(hidden[::2], hidden[1::2], self.film, strict=True):
            x = act(film(layer(x), condition))
        return last(x)
