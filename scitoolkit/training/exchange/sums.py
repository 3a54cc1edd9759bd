"""Sums of one bucket over the ranks, started at once and finished later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class BucketSum(Protocol):
    """Sums a bucket over the ranks, with the same bits on all of them."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start to sum a flat floating-point tensor in place; return what waits for the end."""


class FullSum:
    """All-reduce in the bucket's dtype."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start the all-reduce."""
        return dist.all_reduce(bucket, async_op=True).wait


class Bfloat16Sum:
    """All-reduce of the bucket rounded to bfloat16."""

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start the all-reduce of the rounded numbers."""
        rounded = bucket.to(torch.bfloat16)
        work = dist.all_reduce(rounded, async_op=True)

        def finish() -> None:
            work.wait()
            bucket.copy_(rounded)

        return finish
