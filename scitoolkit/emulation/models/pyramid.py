"""Encoder and decoder of U-Nets: levels of halved grids, joined by skip connections."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from scitoolkit.emulation.models.film import Stack
from scitoolkit.emulation.models.layers import (
    Conv,
    Padding,
    down,
    resize,
    space_to_channels,
)
from scitoolkit.emulation.models.slabwise import slabwise


class Pyramid(nn.Module):
    """Abstract base of U-Nets (Ronneberger et al. 2015, arXiv:1505.04597).

    Args:
        inputs: input channels.
        padding: one entry per space dim.
        widths: channels of each level, finest first.
        patch: cells per dim that are merged into channels at the input.
        level: builds the blocks of one pass through a level from its number of channels.
    """

    act: nn.GELU

    def __init__(
        self,
        inputs: int,
        padding: Sequence[Padding],
        widths: Sequence[int],
        patch: int,
        level: Callable[[int], Stack],
    ) -> None:
        super().__init__()
        self.patch: int = patch
        self.padding: list[Padding] = list(padding)
        self.act = nn.GELU(approximate="tanh")
        self.stem: Conv = Conv(inputs * patch ** len(padding), widths[0], padding)
        self.encoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths)
        self.widen: nn.ModuleList = nn.ModuleList(
            Conv(a, b, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.narrow: nn.ModuleList = nn.ModuleList(
            Conv(b, a, padding, 1) for a, b in itertools.pairwise(widths)
        )
        self.decoders: nn.ModuleList = nn.ModuleList(level(w) for w in widths[:-1])

    def features(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, widths[0], *space / patch) from (B, inputs, *space), whole patches."""
        return self.levels(self.first(x), condition)

    def first(self, x: Tensor) -> Tensor:
        """Return the channels of the finest level before its blocks."""

        def merged(x: Tensor) -> Tensor:
            return self.stem(space_to_channels(x, self.patch))

        return slabwise(merged, [x], self.stem.margin, self.padding, cells=self.patch)

    def levels(self, h: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return the features from the channels of the finest level."""
        skips: list[Tensor] = []
        for i, encoder in enumerate(self.encoders):
            h = encoder(h, condition)
            if i < len(self.widen):
                skips.append(h)
                h = self.widen[i](down(h))
        for i in reversed(range(len(self.decoders))):
            skip = skips[i]
            coarse = resize(self.narrow[i](h), skip.shape[2:], self.padding)
            h = self.decoders[i](skip + coarse, condition)
        return h
