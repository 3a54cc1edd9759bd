"""Feature-wise linear modulation (FiLM): a condition that scales and shifts channels."""

from __future__ import annotations

from torch import Tensor, nn


class Film(nn.Module):
    """Scale and shift every channel by a condition; initialised as the identity.

    Perez et al. 2018 (arXiv:1709.07871): `x (1 + a(c)) + b(c)` with `a` and `b` linear in the
    condition `c`, which is the same in all cells.

    Args:
        conditioning: size of the condition; 0 for a layer without parameters that returns `x`.
        channels: number of channels of `x`.

    Example:
        >>> import torch
        >>> film = Film(3, 2)
        >>> film(torch.ones(5, 2, 8), torch.zeros(5, 3)).shape
        torch.Size([5, 2, 8])
    """

    def __init__(self, conditioning: int, channels: int) -> None:
        super().__init__()
        self.linear: nn.Linear | None = None
        if conditioning:
            self.linear = nn.Linear(conditioning, 2 * channels)
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, channels, *space) from `x` of that shape and a condition (B, conditioning)."""
        if self.linear is None or condition is None:
            return x
        values = self.linear(condition)
        values = values.view(*values.shape, *([1] * (x.ndim - 2)))
        scale, shift = values.chunk(2, 1)
        return x * (1 + scale) + shift


class Stack(nn.ModuleList):
    """Sequence of blocks that all receive the same condition."""

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, channels, *space)."""
        for block in self:
            x = block(x, condition)
        return x
