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
from scitoolkit.training.strategies.mesh.division import Division, Stage


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
        self.patch, self.conditioned = patch, conditioning > 0
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

    def division(self) -> dict[str, Division]:
        """Return the division of the blocks' channels, none with conditions, which scale them."""
        if self.conditioned:
            return {}
        return {
            "body.*.first.conv": Division(outputs="y"),
            "body.*.second.conv": Division(inputs="y"),
        }

    def stages(self) -> list[Stage]:
        """Return the stem, the blocks and the head."""

        def first(h: Tensor, x: Tensor, condition: Tensor | None) -> Tensor:
            return self.stem(space_to_channels(to_whole_patches(x, self.patch), self.patch))

        def block(i: int) -> Stage:
            return Stage((f"body.{i}",), lambda h, x, condition: self.body[i](h, condition))

        def last(h: Tensor, x: Tensor, condition: Tensor | None) -> Tensor:
            return resize(channels_to_space(self.head(self.act(h)), self.patch), x.shape[2:])

        inner = [block(i) for i in range(len(self.body))]
        return [Stage(("stem",), first, 0.5), *inner, Stage(("head",), last, 0.5)]
