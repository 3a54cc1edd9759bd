"""Network in the form of an elliptic solution operator: local sources, then a global operator.

A pressure, a potential or a stream function is a Green's function applied to local products of
fields. Convolutional networks must pass such a signal from level to level; here it takes one layer,
and fewer samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film
from scitoolkit.emulation.models.layers import Conv, Padding
from scitoolkit.emulation.models.spectral import SpectralMixing, modes_per_dim


class Elliptic(nn.Module):
    """Products of convolutions as sources, a spectral operator on them, and local corrections.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        products: number of products of two convolutions.
        sources: channels of the spectral operator.
        modes: its modes per dim; one value for all dims.
        width: channels of the local correction.
        conditioning: size of the condition that scales and shifts channels; 0 for none.

    Example:
        >>> Elliptic(3, 1, ["circular", "zeros"], modes=[4])(torch.zeros(2, 3, 16, 12)).shape
        torch.Size([2, 1, 16, 12])
    """

    act: nn.GELU

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        products: int = 16,
        sources: int = 6,
        modes: Sequence[int] = (24,),
        width: int = 32,
        conditioning: int = 0,
    ) -> None:
        super().__init__()
        modes_of = modes_per_dim(modes, len(padding))
        self.first: Conv = Conv(inputs, products, padding, 5)
        self.second: Conv = Conv(inputs, products, padding, 5)
        self.select: Conv = Conv(inputs + products, sources, padding, 1)
        self.operator: SpectralMixing = SpectralMixing(sources, padding, modes_of, dense=True)
        self.act = nn.GELU(approximate="tanh")
        self.local: nn.Sequential = nn.Sequential(
            Conv(inputs + products + 2 * sources, width, padding),
            self.act,
            Conv(width, width, padding),
            self.act,
        )
        self.film: nn.ModuleList = nn.ModuleList(
            [Film(conditioning, sources), Film(conditioning, width)]
        )
        self.head: Conv = Conv(width + sources, outputs, padding, 1)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        near = torch.cat([x, self.first(x) * self.second(x)], 1)
        source = self.film[0](self.select(near), condition)
        far = self.operator(source)
        local = self.film[1](self.local(torch.cat([near, source, far], 1)), condition)
        return self.head(torch.cat([local, far], 1))
