"""A network as a pipeline of stages on several ranks, called like the whole network.

torch's schedules (`torch.distributed.pipelining`) compute one loss from one call of the model and
run its backward pass themselves. A task may call the network several times in a loss, as rollouts
do, so here a call is one node of the autograd graph: its forward pass sends micro-batches through
the stages and the output to every rank, which all compute the loss, and its backward pass sends the
gradients back. The order is that of GPipe (Huang et al. 2019, arXiv:1811.06965): of S stages and m
micro-batches, (S - 1) / (m + S - 1) of the time is idle, as with 1F1B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from scitoolkit.training.strategies.mesh.division import Stage

_HEADER = 8  # numbers of the message with a shape; fields have at most 5 dims


def balanced_stages(costs: Sequence[float], parts: int) -> list[range]:
    """Return consecutive, non-empty ranges of stages whose largest cost is least.

    Example:
        >>> balanced_stages([1, 4, 4, 1, 1], 3)
        [range(0, 2), range(2, 3), range(3, 5)]
        >>> balanced_stages([1, 1, 1, 1], 2)
        [range(0, 2), range(2, 4)]
    """
    total = len(costs)
    best: dict[tuple[int, int], tuple[float, list[range]]] = {(0, 0): (0.0, [])}
    for part in range(1, parts + 1):
        for stop in range(part, total + 1):
            choices = [
                (max(largest, sum(costs[start:stop])), [*ranges, range(start, stop)])
                for start in range(part - 1, stop)
                for largest, ranges in [best.get((part - 1, start), (float("inf"), []))]
            ]
            best[part, stop] = min(choices, key=lambda choice: choice[0])
    return best[parts, total][1]


class PipelinedNetwork:
    """The stages of this rank and its neighbours.

    Args:
        stages: consecutive stages of this rank.
        group: ranks of the pipeline, in order of the stages.
        microbatches: number of parts into which a batch is divided.
    """

    def __init__(
        self, stages: Sequence[Stage], group: dist.ProcessGroup, microbatches: int
    ) -> None:
        self.stages, self.group, self.microbatches = list(stages), group, microbatches
        ranks = dist.get_process_group_ranks(group)
        self.place, self.last = dist.get_rank(group), ranks[-1]
        self.previous: int | None = ranks[self.place - 1] if self.place else None
        self.following: int | None = ranks[self.place + 1] if self.place + 1 < len(ranks) else None
        self._shapes: dict[Any, tuple[torch.Size, torch.dtype]] = {}

    def __call__(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return the output of the whole network, on every rank of the pipeline."""
        anchor = torch.zeros((), device=x.device, requires_grad=torch.is_grad_enabled())
        return _PipelineCall.apply(self, anchor, x, condition)

    def run(self, h: Tensor, x: Tensor, condition: Tensor | None) -> Tensor:
        """Return the output of this rank's stages."""
        for stage in self.stages:
            h = stage.run(h, x, condition)
        return h

    def received(self, key: Any, source: int, like: Tensor) -> Tensor:
        """Return a tensor from another rank; its shape is sent with the first of a key."""
        if key not in self._shapes:
            header = torch.empty(_HEADER, dtype=torch.int64, device=like.device)
            dist.recv(header, source, group=self.group)
            dims, *numbers = header.tolist()
            self._shapes[key] = torch.Size(numbers[:dims]), like.dtype
        shape, dtype = self._shapes[key]
        out = torch.empty(shape, dtype=dtype, device=like.device)
        dist.recv(out, source, group=self.group)
        return out

    def send(self, key: Any, tensor: Tensor, target: int) -> list[Any]:
        """Start sending a tensor; return what to wait for, which holds the tensor."""
        sent = []
        if key not in self._shapes:
            self._shapes[key] = tensor.shape, tensor.dtype
            shape = [tensor.ndim, *tensor.shape]
            padded = torch.tensor([*shape, *[0] * (_HEADER - len(shape))], device=tensor.device)
            sent.append((dist.isend(padded, target, group=self.group), padded))
        dense = tensor.contiguous()
        sent.append((dist.isend(dense, target, group=self.group), dense))
        return sent

    def to_all(self, key: Any, output: Tensor | None, like: Tensor) -> Tensor:
        """Return the last stage's output on every rank."""
        if key not in self._shapes:
            header = torch.zeros(_HEADER, dtype=torch.int64, device=like.device)
            if output is not None:
                shape = [output.ndim, *output.shape]
                header[: len(shape)] = torch.tensor(shape, device=like.device)
            dist.broadcast(header, self.last, group=self.group)
            dims, *numbers = header.tolist()
            self._shapes[key] = torch.Size(numbers[:dims]), like.dtype
        if output is None:
            output = torch.empty(self._shapes[key][0], dtype=like.dtype, device=like.device)
        dense = output.contiguous()
        dist.broadcast(dense, self.last, group=self.group)
        return dense


class _PipelineCall(torch.autograd.Function):
    """One call of the network."""

    @staticmethod
    def forward(
        ctx: Any, pipe: PipelinedNetwork, anchor: Tensor, x: Tensor, condition: Tensor | None
    ) -> Tensor:
        recorded = any(ctx.needs_input_grad)
        # An input without a gradient keeps the stages from computing one for it.
        wants = (x.requires_grad, condition is not None and condition.requires_grad)
        parts = min(pipe.microbatches, len(x))
        conditions = [None] * parts if condition is None else condition.detach().tensor_split(parts)
        passes: list[tuple[Tensor, Tensor, Tensor | None, Tensor]] = []
        outputs: list[Tensor] = []
        sent: list[tuple[Any, Tensor]] = []
        shapes = (x.shape[1:], None if condition is None else condition.shape[1:])
        for part, c in zip(x.detach().tensor_split(parts), conditions, strict=True):
            key = (*shapes, len(part))
            with torch.set_grad_enabled(recorded):
                part = part.requires_grad_(wants[0] and recorded)
                c = c if c is None else c.requires_grad_(wants[1] and recorded)
                h = part
                if pipe.previous is not None:
                    h = pipe.received(("in", key), pipe.previous, part).requires_grad_(recorded)
                out = pipe.run(h, part, c)
            if recorded:
                passes.append((h, part, c, out))
            if pipe.following is None:
                outputs.append(out.detach())
            else:
                sent += pipe.send(("out", key), out.detach(), pipe.following)
        whole = torch.cat(outputs) if outputs else None
        result = pipe.to_all(("whole", *shapes, len(x)), whole, x)
        _finish(sent)
        ctx.pipe, ctx.passes, ctx.wants = pipe, passes, wants
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        pipe: PipelinedNetwork = ctx.pipe
        sent: list[tuple[Any, Tensor]] = []
        pieces = gradient.tensor_split(len(ctx.passes))
        # In the order of the forward pass, so that a stage waits for the earliest micro-batch.
        for (h, _, _, out), piece in zip(ctx.passes, pieces, strict=True):
            if pipe.following is not None:
                piece = torch.empty(out.shape, dtype=out.dtype, device=out.device)
                dist.recv(piece, pipe.following, group=pipe.group)
            if out.requires_grad:
                torch.autograd.backward(out, piece)
            if pipe.previous is not None:
                back = (torch.zeros_like(h) if h.grad is None else h.grad).contiguous()
                sent.append((dist.isend(back, pipe.previous, group=pipe.group), back))
        _finish(sent)
        totals = [
            _total([p[place] for p in ctx.passes], pipe.group) if wanted else None
            for place, wanted in zip((1, 2), ctx.wants, strict=True)
        ]
        ctx.passes = []
        return None, None, *totals


def _finish(sent: Sequence[tuple[Any, Tensor]]) -> None:
    for work, _ in sent:
        work.wait()


def _total(inputs: Sequence[Tensor], group: dist.ProcessGroup) -> Tensor:
    """Return the gradient of inputs that every stage may have used."""
    total = torch.cat([torch.zeros_like(i) if i.grad is None else i.grad for i in inputs])
    dist.all_reduce(total, group=group)
    return total
