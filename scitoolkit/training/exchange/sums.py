"""Interfaces of bucket exchanges, and the exchanges in full precision and bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class BucketSum(Protocol):
    """Asynchronous sum of a bucket over the ranks, bit-identical on all of them."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start summing a flat floating-point tensor in place; return a function that waits."""

    def state_dict(self) -> dict[str, Any]:
        """Return the adaptive state as JSON types, equal on all ranks."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""


class ShardExchange(Protocol):
    """Reduce-scatter of gradients and all-gather of weight shards.

    Attributes:
        exact: whether `gather` returns its input bit for bit.
        by_differences: whether `gather` takes differences between a rank's shard of the weights
            and the copy held by all ranks, to be added on all ranks.
    """

    exact: bool
    by_differences: bool

    def scatter(self, rows: Tensor, failed: bool) -> Callable[[], tuple[Tensor, bool]]:
        """Start a reduce-scatter.

        Args:
            rows: (ranks, numbers), row r for rank r, with a multiple of `shards.ALIGNED` numbers;
                the last column is free for a flag. The tensor may be overwritten.
            failed: whether this rank failed.

        Returns:
            A function that waits and returns this rank's sums, (numbers,), and whether any rank
            failed.
        """

    def gather(self, part: Tensor) -> Tensor:
        """Return the shards of all ranks, (ranks, numbers), bit-identical on all of them."""


class Stateless:
    """Base class of exchanges without adaptive state."""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""


class FullSum(Stateless):
    """All-reduce in the bucket's dtype."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start the all-reduce."""
        return dist.all_reduce(bucket, async_op=True).wait


class Bfloat16Sum(Stateless):
    """All-reduce of the bucket rounded to bfloat16."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start the all-reduce of the rounded numbers."""
        rounded = bucket.to(torch.bfloat16)
        work = dist.all_reduce(rounded, async_op=True)

        def finish() -> None:
            work.wait()
            bucket.copy_(rounded)

        return finish


class FullShards:
    """Shard exchange in the precision of the gradients.

    The reduce-scatter is an all-to-all and a sum in the order of the ranks, because gloo's
    reduce-scatter has the communication volume of an all-reduce.
    """

    exact = True
    by_differences = False

    def scatter(self, rows: Tensor, failed: bool) -> Callable[[], tuple[Tensor, bool]]:
        """Start the all-to-all; the flag is the last number of each row."""
        rows[:, -1] = float(failed)
        received = torch.empty_like(rows)
        work = dist.all_to_all_single(received, rows, async_op=True)

        def finish() -> tuple[Tensor, bool]:
            work.wait()
            part = received.sum(0)
            return part, bool(part[-1].item())

        return finish

    def gather(self, part: Tensor) -> Tensor:
        """All-gather the shards."""
        out = part.new_empty(dist.get_world_size(), part.numel())
        dist.all_gather(list(out), part)
        return out
