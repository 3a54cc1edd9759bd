"""Differentiable halo exchange, sums and gathering of slabs along one grid dim."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.padding import Padding, SharedDim
from scitoolkit.training.ranks.collectives import FetchHalo, GatherRows, SumRows
from scitoolkit.training.ranks.communicator import Communicator, RowExchange


class Slabs(SharedDim):
    """A grid dim divided into slabs of equal size, in the order of ranks.

    Args:
        ranks: the processes.
        kind: padding of the whole dim.

    Example:
        >>> from scitoolkit.training.ranks.communicator import SingleProcess
        >>> one = Slabs(SingleProcess(), "circular")
        >>> one.extend(torch.arange(3.0)[None], 1, 1, "circular").tolist()
        [[2.0, 0.0, 1.0, 2.0, 0.0]]
    """

    def __init__(self, ranks: Communicator, kind: Padding) -> None:
        self.ranks, self.kind = ranks, kind
        self.rank, self.size = ranks.rank, ranks.size

    def extend(self, x: Tensor, dim: int, width: int, kind: Padding) -> Tensor:
        """Return a slab padded by `width` cells of neighbouring slabs, or by `kind` at walls.

        Raises:
            ConfigError: slabs of fewer than `width` cells.
        """
        cells = x.shape[dim]
        if width > cells:
            raise ConfigError(
                f"a layer needs a halo of {width} cells, but slabs have {cells}",
                where="training.strategy",
                allowed=f"slabs of {width} cells or more",
                fix="fewer processes, spatial_dim=a longer dim, or fewer levels",
            )
        before, after = self._neighbours(kind)
        ends = torch.cat([x.narrow(dim, 0, width), x.narrow(dim, cells - width, width)], dim)
        halo = FetchHalo.apply(ends.movedim(dim, 0), self.ranks, self._exchange(width, kind))
        halos = self._arranged(halo, width, before, after)
        sides = [
            part.movedim(0, dim) if part is not None else _beyond(x, dim, width, kind, end)
            for part, end in zip(halos, (0, cells - 1), strict=True)
        ]
        return torch.cat([sides[0], x, sides[1]], dim)

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over processes, bitwise equal on all of them."""
        counts = self._counts(x.numel())
        total = SumRows.apply(x.reshape(-1), self.ranks, counts)
        return GatherRows.apply(total, self.ranks, counts).view(x.shape)

    def swap(self, x: Tensor, joined: int, divided: int) -> Tensor:
        """Return a tensor whose slabs along `joined` are one, divided along another dim instead.

        The length along `divided` must be a multiple of the number of processes.
        """
        share = (x.shape[divided] // self.size,) * self.size
        rows = torch.arange(x.shape[divided])
        exchange = RowExchange(rows.to(x.device), share, share)
        moved = FetchHalo.apply(x.movedim(divided, 0), self.ranks, exchange)
        return torch.cat([p.movedim(0, divided) for p in moved.chunk(self.size)], joined)

    def whole(self, x: Tensor, dim: int) -> Tensor:
        """Return the whole tensor, gathered from the slabs along a dim."""
        moved = x.movedim(dim, 0).contiguous()
        counts = (len(moved),) * self.size
        return GatherRows.apply(moved, self.ranks, counts).movedim(0, dim)

    def own(self, x: Tensor, dim: int) -> Tensor:
        """Return this process's slab of a whole tensor."""
        cells = x.shape[dim] // self.size
        return x.narrow(dim, self.rank * cells, cells)

    def _counts(self, numel: int) -> tuple[int, ...]:
        return tuple(
            (numel * (r + 1)) // self.size - numel * r // self.size for r in range(self.size)
        )

    def _neighbours(self, kind: Padding) -> tuple[int | None, int | None]:
        before, after = self.rank - 1, self.rank + 1
        if kind == "circular":
            return before % self.size, after % self.size
        return (before if before >= 0 else None), (after if after < self.size else None)

    def _exchange(self, width: int, kind: Padding) -> RowExchange:
        """Return the exchange plan of the 2 `width` end rows, first rows before last rows."""
        before, after = self._neighbours(kind)
        index: list[int] = []
        sent = [0] * self.size
        for other in range(self.size):
            for neighbour, first in ((before, 0), (after, width)):
                if neighbour == other:
                    index += range(first, first + width)
                    sent[other] += width
        # The exchange is symmetric: a process receives from a neighbour as many rows as it sends.
        return RowExchange(torch.tensor(index, dtype=torch.int64), tuple(sent), tuple(sent))

    def _arranged(
        self, halo: Tensor, width: int, before: int | None, after: int | None
    ) -> Sequence[Tensor | None]:
        """Return the rows of the neighbour before and of the one after."""
        if before is not None and before == after:
            # A single neighbour on both sides sends its first rows first, which follow our slab.
            return halo[width:], halo[:width]
        parts: dict[int, Tensor] = {}
        at = 0
        for other in sorted(n for n in (before, after) if n is not None):
            parts[other] = halo[at : at + width]
            at += width
        return [None if n is None else parts[n] for n in (before, after)]


def _beyond(x: Tensor, dim: int, width: int, kind: Padding, end: int) -> Tensor:
    """Return the padding beyond a wall."""
    edge = x.narrow(dim, end, 1)
    shape = [width if i == dim else n for i, n in enumerate(x.shape)]
    return (torch.zeros_like(edge) if kind == "zeros" else edge).expand(shape)
