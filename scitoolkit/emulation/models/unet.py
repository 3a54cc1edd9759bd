"""U-Net for fields: local detail at full resolution, long-range dependence on coarse levels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.film import Film, Stack
from scitoolkit.emulation.models.layers import (
    Block,
    Conv,
    Padding,
    channels_to_space,
    resize,
    to_whole_patches,
)
from scitoolkit.emulation.models.pyramid import Pyramid
from scitoolkit.emulation.models.slabwise import slabwise


class UNet(Pyramid):
    """U-Net of residual blocks.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        widths: channels of each level, finest first; the first is a multiple of the cells of a
            patch, `patch` to the power of the number of dims.
        blocks: residual blocks per level in the encoder, and as many in the decoder.
        patch: cells per dim that are merged into channels at the input: 2 makes every level 4
            times cheaper in two dims and leaves the finest detail to the last layers.
        conditioning: size of the condition that scales and shifts channels; 0 for none.

    Raises:
        ConfigError: a first width that patches do not divide.

    Sizes need not be powers of two. Periodicity is exact if the size can be halved at every level.

    Example:
        >>> net = UNet(3, 2, ["circular", "zeros"], widths=[8, 16])
        >>> net(torch.zeros(1, 3, 10, 7)).shape
        torch.Size([1, 2, 10, 7])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        widths: Sequence[int] = (32, 64, 96, 128),
        blocks: int = 1,
        patch: int = 1,
        conditioning: int = 0,
    ) -> None:
        if widths[0] % patch ** len(padding):
            raise ConfigError(
                f"{widths[0]} channels of the finest level do not divide into patches of "
                f"{patch ** len(padding)} cells",
                where="model.widths",
                allowed=f"a first width that is a multiple of {patch ** len(padding)}",
            )

        def level(width: int) -> Stack:
            return Stack(Block(width, padding, conditioning=conditioning) for _ in range(blocks))

        super().__init__(inputs, padding, widths, patch, level)
        fine = widths[0] // patch ** len(padding)
        detail = max(16, fine)
        self.detail: Conv = Conv(fine + inputs, detail, padding)
        self.film: Film = Film(conditioning, detail)
        self.head: Conv = Conv(detail, outputs, padding)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        fine = to_whole_patches(x, self.patch)
        h = channels_to_space(self.features(fine, condition), self.patch)

        def last(h: Tensor, fine: Tensor) -> Tensor:
            h = self.act(self.film(self.detail(torch.cat([h, fine], 1)), condition))
            return self.head(self.act(h))

        out = slabwise(last, [h, fine], self.detail.margin + self.head.margin, self.padding)
        return resize(out, x.shape[2:])
