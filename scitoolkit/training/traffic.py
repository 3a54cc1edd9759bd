"""Communication counters of a rank: numbers, bytes and messages received, and blocked time.

A collective is counted as its bandwidth-optimal algorithm: an all-reduce of n numbers on P ranks as
2 n (P - 1) / P numbers in 2 (P - 1) messages, as on a ring, of whose links nodes / P are between
nodes; an all-gather, all-to-all, broadcast or message as the numbers received from other ranks.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch.distributed as dist
from torch import Tensor

from scitoolkit.core.processes import node_size


@dataclass
class Traffic:
    """Communication volume that a rank has received from other ranks.

    Attributes:
        words: numbers received, of any dtype.
        bytes: bytes received.
        bytes_between_nodes: bytes received from other nodes.
        messages: messages received.
        calls: number of collectives.
        seconds: time blocked in them, where measured.

    Example:
        >>> traffic = Traffic()
        >>> traffic.count(0, [5, 3, 0], 4)
        >>> traffic.words, traffic.bytes, traffic.messages, traffic.calls
        (3, 12, 1, 1)
    """

    words: float = 0
    bytes: float = 0
    bytes_between_nodes: float = 0
    messages: int = 0
    calls: int = 0
    seconds: float = 0.0

    def count(
        self,
        rank: int,
        received: Sequence[float],
        item_bytes: float,
        *,
        ranks: Sequence[int] | None = None,
        node: int | None = None,
    ) -> None:
        """Add one exchange.

        Args:
            rank: this process.
            received: numbers received from each of `ranks`.
            item_bytes: bytes per number.
            ranks: ranks of the group; None for 0, 1, ...
            node: processes per node; None if all are on one node.
        """
        self.calls += 1
        for size, other in zip(received, ranks or range(len(received)), strict=True):
            if other != rank and size:
                self.words += size
                self.bytes += size * item_bytes
                self.messages += 1
                if node is not None and other // node != rank // node:
                    self.bytes_between_nodes += size * item_bytes

    def count_ring(
        self, words: float, item_bytes: float, rounds: int, ranks: Sequence[int], node: int
    ) -> None:
        """Add a ring reduction of `words` numbers with `rounds` passes around the ring."""
        size, nodes = len(ranks), len({rank // node for rank in ranks})
        moved = rounds * words * (size - 1) / size
        self.calls += 1
        self.words += moved
        self.bytes += moved * item_bytes
        self.messages += rounds * (size - 1)
        self.bytes_between_nodes += moved * item_bytes * (nodes / size if nodes > 1 else 0)

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum of two."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Traffic(*(one + two for one, two in pairs))


class TrafficCounter:
    """Counts the collectives of this process within `counting`.

    It patches the functions of `torch.distributed`, so calls by FSDP2 are counted, but collectives
    inside compiled graphs are not.

    Args:
        processes_per_node: processes per node; None for the launcher's value.

    Attributes:
        by_collective: traffic by name of the collective.
        blocked: seconds spent in each call and in waiting for its result, in order of the calls.
    """

    by_collective: dict[str, Traffic]
    blocked: list[float]

    def __init__(self, processes_per_node: int | None = None) -> None:
        self._node = processes_per_node or node_size()
        self.by_collective, self.blocked = {}, []
        self._inside = False
        self._waiting: dict[Any, tuple[int, Traffic]] = {}

    @contextlib.contextmanager
    def counting(self) -> Iterator[TrafficCounter]:
        """Return a context in which calls are counted."""
        originals = {name: getattr(dist, name) for name in _RECEIVED if hasattr(dist, name)}
        wait = dist.Work.wait
        for name, function in originals.items():
            setattr(dist, name, self._counted(name, function))
        dist.Work.wait = self._timed(wait)  # type: ignore[method-assign]
        try:
            yield self
        finally:
            dist.Work.wait = wait  # type: ignore[method-assign]
            for name, function in originals.items():
                setattr(dist, name, function)

    def total(self) -> Traffic:
        """Return the sum over the collectives."""
        return sum(self.by_collective.values(), Traffic())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return the counts as JSON types."""
        return {name: asdict(traffic) for name, traffic in sorted(self.by_collective.items())}

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._inside:  # some collectives are written in terms of others
                return function(*arguments, **options)
            passed = signature.bind(*arguments, **options).arguments
            ranks = dist.get_process_group_ranks(passed.get("group") or dist.group.WORLD)
            received = _RECEIVED[name](passed, ranks)
            traffic = self.by_collective.setdefault(name, Traffic())
            item = received.tensor.element_size()
            if received.rounds:
                traffic.count_ring(
                    received.tensor.numel(), item, received.rounds, ranks, self._node
                )
            else:
                rows = received.words
                traffic.count(dist.get_rank(), rows, item, ranks=ranks, node=self._node)
            number = len(self.blocked)
            self.blocked.append(0.0)
            self._inside = True
            started = time.perf_counter()
            try:
                work = function(*arguments, **options)
            finally:
                self._inside = False
                self._add(number, traffic, started)
            if passed.get("async_op"):
                self._waiting[work] = number, traffic
            return work

        return call

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def waited(work: Any, *arguments: Any, **options: Any) -> Any:
            number, traffic = self._waiting.pop(work, (None, None))
            if number is None or traffic is None:  # within a call that is timed as a whole
                return wait(work, *arguments, **options)
            started = time.perf_counter()
            try:
                return wait(work, *arguments, **options)
            finally:
                self._add(number, traffic, started)

        return waited

    def _add(self, number: int, traffic: Traffic, started: float) -> None:
        seconds = time.perf_counter() - started
        self.blocked[number] += seconds
        traffic.seconds += seconds


@dataclass
class _Received:
    """Volume of a call: numbers received by rank, or passes of a tensor around a ring."""

    tensor: Tensor
    words: list[float]
    rounds: int = 0


Received = Callable[[dict[str, Any], Sequence[int]], _Received]


def _ring(name: str, rounds: int) -> Received:
    return lambda passed, ranks: _Received(passed[name], [], rounds)


def _from_source(passed: dict[str, Any], ranks: Sequence[int]) -> _Received:
    source = passed.get("src", 0) if passed.get("group_src") is None else ranks[passed["group_src"]]
    tensor = passed["tensor"]
    return _Received(tensor, [tensor.numel() * (rank == source) for rank in ranks])


def _received_from(passed: dict[str, Any], ranks: Sequence[int]) -> _Received:
    source = passed.get("src") if passed.get("group_src") is None else ranks[passed["group_src"]]
    tensor = passed["tensor"]
    if source is None:  # from any rank: counted as from the next one
        source = next(rank for rank in ranks if rank != dist.get_rank())
    return _Received(tensor, [tensor.numel() * (rank == source) for rank in ranks])


def _all_to_all(passed: dict[str, Any], ranks: Sequence[int]) -> _Received:
    output, splits = passed["output"], passed.get("output_split_sizes")
    row = output.numel() / (max(1, sum(splits)) if splits else len(ranks))
    return _Received(output, [row * split for split in splits or [1] * len(ranks)])


def _gathered(passed: dict[str, Any], ranks: Sequence[int]) -> _Received:
    output = next(iter(passed.values()))  # the first argument, under one of two names
    return _Received(output, [output.numel() / len(ranks)] * len(ranks))


def _gathered_list(passed: dict[str, Any], ranks: Sequence[int]) -> _Received:
    tensors = passed["tensor_list"]
    return _Received(tensors[0], [t.numel() for t in tensors])


_RECEIVED: dict[str, Received] = {
    "all_reduce": _ring("tensor", 2),
    "reduce_scatter_single": _ring("input", 1),
    "reduce_scatter_tensor": _ring("input", 1),
    "all_gather_into_tensor": _gathered,
    "all_gather_single": _gathered,
    "all_gather": _gathered_list,
    "all_to_all_single": _all_to_all,
    "broadcast": _from_source,
    "recv": _received_from,
}
