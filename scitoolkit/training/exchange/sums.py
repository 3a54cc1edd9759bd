"""Exchanges of one bucket in full precision and in bfloat16, started at once and finished later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class BucketSum(Protocol):
    """Sums a bucket over the ranks, with the same bits on all of them."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start to sum a flat floating-point tensor in place; return what waits for the end."""

    def state_dict(self) -> dict[str, Any]:
        """Return what has been adapted, as JSON types, equal on all ranks."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class ShardExchange(Protocol):
    """Sums gradients so that each rank has its part, and gathers the parts of the weights.

    Attributes:
        exact: whether `gather` returns the bits that it was given.
        by_differences: whether `gather` is given the difference between a rank's part of the
            weights and what all ranks hold of it, which is then added on all ranks.
    """

    exact: bool
    by_differences: bool

    def scatter(self, rows: Tensor, failed: bool) -> Callable[[], tuple[Tensor, bool]]:
        """Start to sum over the ranks.

        Args:
            rows: (ranks, numbers), row r for rank r; the last column is free for a flag. The
                numbers are a multiple of `shards.ALIGNED`. It may be overwritten.
            failed: whether this rank failed.

        Returns:
            What waits, and returns (numbers,), this rank's sums, and whether any rank failed.
        """

    def gather(self, part: Tensor) -> Tensor:
        """Return (ranks, numbers), the parts of all ranks, with the same bits on all of them."""


class Stateless:
    """Base of the exchanges that adapt nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
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
    """Parts in the gradients' own precision.

    An all-to-all and a sum in the order of the ranks: gloo's reduce-scatter moves what an
    all-reduce does.
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
        """Gather the parts."""
        out = part.new_empty(dist.get_world_size(), part.numel())
        dist.all_gather(list(out), part)
        return out
