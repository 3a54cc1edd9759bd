"""Differentiable exchanges of rows between ranks; each is the adjoint of another one.

A tensor is either sharded (each rank holds some of its rows) or replicated (each rank holds all of
it). The gradient of a replicated tensor is a partial sum on each rank, so the adjoint of a sum over
ranks is the sum over ranks again. Every backward pass is written in these functions, so second
derivatives are exact too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from scitoolkit.training.ranks.communicator import Communicator, RowExchange


def gather_counts(ranks: Communicator, count: int) -> list[int]:
    """Return the number that each rank gives, by rank.

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
    """Return the rows of all ranks, by rank, on rank 0 and None elsewhere; not differentiable.

    Args:
        x: own rows, shape (counts[rank], ...).
        ranks: the ranks.
        counts: rows of each rank.

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
    """Own rows, shape (n_own, ...) -> the halo's rows, shape (n_halo, ...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator, halo: RowExchange) -> Tensor:
        """Send own rows to the ranks whose edges name them."""
        ctx.ranks, ctx.halo, ctx.rows = ranks, halo, len(x)
        rows, wait = halo.start(ranks, x.reshape(len(x), _width(x)))
        wait()
        return rows.view(halo.rows_received, *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return partial gradients to the owners."""
        return ReturnHalo.apply(grad, ctx.ranks, ctx.halo, ctx.rows), None, None


class ReturnHalo(Function):
    """Partial sums at the halo's rows -> their totals at own rows, shape (num_rows, ...)."""

    @staticmethod
    def forward(
        ctx: Any, partial: Tensor, ranks: Communicator, halo: RowExchange, num_rows: int
    ) -> Tensor:
        """Send partial sums to the owners, who add them in the order of ranks."""
        ctx.ranks, ctx.halo = ranks, halo
        width = _width(partial)
        rows, wait = halo.start_back(ranks, partial.reshape(len(partial), width))
        wait()
        return halo.add(partial.new_zeros(num_rows, width), rows).view(num_rows, *partial.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Fetch the totals' gradients."""
        return FetchHalo.apply(grad, ctx.ranks, ctx.halo), None, None, None


class SumOverRanks(Function):
    """A tensor of one shape on every rank -> the sum, equal to the last bit on every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator) -> Tensor:
        """Exchange whole tensors and add in the order of ranks."""
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
    """Rows of each rank, shape (counts[rank], ...) -> the rows of all ranks, by rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator, counts: tuple[int, ...]) -> Tensor:
        """Send own rows to every rank."""
        ctx.ranks, ctx.counts = ranks, counts
        width = _width(x)
        receive = x.new_empty(sum(counts) * width)
        sent = [len(x) * width] * ranks.size
        ranks.start(x.reshape(-1).repeat(ranks.size), sent, receive, [n * width for n in counts])()
        return receive.view(sum(counts), *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Sum each rank's share of the partial gradients."""
        return SumRows.apply(grad, ctx.ranks, ctx.counts), None, None


class SumRows(Function):
    """Partial sums at the rows of all ranks -> their totals at own rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Communicator, counts: tuple[int, ...]) -> Tensor:
        """Send each rank its rows, and add in the order of ranks."""
        ctx.ranks, ctx.counts = ranks, counts
        width, own = _width(x), counts[ranks.rank]
        receive = x.new_empty(ranks.size * own * width)
        received = [own * width] * ranks.size
        ranks.start(x.reshape(-1), [n * width for n in counts], receive, received)()
        return receive.view(ranks.size, own, *x.shape[1:]).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Gather the totals' gradients."""
        return GatherRows.apply(grad, ctx.ranks, ctx.counts), None, None


def _width(x: Tensor) -> int:
    """Numbers of a row, also where there is no row."""
    return torch.Size(x.shape[1:]).numel()
