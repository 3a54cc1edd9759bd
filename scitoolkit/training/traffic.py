"""Bytes and messages of a training, by collective: what a rank receives.

A collective is counted by what its bandwidth-optimal form moves: an all-reduce of n numbers on P
ranks as 2 n (P - 1) / P in 2 (P - 1) messages, as on a ring, where nodes / P of the links are
between nodes; an all-gather, an all-to-all and a broadcast by what comes from other ranks.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from scitoolkit.core.processes import node_size


@dataclass
class CollectiveTraffic:
    """What this rank has received.

    Attributes:
        bytes: from other ranks.
        bytes_between_nodes: of these, from other nodes.
        messages: from other ranks.
        calls: of the collective.
    """

    bytes: float = 0.0
    bytes_between_nodes: float = 0.0
    messages: int = 0
    calls: int = 0

    def add(self, received: Sequence[float], ranks: Sequence[int], node: int) -> None:
        """Count a call in which `received[i]` bytes came from rank `ranks[i]`."""
        me = dist.get_rank()
        self.calls += 1
        for size, rank in zip(received, ranks, strict=True):
            if rank != me and size:
                self.bytes += size
                self.messages += 1
                self.bytes_between_nodes += size * (rank // node != me // node)


class TrafficCounter:
    """Counts the collectives of this process within `counting`.

    It sees the calls of `torch.distributed`'s functions, FSDP2's among them, and not those that
    torch compiles into a graph.

    Args:
        processes_per_node: processes that share a node; None for what the launcher says.

    Attributes:
        by_collective: traffic by the collective's name.
    """

    by_collective: dict[str, CollectiveTraffic]

    def __init__(self, processes_per_node: int | None = None) -> None:
        self._node = processes_per_node or node_size()
        self.by_collective = {}

    @contextlib.contextmanager
    def counting(self) -> Iterator[TrafficCounter]:
        """Within it calls are counted."""
        kept = {name: getattr(dist, name) for name in _RECEIVED if hasattr(dist, name)}
        for name, function in kept.items():
            setattr(dist, name, self._counted(name, function))
        try:
            yield self
        finally:
            for name, function in kept.items():
                setattr(dist, name, function)

    def total(self) -> CollectiveTraffic:
        """Return the sum over the collectives."""
        parts = self.by_collective.values()
        return CollectiveTraffic(
            *(sum(getattr(t, f) for t in parts) for f in asdict(CollectiveTraffic()))
        )

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return the counts as JSON types."""
        return {name: asdict(traffic) for name, traffic in sorted(self.by_collective.items())}

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        signature, inside = inspect.signature(function), False

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal inside
            if inside:  # some collectives are written in terms of others
                return function(*arguments, **options)
            given = signature.bind(*arguments, **options).arguments
            ranks = dist.get_process_group_ranks(given.get("group") or dist.group.WORLD)
            received = _RECEIVED[name](given, ranks)
            traffic = self.by_collective.setdefault(name, CollectiveTraffic())
            if isinstance(received, _Ring):
                self._add_ring(traffic, received, ranks)
            else:
                traffic.add(received, ranks, self._node)
            inside = True
            try:
                return function(*arguments, **options)
            finally:
                inside = False

        return call

    def _add_ring(self, traffic: CollectiveTraffic, ring: _Ring, ranks: Sequence[int]) -> None:
        size = len(ranks)
        nodes = len({rank // self._node for rank in ranks})
        moved = ring.rounds * ring.size * (size - 1) / size
        traffic.calls += 1
        traffic.bytes += moved
        traffic.messages += ring.rounds * (size - 1)
        traffic.bytes_between_nodes += moved * (nodes / size if nodes > 1 else 0)


@dataclass
class _Ring:
    """A reduction: bytes of the tensor, and how often it goes around."""

    size: float
    rounds: int


Received = Callable[[dict[str, Any], Sequence[int]], "list[float] | _Ring"]


def _size(tensor: Tensor) -> float:
    return float(tensor.numel() * tensor.element_size())


def _from_source(given: dict[str, Any], ranks: Sequence[int]) -> list[float]:
    source = given.get("src", 0) if given.get("group_src") is None else ranks[given["group_src"]]
    return [_size(given["tensor"]) * (rank == source) for rank in ranks]


def _all_to_all(given: dict[str, Any], ranks: Sequence[int]) -> list[float]:
    output, splits = given["output"], given.get("output_split_sizes")
    if not splits:
        return [_size(output) / len(ranks)] * len(ranks)
    row = _size(output) / max(1, sum(splits))
    return [row * split for split in splits]


def _gathered(given: dict[str, Any], ranks: Sequence[int]) -> list[float]:
    output = next(iter(given.values()))  # the first argument, under one of two names
    return [_size(output) / len(ranks)] * len(ranks)


_RECEIVED: dict[str, Received] = {
    "all_reduce": lambda given, ranks: _Ring(_size(given["tensor"]), 2),
    "reduce_scatter_single": lambda given, ranks: _Ring(_size(given["input"]), 1),
    "reduce_scatter_tensor": lambda given, ranks: _Ring(_size(given["input"]), 1),
    "all_gather_into_tensor": _gathered,
    "all_gather_single": _gathered,
    "all_gather": lambda given, ranks: [_size(t) for t in given["tensor_list"]],
    "all_to_all_single": _all_to_all,
    "broadcast": _from_source,
}
