"""Buffer pool: reuses the memory of large outputs.

New memory costs a page fault per page, and on many machines, virtual ones in particular, mapping
and zeroing a page takes longer than the kernel that fills it. When the last tensor on a large block
is deleted, the block is released to the pool, and the next output of about that size acquires it.
Blocks use huge pages where the system has them.
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

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.codegen.dtypes import NUMPY_REAL

HUGE_PAGE = 2 << 20
SMALLEST = 1 << 20  # bytes; torch's allocator caches smaller blocks itself


def _limit() -> int:
    """Return the most bytes of free blocks: $SCITOOLKIT_BUFFERS in MiB, by default 1 GiB."""
    text = os.environ.get("SCITOOLKIT_BUFFERS", "1024")
    try:
        return int(text) << 20
    except ValueError:
        raise ConfigError(
            f"$SCITOOLKIT_BUFFERS is {text!r}", allowed="a whole number of MiB, such as 1024"
        ) from None


class BufferPool:
    """Free blocks of memory for large outputs."""

    def __init__(self) -> None:
        # Finalizers may run during any allocation of this thread, even while it holds the lock.
        self._lock = threading.RLock()
        self._free: list[mmap.mmap] = []
        self._bypassed = False

    def serves(self, size: int) -> bool:
        """Return whether outputs of `size` bytes are allocated from the pool."""
        return size >= SMALLEST and not self._bypassed

    def acquire(self, size: int) -> mmap.mmap:
        """Return a block of at least `size` bytes: the smallest suitable free one, or a new one.

        Raises:
            ConfigError: $SCITOOLKIT_BUFFERS is not a number; here, as `release` cannot raise.
        """
        _limit()
        with self._lock:
            fitting = [b for b in self._free if size <= len(b) <= 2 * size + HUGE_PAGE]
            if fitting:
                block = min(fitting, key=len)
                self._free = [other for other in self._free if other is not block]
                return block
        return _map(-(-size // HUGE_PAGE) * HUGE_PAGE)

    def release(self, block: mmap.mmap) -> None:
        """Add a block to the free ones; drop the oldest above the limit."""
        with self._lock:
            self._free.append(block)
            limit = _limit()
            while self._free and sum(map(len, self._free)) > limit:
                self._free.pop(0)

    @contextlib.contextmanager
    def bypassed(self) -> Iterator[None]:
        """Allocate outputs by torch's allocator, whose bytes the profiler counts."""
        before, self._bypassed = self._bypassed, True
        try:
            yield
        finally:
            self._bypassed = before

    def waiting(self) -> int:
        """Return the bytes of the free blocks."""
        return sum(map(len, self._free))

    def clear(self) -> None:
        """Return all free blocks to the operating system."""
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
    """Storage of a tensor that releases its block when the last tensor on it is deleted.

    A `__del__` method costs a fraction of `weakref.finalize`.
    """

    def __del__(self) -> None:
        POOL.release(self.base)  # type: ignore[arg-type]


def empty(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised tensor, from the pool if it is large and on the CPU.

    Args:
        shape: shape of the tensor.
        like: tensor with the device, and with the dtype unless `dtype` is given.
        dtype: float32 or float64.

    Example:
        >>> empty((2, 3), torch.zeros(1)).shape
        torch.Size([2, 3])
    """
    size = math.prod(shape) * (dtype or like).itemsize
    real = (
        NUMPY_REAL.get(dtype or like.dtype)
        if POOL.serves(size) and like.device.type == "cpu"
        else None
    )
    # With deterministic algorithms torch fills new memory with NaN: tests then detect elements that
    # are read before they are written.
    if real is None or torch.are_deterministic_algorithms_enabled():
        return like.new_empty(shape) if dtype is None else like.new_empty(shape, dtype=dtype)
    return torch.from_numpy(_Lease(shape, real, POOL.acquire(size)))
