"""Multilayer perceptron, for jobs whose variables are all vectors."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film
from scitoolkit.training.strategies.mesh.division import Division, GridAxis, Stage


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

    def division(self) -> dict[str, Division]:
        """Return the division of the layers, none with conditions, which scale hidden values.

        Hidden values are divided over y after every odd layer and over x after every even one.
        """
        products = [f"body.{i}" for i in range(0, len(self.body), 2)]
        if any(film.linear is not None for film in self.film):
            return {}
        axes: list[GridAxis | None] = [
            None,
            *("y" if i % 2 == 0 else "x" for i, _ in enumerate(products[1:])),
            None,
        ]
        return {
            name: Division(inputs=axes[i], outputs=axes[i + 1]) for i, name in enumerate(products)
        }

    def stages(self) -> list[Stage]:
        """Return one stage for each layer."""

        def hidden(i: int) -> Stage:
            layer, act, film = self.body[2 * i], self.body[2 * i + 1], self.film[i]
            names = (f"body.{2 * i}", f"film.{i}")
            return Stage(names, lambda h, x, condition: act(film(layer(h), condition)))

        last = len(self.film)
        output = Stage((f"body.{2 * last}",), lambda h, x, condition: self.body[2 * last](h))
        return [*(hidden(i) for i in range(last)), output]
