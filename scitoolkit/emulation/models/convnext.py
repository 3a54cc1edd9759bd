"""U-Net of ConvNeXt blocks: wide depthwise convolutions and a small network in every cell."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film, Stack
from scitoolkit.emulation.models.layers import (
    Conv,
    Padding,
    channels_to_space,
    resize,
    to_whole_patches,
)
from scitoolkit.emulation.models.pyramid import Pyramid
from scitoolkit.emulation.models.slabwise import slabwise


class ConvNeXtBlock(nn.Module):
    """Residual block of a depthwise convolution, then expansion, GELU and contraction per cell.

    Liu et al. 2022 (arXiv:2201.03545), without normalisation, which would remove the amplitudes.
    Initialised as the identity.

    Args:
        channels: input and output channels.
        padding: one entry per space dim.
        kernel: size of the depthwise convolution, odd.
        expansion: hidden channels relative to `channels`.
        conditioning: size of the condition that scales and shifts channels; 0 for none.
    """

    act: nn.GELU

    def __init__(
        self,
        channels: int,
        padding: Sequence[Padding],
        kernel: int = 7,
        expansion: int = 4,
        conditioning: int = 0,
    ) -> None:
        super().__init__()
        self.depthwise: Conv = Conv(channels, channels, padding, kernel, groups=channels)
        self.widen: Conv = Conv(channels, expansion * channels, padding, 1)
        self.film: Film = Film(conditioning, channels)
        self.act = nn.GELU(approximate="tanh")
        self.narrow: Conv = Conv(expansion * channels, channels, padding, 1)
        self.padding: list[Padding] = list(padding)
        nn.init.zeros_(self.narrow.conv.weight)
        nn.init.zeros_(self.narrow.conv.bias)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, channels, *space)."""

        def mixed(near: Tensor) -> Tensor:
            return self.narrow(self.act(self.widen(near)))

        near = self.film(self.depthwise(x), condition)
        return x + slabwise(mixed, [near], 0, self.padding)


class ConvNeXtUNet(Pyramid):
    """U-Net of ConvNeXt blocks.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        widths: channels of each level, finest first.
        blocks: blocks per level in the encoder, and as many in the decoder.
        kernel: size of the depthwise convolutions, odd.
        patch: cells per dim that are merged into channels at the input.
        conditioning: size of the condition that scales and shifts channels; 0 for none.

    Example:
        >>> import torch
        >>> net = ConvNeXtUNet(3, 2, ["circular", "zeros"], widths=[8, 16])
        >>> net(torch.zeros(1, 3, 10, 7)).shape
        torch.Size([1, 2, 10, 7])
    """

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
        conditioning: int = 0,
    ) -> None:
        def level(width: int) -> Stack:
            return Stack(
                ConvNeXtBlock(width, padding, kernel, conditioning=conditioning)
                for _ in range(blocks)
            )

        super().__init__(inputs, padding, widths, patch, level)
        self.head: Conv = Conv(widths[0], outputs * patch ** len(padding), padding)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        return self.decoded(*self.encoded(x, condition))

    def encoded(self, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Sequence[int]]:
        """Return all that `decoded` needs of x: features, (B, C, *space / patch), and space."""
        space = x.shape[2:]
        h = self.first(to_whole_patches(x, self.patch))
        del x  # if the caller does not hold it, the levels have its memory
        return self.act(self.levels(h, condition)), space

    def decoded(self, h: Tensor, space: Sequence[int]) -> Tensor:
        """Return (B, outputs, *space) from the features of patches."""

        def last(h: Tensor) -> Tensor:
            return channels_to_space(self.head(h), self.patch)

        out = slabwise(last, [h], self.head.margin, self.padding, cells_out=self.patch)
        return resize(out, space)
