"""Encoder: a U-Net on the low-resolution nodes, followed by stages that refine the latent grid.

Refinement by convolutions before the continuous decoder shares work between all queries of a cell;
at equal cost its error is much smaller than that of a wide decoder on the coarse grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.superresolution.convolution import (
    NormedBlock,
    PaddedConvolution,
    groups,
    pool,
    resample,
    unpool,
)


class Encoder(nn.Module):
    """U-Net from low-resolution fields to latent vectors on a refined grid.

    Args:
        channels_in: fields plus coordinate channels.
        periodic: one flag per dim.
        widths: channels of each level, pooled by 2 from the one before; dims of fewer than 4 nodes
            are not pooled.
        blocks: residual blocks per level.
        stages: refinements, each (channels, one factor per dim); factors multiply.
        channels_out: latent channels.
    """

    norm: nn.GroupNorm

    def __init__(
        self,
        channels_in: int,
        periodic: Sequence[bool],
        *,
        widths: Sequence[int],
        blocks: int,
        stages: Sequence[tuple[int, Sequence[int]]],
        channels_out: int,
    ) -> None:
        super().__init__()
        self.periodic: tuple[bool, ...] = tuple(periodic)
        levels = len(widths) - 1
        self.stem: PaddedConvolution = PaddedConvolution(channels_in, widths[0], periodic)
        self.down: nn.ModuleList = nn.ModuleList(
            _blocks(widths[max(level - 1, 0)], widths[level], blocks, periodic)
            for level in range(levels + 1)
        )
        self.up: nn.ModuleList = nn.ModuleList(
            _blocks(widths[level + 1] + widths[level], widths[level], 1, periodic)
            for level in reversed(range(levels))
        )
        self.factors: list[tuple[int, ...]] = [tuple(factors) for _, factors in stages]
        inner = [widths[0], *(channels for channels, _ in stages)]
        self.narrow: nn.ModuleList = nn.ModuleList(
            PaddedConvolution(a, b, periodic, 1) for a, b in itertools.pairwise(inner)
        )
        self.refine: nn.ModuleList = nn.ModuleList(_blocks(c, c, 1, periodic) for c in inner[1:])
        self.norm = nn.GroupNorm(groups(inner[-1]), inner[-1])
        self.head: PaddedConvolution = PaddedConvolution(inner[-1], channels_out, periodic, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the latent grid (B, channels_out, refined nodes)."""
        if x.ndim == 5:  # 3-D convolutions on CPUs are a tenth faster in this layout
            x = x.contiguous(memory_format=torch.channels_last_3d)
        x = self.stem(x)
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            if level:
                skips.append(x)
                x = pool(x, [size >= 4 for size in x.shape[2:]])
            x = block(x)
        for block in self.up:
            skip = skips.pop()
            x = block(torch.cat([unpool(x, skip.shape[2:]), skip], 1))
        for factors, narrow, block in zip(self.factors, self.narrow, self.refine, strict=True):
            x = block(resample(narrow(x), factors, self.periodic))
        return self.head(functional.silu(self.norm(x)))


def _blocks(channels_in: int, channels_out: int, count: int, periodic: Sequence[bool]):
    widths = [channels_in, *[channels_out] * count]
    return nn.Sequential(*(NormedBlock(a, b, periodic) for a, b in itertools.pairwise(widths)))
