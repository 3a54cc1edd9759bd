"""The scratch pool: memory of large outputs is kept and reused.

Fresh memory costs a page fault per page, and on many machines (virtual ones above all) zeroing
and mapping a page takes longer than the kernel that fills it. Blocks of large outputs therefore
return here when the last tensor on them is deleted, and the next output of about that size
acquires one. Blocks are backed by huge pages where the system has them.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from scitoolkit.ops.codegen.dtypes import NUMPY_REAL

HUGE_PAGE = 2 << 20
SMALLEST = 1 << 20  # below this the allocator of torch keeps memory by itself


def _limit() -> int:
    """Bytes that may wait for use: $SCITOOLKIT_BUFFERS in MiB, else 1 GiB."""
    return int(os.environ.get("SCITOOLKIT_BUFFERS", "1024")) << 20


class BufferPool:
    """Blocks of memory that wait for the next large output."""

    def __init__(self) -> None:
        # Finalizers may run inside any allocation of this thread, also while it holds the lock.
        self._lock = threading.RLock()
        self._free: list[mmap.mmap] = []
        self._bypassed = False

    def serves(self, size: int) -> bool:
        """Tell whether outputs of `size` bytes are to come from here."""
        return size >= SMALLEST and not self._bypassed

    def acquire(self, size: int) -> mmap.mmap:
        """Return a block of at least `size` bytes: the smallest waiting one that is not too big."""
        with self._lock:
            fitting = [b for b in self._free if size <= len(b) <= 2 * size + HUGE_PAGE]
            if fitting:
                block = min(fitting, key=len)
                self._free = [each for each in self._free if each is not block]
                return block
        return _map(-(-size // HUGE_PAGE) * HUGE_PAGE)

    def release(self, block: mmap.mmap) -> None:
        """Keep a block for later; the oldest go when too much waits."""
        with self._lock:
            self._free.append(block)
            limit = _limit()
            while self._free and sum(map(len, self._free)) > limit:
                self._free.pop(0)

    @contextlib.contextmanager
    def bypassed(self) -> Iterator[None]:
        """Within it outputs come from torch's allocator, whose bytes its profiler counts."""
        before, self._bypassed = self._bypassed, True
        try:
            yield
        finally:
            self._bypassed = before

    def waiting(self) -> int:
        """Bytes that wait for use."""
        return sum(map(len, self._free))

    def clear(self) -> None:
        """Return all waiting blocks to the system."""
        with self._lock:
            self._free = []


POOL = BufferPool()


def _map(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


class _Lease(np.ndarray):
    """The storage that tensors refer to: releases its block when the last of them is deleted.

    As a method it costs a fraction of what `weakref.finalize` does.
    """

    def __del__(self) -> None:
        POOL.release(self.base)  # type: ignore[arg-type]


def empty(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised CPU tensor of the device and dtype of `like`, from the pool if large.

    Args:
        shape: shape of the tensor.
        like: gives device, and dtype unless that is given.
        dtype: float32 or float64.

    Example:
        >>> empty((2, 3), torch.zeros(1)).shape
        torch.Size([2, 3])
    """
    size = math.prod(shape) * (dtype or like).itemsize
    kept = (
        NUMPY_REAL.get(dtype or like.dtype)
        if POOL.serves(size) and like.device.type == "cpu"
        else None
    )
    # Where algorithms must be deterministic torch fills its memory, so that tests see what is read.
    if kept is None or torch.are_deterministic_algorithms_enabled():
        return like.new_empty(shape) if dtype is None else like.new_empty(shape, dtype=dtype)
    return torch.from_numpy(_Lease(shape, kept, POOL.acquire(size)))
