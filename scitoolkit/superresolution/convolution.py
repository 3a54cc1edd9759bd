"""Convolution, resampling and residual blocks in 1 to 4 dims, each periodic or walled.

Letters: B batch, C channels, then one letter per dim in the order of the configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.fields.padding import wrapped

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


class PaddedConvolution(nn.Module):
    """Convolution that preserves the size: circular in periodic dims, zero padding at walls.

    In four dims it is a sum of 3-D convolutions over the taps of the first dim.

    Args:
        channels_in: C of the input.
        channels_out: C of the output.
        periodic: one flag per dim.
        kernel: odd width of the kernel in every dim.

    Example:
        >>> layer = PaddedConvolution(2, 3, [False, True])
        >>> layer(torch.zeros(1, 2, 5, 4)).shape
        torch.Size([1, 3, 5, 4])
    """

    def __init__(
        self, channels_in: int, channels_out: int, periodic: Sequence[bool], kernel: int = 3
    ) -> None:
        super().__init__()
        self.periodic: tuple[bool, ...] = tuple(periodic)
        self.kernel: int = kernel
        shape = (channels_out, channels_in, *[kernel] * len(self.periodic))
        self.weight: nn.Parameter = nn.Parameter(torch.empty(shape))
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(channels_out))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution, (B, C_out, ...)."""
        half = self.kernel // 2
        if half:
            for dim, periodic in enumerate(self.periodic):
                if periodic:
                    x = wrapped(x, dim + 2, half)
        padding = [0 if p else half for p in self.periodic]
        if len(self.periodic) < 4:
            convolve = _CONVOLUTIONS[len(self.periodic)]
            return convolve(x, self.weight, self.bias, padding=padding)
        return self._four_dims(x, padding)

    def _four_dims(self, x: Tensor, padding: list[int]) -> Tensor:
        if padding[0]:
            # torch has no convolution in four dims.
            x = functional.pad(x, (0, 0, 0, 0, 0, 0, padding[0], padding[0]))
        batch, _, length = x.shape[:3]
        steps = length - self.kernel + 1
        total: Tensor | None = None
        for tap in range(self.kernel):
            frames = x.narrow(2, tap, steps).transpose(1, 2).flatten(0, 1)
            part = functional.conv3d(frames, self.weight[:, :, tap], padding=padding[1:])
            total = part if total is None else total + part
        assert total is not None
        out = total.unflatten(0, (batch, steps)).transpose(1, 2)
        return out + self.bias.view(1, -1, 1, 1, 1, 1)


def resample_matrix(size: int, factor: int, periodic: bool, cubic: bool = False) -> Tensor:
    """Return the interpolation matrix from `size` nodes to nodes `factor` times as dense.

    Walled dims preserve their end nodes, (size - 1) factor + 1 in all; periodic ones have
    size factor. Cubic is Catmull-Rom inside, with linear extrapolation of one node beyond a wall.

    Example:
        >>> resample_matrix(2, 2, periodic=False)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000],
                [0.0000, 1.0000]])
    """
    count = size * factor if periodic else (size - 1) * factor + 1
    out = np.zeros((count, size))  # numpy: a tracer would record every entry
    for row in range(count):
        cell, step = divmod(row, factor)
        s = step / factor
        taps = {0: 1 - s, 1: s}
        if cubic and size > 2:
            taps = {
                # Cubic convolution with a = -1/2 (Keys 1981).
                -1: -0.5 * s + s**2 - 0.5 * s**3,
                0: 1 - 2.5 * s**2 + 1.5 * s**3,
                1: 0.5 * s + 2 * s**2 - 1.5 * s**3,
                2: -0.5 * s**2 + 0.5 * s**3,
            }
        for offset, weight in taps.items():
            _add_tap(out[row], cell + offset, weight, periodic)
    return torch.from_numpy(out.astype(np.float32))


def _add_tap(row: np.ndarray, node: int, weight: float, periodic: bool) -> None:
    size = len(row)
    if weight == 0:
        return
    if periodic or 0 <= node < size:
        row[node % size] += weight
    elif node < 0:
        row[0] += 2 * weight
        row[1] -= weight
    else:
        row[size - 1] += 2 * weight
        row[size - 2] -= weight


def resample(
    x: Tensor, factors: Sequence[int], periodic: Sequence[bool], cubic: bool = False
) -> Tensor:
    """Interpolate `x` (B, C, ...) to nodes `factors` times as dense, dim by dim."""
    for dim, (factor, wraps) in enumerate(zip(factors, periodic, strict=True)):
        if factor > 1:
            matrix = resample_matrix(x.shape[dim + 2], factor, wraps, cubic).to(x)
            x = apply_along(matrix, x, dim + 2)
    return x


def apply_along(matrix: Tensor, x: Tensor, dim: int) -> Tensor:
    """Apply a matrix (M, N) along dim `dim` (size N) of `x`."""
    if dim == x.ndim - 1:
        return x @ matrix.T
    shape = x.shape
    flat = x.reshape(*shape[: dim + 1], -1)
    return (matrix @ flat).reshape(*shape[:dim], matrix.shape[0], *shape[dim + 1 :])


class NormedBlock(nn.Module):
    """Pre-activation residual block of two convolutions with group norms."""

    norm1: nn.GroupNorm
    norm2: nn.GroupNorm
    shortcut: nn.Identity | PaddedConvolution

    def __init__(self, channels_in: int, channels_out: int, periodic: Sequence[bool]) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups(channels_in), channels_in)
        self.conv1: PaddedConvolution = PaddedConvolution(channels_in, channels_out, periodic)
        self.norm2 = nn.GroupNorm(groups(channels_out), channels_out)
        self.conv2: PaddedConvolution = PaddedConvolution(channels_out, channels_out, periodic)
        # A block begins as its shortcut, so that depth does not change the output before training.
        nn.init.zeros_(self.conv2.weight)
        same = channels_in == channels_out
        self.shortcut = (
            nn.Identity() if same else PaddedConvolution(channels_in, channels_out, periodic, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, (B, C_out, ...)."""
        y = self.conv1(functional.silu(self.norm1(x)))
        y = self.conv2(functional.silu(self.norm2(y)))
        return self.shortcut(x) + y


def groups(channels: int) -> int:
    """Return the largest of 8, 4, 2 and 1 groups that divides the channels."""
    return next(g for g in (8, 4, 2, 1) if channels % g == 0)


def pool(x: Tensor, dims: Sequence[bool]) -> Tensor:
    """Average pairs of nodes along the chosen dims; a last odd node is not averaged."""
    for dim, chosen in enumerate(dims):
        if chosen:
            size = x.shape[dim + 2]
            even = x.narrow(dim + 2, 0, size - size % 2).unflatten(dim + 2, (-1, 2))
            pooled = even.mean(dim + 3)
            rest = x.narrow(dim + 2, size - size % 2, size % 2)
            x = torch.cat([pooled, rest], dim + 2) if size % 2 else pooled
    return x


def unpool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Repeat nodes in pairs up to `sizes`, as the inverse of the shape change of `pool`."""
    for dim, size in enumerate(sizes):
        if x.shape[dim + 2] != size:
            x = x.repeat_interleave(2, dim + 2).narrow(dim + 2, 0, size)
    return x


def corners(dims: int) -> list[tuple[int, ...]]:
    """Return the 2^d corners of a cell as offsets of 0 or 1."""
    return list(itertools.product((0, 1), repeat=dims))
