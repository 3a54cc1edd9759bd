"""Gradient buckets of a fixed order, sent during the backward pass.

A bucket is sent when it is full and all buckets before it have been sent, so every rank sends in
the same order whatever its timing, and a resumed training sums in the same order as an
uninterrupted one. torch's DistributedDataParallel rebuilds its buckets by order of arrival after
the first step; on more than two ranks a resumed run then sums in another order.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.training.exchange.sums import BucketSum

Watch = Callable[[nn.Parameter, Callable[[nn.Parameter], Any]], Any]


def on_gradient(parameter: nn.Parameter, call: Callable[[nn.Parameter], Any]) -> Any:
    """Call `call` whenever the gradient of a parameter is complete; return a removable handle."""
    return parameter.register_post_accumulate_grad_hook(call)


class OrderedBuckets(abc.ABC):
    """Base class of gradient buckets: assignment of gradients to buckets and order of sending.

    Args:
        parameters: trainable parameters, in the same order on all ranks.
        bucket_mib: largest size of a bucket in MiB; a larger gradient gets a bucket of its size.
        watch: registers a function to be called whenever a parameter's gradient is complete.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], bucket_mib: float, watch: Watch = on_gradient
    ) -> None:
        self._parameters = list(parameters)
        self._members: list[list[nn.Parameter]] = []
        # The backward pass produces the last parameters' gradients first.
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            of_dtype = [p for p in reversed(parameters) if p.dtype == dtype]
            self._members += _packed(of_dtype, bucket_mib * 2**20)
        self._bucket_of = {p: k for k, members in enumerate(self._members) for p in members}
        self._hooks = [watch(p, self._arrived) for p in parameters]
        self._active = False
        self._reset()

    def begin(self) -> None:
        """Allow sending: the next backward pass completes the gradients."""
        self._active = True

    def finish(self, failed: bool) -> bool:
        """Send the remaining buckets, wait, and set the gradients; return whether any rank failed.

        A parameter without a gradient on this rank contributes zeros; without one on any rank it
        has no gradient afterwards either, so that no moment or weight decay moves it.
        """
        absent = [p for p in self._parameters if p not in self._copied and p.grad is None]
        # One flag travels with the gradients; what it means is asked only if it is set.
        flag = failed or bool(absent)
        for number in range(self._next, len(self._members)):
            for parameter in self._members[number]:
                if parameter not in self._copied:
                    self._copy(parameter, parameter.grad)
                    parameter.grad = None
            self._send(number, flag and number == len(self._members) - 1)
        any_flag = self._finish([wait() for wait in self._waits])
        self._reset()
        return any_flag and self._without_gradient(failed, absent)

    def _without_gradient(self, failed: bool, absent: list[nn.Parameter]) -> bool:
        """Remove gradients that no rank has computed; return whether any rank failed."""
        missing = set(absent)
        numbers = [float(failed), *(float(p not in missing) for p in self._parameters)]
        flags = torch.tensor(numbers, device=self._parameters[0].device)
        if dist.is_initialized():
            dist.all_reduce(flags)
        any_failed, *reached = flags.tolist()
        for parameter, count in zip(self._parameters, reached, strict=True):
            if not count:
                self._remove(parameter)
        return bool(any_failed)

    def detach(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    @abc.abstractmethod
    def _copy(self, parameter: nn.Parameter, gradient: Tensor | None) -> None:
        """Copy a gradient, or zeros, into its bucket."""

    @abc.abstractmethod
    def _start(self, number: int, failed: bool) -> Callable[[], object]:
        """Start sending a bucket; return a function that waits for its sums."""

    @abc.abstractmethod
    def _finish(self, sums: list[object]) -> bool:
        """Set the gradients from the sums of all buckets; return whether a rank failed."""

    @abc.abstractmethod
    def _remove(self, parameter: nn.Parameter) -> None:
        """Remove the gradient of a parameter that no rank has reached."""

    def _arrived(self, parameter: nn.Parameter) -> None:
        """Copy a gradient; send full buckets in order."""
        if not self._active or parameter.grad is None:
            return
        self._copy(parameter, parameter.grad)
        parameter.grad = None
        self._copied.add(parameter)
        self._missing[self._bucket_of[parameter]] -= 1
        # The last bucket carries the failure flag of this rank, which is known only at the end.
        while self._next < len(self._members) - 1 and not self._missing[self._next]:
            self._send(self._next, False)

    def _send(self, number: int, failed: bool) -> None:
        self._waits.append(self._start(number, failed))
        self._next = number + 1

    def _reset(self) -> None:
        self._active, self._next = False, 0
        self._waits: list[Callable[[], object]] = []
        self._copied: set[nn.Parameter] = set()
        self._missing = [len(members) for members in self._members]


class GradientBuckets(OrderedBuckets):
    """All-reduce of gradients in buckets.

    Gradients are copied into the buckets once; after `finish` they are views of the buckets.

    Args:
        parameters: trainable parameters, in the same order on all ranks.
        bucket_sum: sums one bucket over the ranks.
        bucket_mib: largest size of a bucket in MiB; a larger gradient gets a bucket of its size.
        watch: as for `OrderedBuckets`.

    Attributes:
        squares: squared norms of this rank's gradients and of the sums in the last step, or None
            if they are not measured; set it to a pair of numbers to enable the measurement.
    """

    squares: tuple[float, float] | None

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        bucket_sum: BucketSum,
        bucket_mib: float,
        watch: Watch = on_gradient,
    ) -> None:
        super().__init__(parameters, bucket_mib, watch)
        self._sum, self.squares, self._own = bucket_sum, None, 0.0
        self._views: dict[nn.Parameter, Tensor] = {}
        self._buckets: list[Tensor] = []
        for members in self._members:
            first, size = members[0], sum(p.numel() for p in members)
            # The last bucket has one more number, the failure flag of this rank.
            size += len(self._buckets) == len(self._members) - 1
            bucket = torch.zeros(size, dtype=first.dtype, device=first.device)
            begin = 0
            for parameter in members:
                end = begin + parameter.numel()
                self._views[parameter] = bucket[begin:end].view_as(parameter)
                begin = end
            self._buckets.append(bucket)

    def _copy(self, parameter: nn.Parameter, gradient: Tensor | None) -> None:
        view = self._views[parameter]
        view.zero_() if gradient is None else view.copy_(gradient)

    def _start(self, number: int, failed: bool) -> Callable[[], object]:
        bucket = self._buckets[number]
        if self.squares is not None:
            self._own += self._square(number)
        if number == len(self._buckets) - 1:
            bucket[-1] = float(failed)
        return self._sum.start(bucket)

    def _finish(self, sums: list[object]) -> bool:
        for parameter, view in self._views.items():
            parameter.grad = view
        if self.squares is not None:
            self.squares = self._own, sum(map(self._square, range(len(self._buckets))))
            self._own = 0.0
        return bool(self._buckets[-1][-1].item())

    def _remove(self, parameter: nn.Parameter) -> None:
        parameter.grad = None

    def _square(self, number: int) -> float:
        last = number == len(self._buckets) - 1  # its last number is the flag
        numbers = self._buckets[number][:-1] if last else self._buckets[number]
        return float(torch.linalg.vector_norm(numbers, dtype=torch.float64)) ** 2


def _packed(parameters: list[nn.Parameter], limit: float) -> list[list[nn.Parameter]]:
    """Split a list into buckets of at most `limit` bytes, with at least one parameter each."""
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
