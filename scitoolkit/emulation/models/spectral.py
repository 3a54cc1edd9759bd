"""Spectral layers with a basis per dim: Fourier on periodic dims, cosines on walled dims.

The transforms are products with small matrices of cosines and sines, as only the lowest modes are
used. This is as fast as an FFT at these sizes, exports to ONNX without complex numbers, and allows
for cosines (zero slope at the wall) on walled dims, so that these are not treated as periodic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.padding import AnyPadding as Padding
from scitoolkit.emulation.models.padding import SharedDim, kind_of


def modes_per_dim(modes: Sequence[int], num_dims: int) -> list[int]:
    """Return the number of modes per dim; a single value is used for all dims.

    Example:
        >>> modes_per_dim([16], 2), modes_per_dim([16, 8], 2)
        ([16, 16], [16, 8])
    """
    return list(modes) * num_dims if len(modes) == 1 else list(modes)


class SpectralMixing(nn.Module):
    """Mix channels by one matrix per low mode (Li et al. 2021, arXiv:2010.08895).

    Args:
        channels: in and out.
        padding: one entry per space dim; `circular` dims get Fourier modes, others cosines.
        modes: number of modes per dim, including the constant.
        dense: mix the cosine modes with each other, too. The solution operator of an elliptic
            equation between walls has this form: for every wavenumber along the walls one matrix
            across them, its Green's function.

    Example:
        >>> layer = SpectralMixing(2, ["circular", "zeros"], modes=[3, 4])
        >>> layer(torch.zeros(1, 2, 16, 8)).shape
        torch.Size([1, 2, 16, 8])
    """

    def __init__(
        self,
        channels: int,
        padding: Sequence[Padding],
        modes: Sequence[int],
        *,
        dense: bool = False,
    ) -> None:
        super().__init__()
        self.periodic: list[bool] = [kind_of(p) == "circular" for p in padding]
        self.shared: dict[int, SharedDim] = {
            i: p for i, p in enumerate(padding) if isinstance(p, SharedDim)
        }
        self.modes: list[int] = list(modes)
        self.dense: bool = dense
        self.channels: int = channels
        # A real field's modes come in conjugate pairs: one periodic dim keeps one half of them.
        self.halved: int | None = next((i for i, p in enumerate(self.periodic) if p), None)
        coefficients = [
            2 * m - 1 if p and i != self.halved else m
            for i, (m, p) in enumerate(zip(modes, self.periodic, strict=True))
        ]
        self.alone: list[int] = [i for i, p in enumerate(self.periodic) if p or not dense]
        self.mixed: list[int] = [i for i in range(len(coefficients)) if i not in self.alone]
        count = math.prod(coefficients[i] for i in self.alone)
        side = channels * math.prod(coefficients[i] for i in self.mixed)
        self.shape: tuple[int, int, int] = (count, side, side)
        # A vector, as an optimizer of matrices must not treat the modes as rows.
        scale = 1 / math.sqrt(2 * side)
        self.real: nn.Parameter = nn.Parameter(scale * torch.randn(math.prod(self.shape)))
        self.imaginary: nn.Parameter = nn.Parameter(scale * torch.randn(math.prod(self.shape)))

    def _basis(self, dim: int, size: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return cosines and sines (size, modes), and the weight of each mode in the inverse.

        For a dim divided among processes the rows are those of this process's slab.
        """
        position = torch.arange(size, dtype=torch.float64)
        if dim in self.shared:
            position = position + self.shared[dim].rank * size
            size = size * self.shared[dim].size
        if self.periodic[dim]:
            k = torch.arange(
                0 if dim == self.halved else 1 - self.modes[dim],
                self.modes[dim],
                dtype=torch.float64,
            )
            angle = 2 * math.pi / size * position[:, None] * k
            weight = torch.where(k == 0, 1.0, 2.0) if dim == self.halved else torch.ones_like(k)
        else:
            k = torch.arange(self.modes[dim], dtype=torch.float64)
            angle = math.pi / size * (position[:, None] + 0.5) * k
            weight = torch.where(k == 0, 1.0, 2.0)
        # Modes that a coarse grid cannot represent have weight 0.
        weight = weight * (k.abs() < (size / 2 if self.periodic[dim] else size))
        sines = torch.sin(angle) if self.periodic[dim] else torch.zeros_like(angle)
        return torch.cos(angle).to(like), sines.to(like), (weight / size).to(like)

    def forward(self, x: Tensor) -> Tensor:
        """Return the contribution of the low modes, (B, channels, *space)."""
        bases = [self._basis(i, s, x) for i, s in enumerate(x.shape[2:])]
        real, imaginary = x, torch.zeros_like(x)
        for i, (cosines, sines, _) in enumerate(bases):
            real, imaginary = _transform(real, imaginary, i + 2, cosines, -sines)
        for shared in self.shared.values():
            real, imaginary = shared.sum(torch.stack([real, imaginary])).unbind(0)
        a, b = self._rows(real), self._rows(imaginary)
        p, q = self.real.view(self.shape), self.imaginary.view(self.shape)
        shape = real.shape
        real, imaginary = (self._fields(t, shape) for t in (a @ p - b @ q, a @ q + b @ p))
        for i, (cosines, sines, weight) in enumerate(bases):
            real, imaginary = _transform(
                real, imaginary, i + 2, (cosines * weight).T, (sines * weight).T
            )
        return real

    def _rows(self, x: Tensor) -> Tensor:
        """Return (separate modes, B, channels x mixed modes) from (B, channels, *modes)."""
        order = [*(i + 2 for i in self.alone), 0, 1, *(i + 2 for i in self.mixed)]
        return x.permute(order).reshape(self.shape[0], x.shape[0], self.shape[1])

    def _fields(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Undo `_rows`."""
        order = [*(i + 2 for i in self.alone), 0, 1, *(i + 2 for i in self.mixed)]
        back = sorted(range(len(order)), key=lambda i: order[i])
        return rows.reshape([shape[i] for i in order]).permute(back)


class AxisMixing(nn.Module):
    """Sum of spectral mixings along single dims (Tran et al. 2023, arXiv:2111.13802).

    Args:
        channels: in and out.
        padding: one entry per space dim; `circular` dims get Fourier modes, others cosines.
        modes: number of modes per dim.
    """

    def __init__(self, channels: int, padding: Sequence[Padding], modes: Sequence[int]) -> None:
        super().__init__()
        self.lines: nn.ModuleList = nn.ModuleList(
            SpectralMixing(channels, [kind], [count])
            for kind, count in zip(padding, modes, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, channels, *space)."""
        out = torch.zeros_like(x)
        for dim, line in enumerate(self.lines, start=2):
            moved = x.movedim(dim, -1).movedim(1, -2)
            flat = moved.reshape(-1, *moved.shape[-2:])
            out = out + line(flat).reshape(moved.shape).movedim(-2, 1).movedim(-1, dim)
        return out


def _transform(
    real: Tensor, imaginary: Tensor, dim: int, cosines: Tensor, sines: Tensor
) -> tuple[Tensor, Tensor]:
    """Multiply a complex tensor with the matrix `cosines + i sines` along a dim."""
    real, imaginary = real.movedim(dim, -1), imaginary.movedim(dim, -1)
    out = real @ cosines - imaginary @ sines, real @ sines + imaginary @ cosines
    return out[0].movedim(-1, dim), out[1].movedim(-1, dim)
