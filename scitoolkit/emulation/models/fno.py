"""Fourier neural operator: spectral mixing of low modes plus a network in every cell."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film
from scitoolkit.emulation.models.layers import Conv, Padding, cellwise
from scitoolkit.emulation.models.spectral import SpectralMixing, modes_per_dim


class FNO(nn.Module):
    """A Fourier neural operator.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        width: hidden channels.
        layers: number of layers, each a spectral mixing plus a convolution of kernel size 1.
        modes: number of modes per dim; one value for all dims.
        conditioning: size of the condition that scales and shifts channels; 0 for none.

    Example:
        >>> FNO(3, 1, ["circular", "zeros"], width=8, modes=[4])(torch.zeros(2, 3, 16, 12)).shape
        torch.Size([2, 1, 16, 12])
    """

    act: nn.GELU

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        width: int = 32,
        layers: int = 4,
        modes: Sequence[int] = (16,),
        conditioning: int = 0,
    ) -> None:
        super().__init__()
        modes_of = modes_per_dim(modes, len(padding))
        self.act = nn.GELU(approximate="tanh")
        self.lift: nn.Sequential = cellwise(inputs, 2 * width, width, padding)
        self.spectral: nn.ModuleList = nn.ModuleList(
            SpectralMixing(width, padding, modes_of) for _ in range(layers)
        )
        self.local: nn.ModuleList = nn.ModuleList(
            Conv(width, width, padding, 1) for _ in range(layers)
        )
        self.mix: nn.ModuleList = nn.ModuleList(
            cellwise(width, 2 * width, width, padding) for _ in range(layers)
        )
        self.film: nn.ModuleList = nn.ModuleList(Film(conditioning, width) for _ in range(layers))
        self.project: nn.Sequential = cellwise(width + inputs, 2 * width, outputs, padding)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        h = self.lift(x)
        parts = zip(self.spectral, self.local, self.film, self.mix, strict=True)
        for spectral, local, film, mix in parts:
            h = h + mix(self.act(film(spectral(h) + local(h), condition)))
        return self.project(torch.cat([h, x], 1))
