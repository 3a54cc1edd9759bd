"""A U-Net of ConvNeXt blocks: wide depthwise convolutions, then a small network in every cell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from scitoolkit.emulation.models.layers import (
    Conv,
    Padding,
    channels_to_space,
    down,
    resize,
    space_to_channels,
)


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then expansion, GELU and contraction in each cell; residual.

    Liu et al. 2022 (arXiv:2201.03545), without normalisation: amplitudes are what the equations
    act on. Begins as the identity.

    Args:
        channels: in and out.
        padding: one entry per space dim.
        kernel: of the depthwise convolution, odd.
        expansion: width inside over `channels`.
    """

    act: nn.GELU

    def __init__(
        self, channels: int, padding: Sequence[Padding], kernel: int = 7, expansion: int = 4
    ) -> None:
        super().__init__()
        self.depthwise: Conv = Conv(channels, channels, padding, kernel, groups=channels)
        self.widen: Conv = Conv(channels, expansion * channels, padding, 1)
        self.act = nn.GELU(approximate="tanh")
        self.narrow: Conv = Conv(expansion * channels, channels, padding, 1)
        nn.init.zeros_(self.narrow.conv.weight)
        nn.init.zeros_(self.narrow.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, channels, *space)."""
        return x + self.narrow(self.act(self.widen(self.depthwise(x))))


class ConvNeXtUNet(nn.Module):
    """ConvNeXt blocks on grids that halve, joined by skips.

    Args:
        inputs: channels in.
        outputs: channels out.
        padding: one entry per space dim.
        widths: channels of each level, finest first.
        blocks: blocks on each level, on the way down and again on the way up.
        kernel: of the depthwise convolutions.
        patch: cells per dim that become channels at the entrance.

    Example:
        >>> import torch
        >>> net = ConvNeXtUNet(3, 2, ["circular", "zeros"], widths=[8, 16])
        >>> net(torch.zeros(1, 3, 10, 7)).shape
        torch.Size([1, 2, 10, 7])
    """

    act: nn.GELU

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        widths: Sequence[int] = (32, 64, 96),
        blocks: int = 2,
        kernel: int = 7,
        patch: int = 1,
    ) -> None:
        super().__init__()
        cells = patch ** len(padding)
        self.patch: int = patch
        self.padding: list[Padding] = list(padding)
        self.act = nn.GELU(approximate="tanh")
        self.stem: Conv = Conv(inputs * cells, widths[0], padding)

        def level(width: int) -> nn.Module:
            return nn.Sequential(*(ConvNeXtBlock(width, padding, kernel) for _ in range(blocks)))

        self.encoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths)
        self.widen: nn.ModuleList = nn.ModuleList(
            Conv(a, b, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.narrow: nn.ModuleList = nn.ModuleList(
            Conv(b, a, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.decoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths[:-1])
        self.head: Conv = Conv(widths[0], outputs * cells, padding)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space)."""
        size = x.shape[2:]
        fine = resize(x, [-(-s // self.patch) * self.patch for s in size])
        h = self.stem(space_to_channels(fine, self.patch))
        skips: list[Tensor] = []
        for i, encoder in enumerate(self.encoders):
            h = encoder(h)
            if i < len(self.widen):
                skips.append(h)
                h = self.widen[i](down(h))
        for i in reversed(range(len(self.decoders))):
            skip = skips[i]
            h = self.decoders[i](skip + resize(self.narrow[i](h), skip.shape[2:], self.padding))
        return resize(channels_to_space(self.head(self.act(h)), self.patch), size)
