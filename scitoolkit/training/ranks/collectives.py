"""Differentiable exchanges of rows between ranks.

A tensor is either sharded (each rank holds some of its rows) or replicated (each rank holds all of
it). The gradient of a replicated tensor is a partial sum on each rank, so the adjoint of a sum over
ranks is again a sum over ranks. The adjoint of each function is another function of this module, so
second derivatives are exact as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from scitoolkit.training.ranks.communicator import Communicator, RowExchange


def gather_counts(ranks: Communicator, count: int) -> list[int]:
    """All-gather one integer per rank.

    Example:
        >>> from scitoolkit.training.ranks.communicator import SingleProcess
        >>> gather_counts(SingleProcess(), 3)
        [3]
    """
    receive = torch.empty(ranks.size, dtype=torch.int64)
    one = [1] * ranks.size
    ranks.start(torch.full((ranks.size,), count), one, receive, one)()
    return receive.tolist()


def gather_on_first(x: Tensor, ranks: Communicator, counts: Sequence[int]) -> Tensor | None:
    """Gather rows on rank 0, ordered by rank; return None on other ranks. Not differentiable.

    Args:
        x: local rows, shape (counts[rank], ...).
        ranks: the communicator.
        counts: number of rows of each rank.

    Example:
        >>> from scitoolkit.training.ranks.communicator import SingleProcess
        >>> gather_on_first(torch.tensor([[1.0], [2.0]]), SingleProcess(), [2]).tolist()
        [[1.0], [2.0]]
    """
    first, width = ranks.rank == 0, _width(x)
    received = [n * width if first else 0 for n in counts]
    sent = [x.numel(), *[0] * (ranks.size - 1)]
    receive = x.new_empty(sum(received))
    ranks.start(x.reshape(-1), sent, receive, received)()
    return receive.view(sum(counts), *x.shape[1:]) if first else None


class FetchHalo(Function):
    """Halo exchange: local rows, shape (n_own, ...) -> halo rows, shape (n_halo, ...).

    With `extends` the result is the local rows followed by those of the halo, which is received
    where it stays: `cat` would hold the halo twice, and its derivative the local gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ranks: Communicator, halo: RowExchange, extends: bool = False
    ) -> Tensor:
        """Send local rows to the ranks whose edges reference them."""
        ctx.ranks, ctx.halo, ctx.rows = ranks, halo, len(x)
        own, flat = len(x) if extends else 0, x.reshape(len(x), _width(x))
        out = x.new_empty(own + halo.rows_received, flat.shape[1])
        _, wait = halo.start(ranks, flat, out[own:])
        out[:own] = flat[:own]
        wait()
        return out.view(len(out), *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Send partial gradients back to the owners."""
        return ReturnHalo.apply(grad, ctx.ranks, ctx.halo, ctx.rows), None, None, None


class ReturnHalo(Function):
    """Adjoint of `FetchHalo`: partial sums at (local and) halo rows -> totals at local rows."""

    @staticmethod
    def forward(
        ctx: Any, partial: Tensor, ranks: Communicator, halo: RowExchange, num_rows: int
    ) -> Tensor:
        """Send partial sums to the owners, which add them in order of the ranks."""
        own = len(partial) - halo.rows_received
        ctx.ranks, ctx.halo, ctx.extends = ranks, halo, own > 0
        flat = partial.reshape(len(partial), _width(partial))
        rows, wait = halo.start_back(ranks, flat[own:])
        total = flat[:own].clone() if own else flat.new_zeros(num_rows, flat.shape[1])
        wait()
        return halo.add(total, rows).view(num_rows, *partial.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Fetch the gradients of the totals."""
        return FetchHalo.apply(grad, ctx.ranks, ctx.halo, ctx.extends), None, None, None


class SumOverRanks(Function):
    """All-reduce of a tensor of equal shape, bit-identical on every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator) -> Tensor:
        """Exchange whole tensors and add them in order of the ranks."""
        ctx.ranks = ranks
        if ranks.size == 1:
            return x.clone()
        counts = [x.numel()] * ranks.size
        receive = x.new_empty(ranks.size * x.numel())
        ranks.start(x.reshape(-1).repeat(ranks.size), counts, receive, counts)()
        return receive.view(ranks.size, *x.shape).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Sum the partial gradients."""
        return SumOverRanks.apply(grad, ctx.ranks), None


class GatherRows(Function):
    """All-gather: local rows, shape (counts[rank], ...) -> the rows of all ranks, by rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator, counts: tuple[int, ...]) -> Tensor:
        """Send local rows to every rank."""
        ctx.ranks, ctx.counts = ranks, counts
        width = _width(x)
        receive = x.new_empty(sum(counts) * width)
        sent = [len(x) * width] * ranks.size
        ranks.start(x.reshape(-1).repeat(ranks.size), sent, receive, [n * width for n in counts])()
        return receive.view(sum(counts), *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Reduce-scatter the partial gradients."""
        return SumRows.apply(grad, ctx.ranks, ctx.counts), None, None


class SumRows(Function):
    """Reduce-scatter: partial sums at the rows of all ranks -> totals at local rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator, counts: tuple[int, ...]) -> Tensor:
        """Send each rank its rows; add them in order of the ranks."""
        ctx.ranks, ctx.counts = ranks, counts
        width, own = _width(x), counts[ranks.rank]
        receive = x.new_empty(ranks.size * own * width)
        received = [own * width] * ranks.size
        ranks.start(x.reshape(-1), [n * width for n in counts], receive, received)()
        return receive.view(ranks.size, own, *x.shape[1:]).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Gather the gradients of the totals."""
        return GatherRows.apply(grad, ctx.ranks, ctx.counts), None, None


def _width(x: Tensor) -> int:
    """Return the numbers per row, also without rows."""
    return torch.Size(x.shape[1:]).numel()
