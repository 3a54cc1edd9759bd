"""Residual network for fields, for maps with a local dependence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from scitoolkit.emulation.models.film import Stack
from scitoolkit.emulation.models.layers import (
    Block,
    Conv,
    Padding,
    channels_to_space,
    resize,
    space_to_channels,
    to_whole_patches,
)


class ResNet(nn.Module):
    """Residual blocks on one grid (He et al. 2016, doi:10.1007/978-3-319-46493-0_38).

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        width: channels of the blocks.
        blocks: number of blocks; each extends the receptive field by `(kernel - 1) patch` cells.
        kernel: size along each dim, odd.
        patch: cells per dim that are merged into channels.
        conditioning: size of the condition that scales and shifts channels; 0 for none.

    Example:
        >>> import torch
        >>> ResNet(2, 1, ["circular"], width=8, blocks=2)(torch.zeros(3, 2, 9)).shape
        torch.Size([3, 1, 9])
    """

    act: nn.GELU

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        width: int = 32,
        blocks: int = 8,
        kernel: int = 3,
        patch: int = 1,
        conditioning: int = 0,
    ) -> None:
        super().__init__()
        cells = patch ** len(padding)
        self.patch = patch
        self.stem: Conv = Conv(inputs * cells, width, padding)
        self.body: Stack = Stack(Block(width, padding, kernel, conditioning) for _ in range(blocks))
        self.act = nn.GELU(approximate="tanh")
        self.head: Conv = Conv(width, outputs * cells, padding)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        size = x.shape[2:]
        whole = to_whole_patches(x, self.patch)
        h = self.body(self.stem(space_to_channels(whole, self.patch)), condition)
        return resize(channels_to_space(self.head(self.act(h)), self.patch), size)
