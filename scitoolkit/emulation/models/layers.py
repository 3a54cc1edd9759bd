"""Convolutions in 1 to 3 dims with padding per dim, residual blocks and resampling.

Letters: B sample, C channel, then the space dims as in the data. A periodic dim is padded
circularly, a walled one with zeros (which show a network where the wall is) or with the edge value,
a latitude with the cells on the other side of the pole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.film import Film
from scitoolkit.emulation.models.padding import AnyPadding as Padding
from scitoolkit.emulation.models.padding import PoleDim, SharedDim
from scitoolkit.fields.padding import wrapped

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_MODE = {1: "linear", 2: "bilinear", 3: "trilinear"}


def pad(x: Tensor, dim: int, width: int, padding: Padding) -> Tensor:
    """Pad a tensor by `width` cells at both ends of a dim.

    Example:
        >>> pad(torch.arange(4.0)[None, None], 2, 1, "circular").flatten().tolist()
        [3.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    """
    if width == 0:
        return x
    if isinstance(padding, SharedDim):
        return padding.extend(x, dim, width, padding.kind)
    if isinstance(padding, PoleDim):
        return over_poles(x, dim, width, padding)
    if padding == "pole":
        raise ValueError("the padding pole needs the dim of the longitude: PoleDim")
    if padding == "circular":
        return wrapped(x, dim, width)
    first, last = x.narrow(dim, 0, 1), x.narrow(dim, x.shape[dim] - 1, 1)
    if padding == "zeros":
        first, last = torch.zeros_like(first), torch.zeros_like(last)
    shape = list(x.shape)
    shape[dim] = width
    return torch.cat([first.expand(shape), x, last.expand(shape)], dim)


def over_poles(x: Tensor, dim: int, width: int, pole: PoleDim) -> Tensor:
    """Pad a latitude by the cells beyond its poles, half a turn around them.

    The longitude must not be padded yet. Values are those of scalars: components along
    latitude and longitude change their signs across a pole, which networks do not know.

    Example:
        >>> x = torch.arange(8.0).view(1, 1, 2, 4)
        >>> over_poles(x, 2, 1, PoleDim(3, 2))[0, 0].tolist()[0]
        [2.0, 3.0, 0.0, 1.0]
    """
    size, cells = x.shape[dim], x.shape[pole.around]
    half = cells // 2
    turned = _turned(x, pole.around, half)
    if cells % 2:  # the point opposite is between two cells
        turned = 0.5 * (turned + _turned(x, pole.around, half + 1))
    first, last = (int(point and size == pole.cells) for point in pole.points)
    before = [min(first + k, size - 1) for k in reversed(range(width))]
    after = [max(size - 1 - last - k, 0) for k in range(width)]
    rows = [[turned.narrow(dim, k, 1) for k in side] for side in (before, after)]
    return torch.cat([*rows[0], x, *rows[1]], dim)


def _turned(x: Tensor, dim: int, cells: int) -> Tensor:
    """Return a periodic dim that begins at another cell."""
    rest = x.shape[dim] - cells
    return torch.cat([x.narrow(dim, cells, rest), x.narrow(dim, 0, cells)], dim)


def continued(x: Tensor, dim: int, width: int, padding: Padding) -> Tensor:
    """Pad a tensor for interpolation: circularly, from neighbouring slabs, or with edge values.

    Example:
        >>> continued(torch.arange(3.0)[None, None], 2, 1, "zeros").flatten().tolist()
        [0.0, 0.0, 1.0, 2.0, 2.0]
    """
    if width and isinstance(padding, SharedDim):
        kind: Any = padding.kind if padding.kind == "circular" else "edge"
        return padding.extend(x, dim, width, kind)
    return pad(x, dim, width, "circular" if padding == "circular" else "edge")


class Conv(nn.Module):
    """Convolution with an odd kernel that preserves the grid.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        kernel: size along each dim, odd.
        groups: groups of channels; as many as channels for a depthwise convolution.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        kernel: int = 3,
        groups: int = 1,
    ) -> None:
        super().__init__()
        half = kernel // 2
        # The convolution pads with zeros itself, without a copy of its input.
        own = tuple(half if p == "zeros" else 0 for p in padding)
        make: Any = _CONV[len(padding)]
        self.conv: Any = make(inputs, outputs, kernel, padding=own, groups=groups)
        # Poles first: half a turn is counted in cells of the longitude without its padding.
        self.padded: list[tuple[int, Padding]] = sorted(
            ((i + 2, p) for i, p in enumerate(padding) if p != "zeros" and half),
            key=lambda entry: not isinstance(entry[1], PoleDim),
        )
        self.margin = half

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, *space)."""
        for dim, padding in self.padded:
            x = pad(x, dim, self.margin, padding)
        return self.conv(x)


class Block(nn.Module):
    """Pre-activation residual block of two convolutions, initialised as the identity.

    Without normalisation, which would remove the amplitudes. He et al. 2016
    (doi:10.1007/978-3-319-46493-0_38); zero initialisation after Zhang et al. 2019
    (arXiv:1901.09321).
    """

    act: nn.GELU

    def __init__(
        self, channels: int, padding: Sequence[Padding], kernel: int = 3, conditioning: int = 0
    ) -> None:
        super().__init__()
        self.first: Conv = Conv(channels, channels, padding, kernel)
        self.second: Conv = Conv(channels, channels, padding, kernel)
        self.film: Film = Film(conditioning, channels)
        self.act = nn.GELU(approximate="tanh")
        nn.init.zeros_(self.second.conv.weight)
        nn.init.zeros_(self.second.conv.bias)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, channels, *space)."""
        return x + self.second(self.act(self.film(self.first(self.act(x)), condition)))


def cellwise(inputs: int, hidden: int, outputs: int, padding: Sequence[Padding]) -> nn.Sequential:
    """Return a network with one hidden layer that is applied to each cell separately.

    Args:
        inputs: input channels.
        hidden: hidden channels.
        outputs: output channels.
        padding: one entry per space dim.
    """
    return nn.Sequential(
        Conv(inputs, hidden, padding, 1),
        nn.GELU(approximate="tanh"),
        Conv(hidden, outputs, padding, 1),
    )


def to_whole_patches(x: Tensor, patch: int) -> Tensor:
    """Interpolate (B, C, *space) to the next larger multiple of `patch` cells along every dim."""
    return resize(x, [-(-s // patch) * patch for s in x.shape[2:]])


def space_to_channels(x: Tensor, patch: int) -> Tensor:
    """Merge blocks of `patch` cells per dim into channels: (B, C p^d, *space / p)."""
    if patch == 1:
        return x
    space = range(2, x.ndim)
    for dim in reversed(space):
        x = x.unflatten(dim, (x.shape[dim] // patch, patch))
    coarse = [2 * dim - 2 for dim in space]
    # The places in a patch, those of the last dim first, then the channels: one copy.
    return x.permute(0, *(c + 1 for c in reversed(coarse)), 1, *coarse).flatten(1, len(space) + 1)


def channels_to_space(x: Tensor, patch: int) -> Tensor:
    """Undo `space_to_channels`.

    Example:
        >>> x = torch.randn(2, 3, 8, 4)
        >>> torch.equal(channels_to_space(space_to_channels(x, 2), 2), x)
        True
    """
    if patch == 1:
        return x
    dims = x.ndim - 2
    wide = [n * patch for n in x.shape[2:]]
    x = x.unflatten(1, (*[patch] * dims, x.shape[1] // patch**dims))
    pairs = ((dims + 2 + i, dims - i) for i in range(dims))
    return x.permute(0, dims + 1, *(d for pair in pairs for d in pair)).reshape(
        *x.shape[:1], -1, *wide
    )


def resize(x: Tensor, size: Sequence[int], padding: Sequence[Padding] = ()) -> Tensor:
    """Interpolate linearly to another grid of the same extent.

    Args:
        x: (B, C, *space).
        size: cells per dim.
        padding: one entry per space dim; periodic dims, and dims divided among processes, are
            interpolated across their ends if the new size is a multiple of the old one.
    """
    if tuple(x.shape[2:]) == tuple(size):
        return x
    wraps = [
        (p == "circular" or isinstance(p, SharedDim)) and new % old == 0
        for p, new, old in zip(padding, size, x.shape[2:], strict=False)
    ] or [False] * len(size)
    wide = list(size)
    for i, wrap in enumerate(wraps):
        if wrap:
            wide[i] += 2 * (size[i] // x.shape[i + 2])
            x = continued(x, i + 2, 1, padding[i])
    x = nn.functional.interpolate(x, wide, mode=_MODE[x.ndim - 2], align_corners=False)
    for i, wrap in enumerate(wraps):
        if wrap:
            x = x.narrow(i + 2, (wide[i] - size[i]) // 2, size[i])
    return x


def down(x: Tensor) -> Tensor:
    """Average over blocks of two cells in every dim of more than one cell.

    The last cell of an odd dim is a block of one.
    """
    pool = {3: nn.functional.avg_pool1d, 4: nn.functional.avg_pool2d, 5: nn.functional.avg_pool3d}
    kernel = [min(2, s) for s in x.shape[2:]]
    return pool[x.ndim](x, kernel, kernel, ceil_mode=True, count_include_pad=False)
