"""The encoder of the MeshfreeFlowNet paper, for comparison.

A U-Net of bottleneck blocks with batch normalisation, max pooling and nearest upsampling; its
latent grid is that of its input. Source: Jiang et al., SC20, doi:10.1109/SC41405.2020.00013,
sec. 4.1. In addition to the paper: 1 to 4 dims, any number of nodes, and circular convolution in
periodic dims. Batch statistics are per process, so that results depend on the number of processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.superresolution.convolution import PaddedConvolution, unpool


class ResidualUNet(nn.Module):
    """U-Net from low-resolution fields to latent vectors on the same nodes.

    Args:
        channels_in: fields plus coordinate channels.
        periodic: one flag per dim.
        widths: channels of each level, finest first.
        channels_out: latent channels.

    Example:
        >>> encoder = ResidualUNet(4, [False] * 3, widths=[16, 32, 64, 128, 256], channels_out=32)
        >>> sum(p.numel() for p in encoder.parameters())
        1458400
        >>> encoder(torch.zeros(2, 4, 4, 16, 16)).shape
        torch.Size([2, 32, 4, 16, 16])
    """

    factors: Sequence[tuple[int, ...]] = ()
    """The latent grid is not refined."""

    def __init__(
        self,
        channels_in: int,
        periodic: Sequence[bool],
        *,
        widths: Sequence[int],
        channels_out: int,
    ) -> None:
        super().__init__()
        first, last = widths[0], widths[-2]
        self.stem: Bottleneck = Bottleneck(channels_in, first, first, periodic)
        self.down: nn.ModuleList = nn.ModuleList(
            Bottleneck(a, b // 2, b, periodic) for a, b in itertools.pairwise(widths)
        )
        self.middle: Bottleneck = Bottleneck(widths[-1], last, last, periodic)
        self.up: nn.ModuleList = nn.ModuleList(
            Bottleneck(2 * a, b, b, periodic) for a, b in itertools.pairwise(widths[-2::-1])
        )
        self.head: Bottleneck = Bottleneck(
            2 * first, 2 * first, channels_out, periodic, rectify=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the latent grid (B, channels_out, nodes)."""
        levels = [self.stem(x)]
        for block in self.down:
            levels.append(_pool(block(levels[-1])))
        x = levels.pop()
        for block in [self.middle, *self.up]:
            x = unpool(block(x), levels[-1].shape[2:])
            x = torch.cat([x, levels.pop()], 1)
        return self.head(x)


class Bottleneck(nn.Module):
    """Residual block of batch-normalised 1 x 1, 3 x 3 and 1 x 1 convolutions, 1 x 1 shortcut."""

    def __init__(
        self,
        channels_in: int,
        neck: int,
        channels_out: int,
        periodic: Sequence[bool],
        *,
        rectify: bool = True,
    ) -> None:
        super().__init__()
        self.rectify = rectify
        self.convolutions: nn.ModuleList = nn.ModuleList(
            [
                PaddedConvolution(channels_in, neck, periodic, 1),
                PaddedConvolution(neck, neck, periodic, 3),
                PaddedConvolution(neck, channels_out, periodic, 1),
            ]
        )
        self.norms: nn.ModuleList = nn.ModuleList(_BatchNorm(c) for c in (neck, neck, channels_out))
        self.shortcut: PaddedConvolution = PaddedConvolution(channels_in, channels_out, periodic, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, (B, channels_out, ...)."""
        y = x
        for number, (convolve, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolve(functional.relu(y) if number else y))
        y = y + self.shortcut(x)
        return functional.relu(y) if self.rectify else y


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation over any number of dims."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dims."""


def _pool(x: Tensor) -> Tensor:
    """Return maxima over pairs along all dims, except the shortest ones if lengths differ.

    A last odd node is not pooled.
    """
    sizes = x.shape[2:]
    # Crops of the paper have fewer nodes in time than in space: time is pooled only once all dims
    # are equally short.
    shortest = min(sizes)
    equal = all(size == shortest for size in sizes)
    for dim, size in enumerate(sizes, 2):
        if size > 1 and (equal or size > shortest):
            even = x.narrow(dim, 0, size - size % 2).unflatten(dim, (-1, 2)).amax(dim + 1)
            x = torch.cat([even, x.narrow(dim, size - 1, 1)], dim) if size % 2 else even
    return x
