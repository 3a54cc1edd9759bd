"""Gradients in buckets of a fixed order, sent while the backward pass goes on.

A bucket is sent when it is full and all before it are sent, so every rank sends in the same order
whatever its timing, and a resumed training adds in the order of one that was not stopped. torch's
DistributedDataParallel rebuilds its buckets by order of arrival after the first step; on more than
two ranks a resumed run then adds in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from scitoolkit.training.exchange.sums import BucketSum


class GradientBuckets:
    """Sums the gradients of parameters over the ranks.

    Gradients are copied into their buckets once; after `finish` they are views of them.

    Args:
        parameters: trained parameters, in the same order on all ranks.
        bucket_sum: sums one bucket.
        bucket_mib: size of a bucket at most, unless one gradient is larger.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], bucket_sum: BucketSum, bucket_mib: float
    ) -> None:
        self._parameters, self._sum = list(parameters), bucket_sum
        self._views: dict[nn.Parameter, Tensor] = {}
        self._buckets: list[Tensor] = []
        self._members: list[list[nn.Parameter]] = []
        self._bucket_of: dict[nn.Parameter, int] = {}
        # The backward pass produces the last parameters' gradients first.
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            given = [p for p in reversed(parameters) if p.dtype == dtype]
            for members in _packed(given, bucket_mib * 2**20):
                self._add(members)
        # One more number in the last bucket, which is sent last: whether this rank failed.
        last = self._buckets[-1]
        self._buckets[-1] = last.new_zeros(last.numel() + 1)
        self._assign(self._members[-1], self._buckets[-1])
        self._flag = self._buckets[-1][-1:]
        self._hooks = [p.register_post_accumulate_grad_hook(self._arrived) for p in parameters]
        self._active = False
        self._reset()

    def begin(self) -> None:
        """Declare that the next backward pass completes the gradients, so they may be sent."""
        self._active = True

    def finish(self, failed: bool) -> bool:
        """Send what is left, wait, and set the gradients; return whether any rank failed.

        A parameter without a gradient on this rank counts as 0.
        """
        for number in range(self._next, len(self._buckets)):
            for parameter in self._members[number]:
                if parameter not in self._copied:
                    view = self._views[parameter]
                    if parameter.grad is None:
                        view.zero_()
                    else:
                        view.copy_(parameter.grad)
        self._flag.fill_(float(failed))
        while self._next < len(self._buckets):
            self._send()
        for wait in self._waits:
            wait()
        for parameter, view in self._views.items():
            parameter.grad = view
        self._reset()
        return bool(self._flag.item())

    def detach(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, parameter: nn.Parameter) -> None:
        """Copy a gradient; send the buckets that are full, in their order."""
        gradient = parameter.grad
        if not self._active or gradient is None:
            return
        self._views[parameter].copy_(gradient)
        parameter.grad = None
        self._copied.add(parameter)
        self._missing[self._bucket_of[parameter]] -= 1
        # The last bucket carries the flag, which is known at the end alone.
        while self._next < len(self._buckets) - 1 and not self._missing[self._next]:
            self._send()

    def _send(self) -> None:
        self._waits.append(self._sum.start(self._buckets[self._next]))
        self._next += 1

    def _reset(self) -> None:
        self._active, self._next = False, 0
        self._waits: list[Callable[[], object]] = []
        self._copied: set[nn.Parameter] = set()
        self._missing = [len(members) for members in self._members]

    def _add(self, members: list[nn.Parameter]) -> None:
        first = members[0]
        bucket = torch.zeros(
            sum(p.numel() for p in members), dtype=first.dtype, device=first.device
        )
        self._assign(members, bucket)
        self._bucket_of.update(dict.fromkeys(members, len(self._buckets)))
        self._buckets.append(bucket)
        self._members.append(members)

    def _assign(self, members: list[nn.Parameter], bucket: Tensor) -> None:
        begin = 0
        for parameter in members:
            end = begin + parameter.numel()
            self._views[parameter] = bucket[begin:end].view_as(parameter)
            begin = end


def _packed(parameters: list[nn.Parameter], limit: float) -> list[list[nn.Parameter]]:
    """Cut a list into parts of at most `limit` bytes, and at least one parameter."""
    out: list[list[nn.Parameter]] = [[]]
    held = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if out[-1] and held + size > limit:
            out.append([])
            held = 0
        out[-1].append(parameter)
        held += size
    return out
