"""A U-Net for fields: local detail at full resolution, the far field at the coarse levels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.layers import (
    Block,
    Conv,
    Padding,
    channels_to_space,
    down,
    resize,
    space_to_channels,
)


class UNet(nn.Module):
    """Blocks on grids that halve, joined by skips (Ronneberger et al. 2015, arXiv:1505.04597).

    Args:
        inputs: channels in.
        outputs: channels out.
        padding: one entry per space dim.
        widths: channels of each level, finest first.
        blocks: residual blocks on each level, on the way down and again on the way up.
        patch: cells per dim that become channels at the entrance: 2 makes every level 4 x
            cheaper in two dims and leaves the finest detail to the last layers.

    Sizes need not be powers of two. On a periodic dim the wrap is exact as long as the size can
    be halved at every level.

    Example:
        >>> net = UNet(3, 2, ["circular", "zeros"], widths=[8, 16])
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
        widths: Sequence[int] = (32, 64, 96, 128),
        blocks: int = 1,
        patch: int = 1,
    ) -> None:
        super().__init__()
        cells = patch ** len(padding)
        self.patch: int = patch
        self.padding: list[Padding] = list(padding)
        self.act = nn.GELU(approximate="tanh")
        self.stem: Conv = Conv(inputs * cells, widths[0], padding)

        def level(width: int) -> nn.Module:
            return nn.Sequential(*(Block(width, padding) for _ in range(blocks)))

        self.encoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths)
        self.widen: nn.ModuleList = nn.ModuleList(
            Conv(a, b, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.narrow: nn.ModuleList = nn.ModuleList(
            Conv(b, a, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.decoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths[:-1])
        detail = max(16, widths[0] // cells)
        self.detail: Conv = Conv(widths[0] // cells + inputs, detail, padding)
        self.head: Conv = Conv(detail, outputs, padding)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space)."""
        size = x.shape[2:]
        even = [-(-s // self.patch) * self.patch for s in size]
        fine = resize(x, even)
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
        h = self.act(self.detail(torch.cat([channels_to_space(h, self.patch), fine], 1)))
        return resize(self.head(self.act(h)), size)
