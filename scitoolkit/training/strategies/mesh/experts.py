"""A mixture of experts, whose experts a mesh of processes may hold apart.

Letters: N rows, k experts of a row, P processes. A row goes to the process of its expert and back
by all-to-all, and so do the gradients: a process receives ``2 (rows in + rows out) width`` numbers
in forward and backward pass, with even routing ``4 k N width (P - 1) / P`` (after Singh et al.
2023, arXiv:2303.06318). No row is dropped: an expert computes as many as choose it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class ExpertLayer(nn.Module):
    """Sum of the gated layers that a row of values chooses, weighted by their probabilities.

    A linear map of the row gives the probabilities of the experts; the `chosen` largest ones count
    (Shazeer et al. 2017, arXiv:1701.06538), without noise and without a limit of rows.

    Args:
        width: values of a row.
        hidden: hidden values of an expert.
        experts: number of experts.
        chosen: number of experts of a row.

    Example:
        >>> ExpertLayer(4, 8, experts=3, chosen=2)(torch.zeros(2, 5, 4)).shape
        torch.Size([2, 5, 4])
    """

    def __init__(self, width: int, hidden: int, *, experts: int, chosen: int) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router: nn.Linear = nn.Linear(width, experts, bias=False)
        self.into: nn.Parameter = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.out: nn.Parameter = nn.Parameter(torch.empty(experts, width, hidden))
        for weight in (self.into, self.out):
            bound = weight.shape[-1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., width) from `x` of that shape."""
        if torch.compiler.is_compiling():  # the number of rows of an expert is not in the graph
            return self._of_all(x)
        return _mixed(self, x, None)

    def routes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of the experts of rows, (N, chosen) each."""
        weights, which = self.router(rows).softmax(-1).topk(self.chosen, -1)
        return weights, which

    def _of_all(self, x: Tensor) -> Tensor:
        """Return the same by all experts for all rows."""
        weights, which = self.routes(x)
        # In mixed precision the probabilities have another type than the values.
        shares = weights.new_zeros(*x.shape[:-1], self.experts).scatter(-1, which, weights)
        parts = [gated(x, a, b) for a, b in zip(self.into, self.out, strict=True)]
        return (torch.stack(parts, -1) * shares[..., None, :]).sum(-1)


def expert_layers(network: nn.Module) -> dict[str, ExpertLayer]:
    """Return the mixtures of a network by the names of their modules."""
    return {n: layer for n, layer in network.named_modules() if isinstance(layer, ExpertLayer)}


def gated(rows: Tensor, into: Tensor, out: Tensor) -> Tensor:
    """Return ``out (silu(g) * u)`` of rows, with g and u the halves of ``into row``."""
    gate, hidden = functional.linear(rows, into).chunk(2, -1)
    return functional.linear(functional.silu(gate) * hidden, out)


def divided_experts(layer: ExpertLayer, group: dist.ProcessGroup) -> Callable[[Tensor], Tensor]:
    """Return the forward function of a layer that holds this rank's part of the experts.

    Every rank of the group calls it equally often; their rows may be of any number.
    """
    return lambda x: _mixed(layer, x, group)


def _mixed(layer: ExpertLayer, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    rows = x.flatten(0, -2)
    weights, which = layer.routes(rows)
    order = which.flatten().argsort(stable=True)  # by expert
    origin = order // layer.chosen
    counts = which.flatten().bincount(minlength=layer.experts)
    if group is None:
        results = _computed(layer, rows[origin], counts.tolist())
    else:
        results = _sent(layer, rows[origin], counts, group)
    results = results * weights.flatten()[order, None]
    # Copied to the places of their rows and summed there: the order of a sum is always the same.
    parts = torch.empty_like(results).index_copy(0, order, results)
    return parts.view(len(rows), layer.chosen, rows.shape[1]).sum(1).view_as(x)


def _computed(layer: ExpertLayer, rows: Tensor, counts: list[int]) -> Tensor:
    """Return the results of rows that are sorted by expert."""
    parts = zip(rows.split(counts), layer.into, layer.out, strict=True)
    return torch.cat([gated(*part) for part in parts])


def _sent(layer: ExpertLayer, rows: Tensor, counts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the results of rows that are sorted by expert, by the ranks of their experts."""
    ranks = group.size()
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts, group=group)
    send = counts.view(ranks, -1).sum(1).tolist()
    receive = theirs.view(ranks, -1).sum(1).tolist()
    arrived = _Exchanged.apply(rows, receive, send, group)
    # Rows arrive by sender, then by expert.
    own = layer.experts // ranks
    label = torch.arange(own, device=rows.device).repeat(ranks).repeat_interleave(theirs)
    order = label.argsort(stable=True)
    results = _computed(layer, arrived[order], theirs.view(ranks, own).sum(0).tolist())
    back = torch.empty_like(results).index_copy(0, order, results)
    return _Exchanged.apply(back, send, receive, group)


class _Exchanged(torch.autograd.Function):
    """Rows of all ranks for this one; the gradients return to where the rows came from."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, receive: list[int], send: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        ctx.receive, ctx.send, ctx.group = receive, send, group
        return _exchanged(rows, receive, send, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _exchanged(gradient, ctx.send, ctx.receive, ctx.group), None, None, None


def _exchanged(
    rows: Tensor, receive: list[int], send: list[int], group: dist.ProcessGroup
) -> Tensor:
    out = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(out, rows.contiguous(), receive, send, group=group)
    return out
