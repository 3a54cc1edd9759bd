"""Memory size of the machine, and readable errors for failed allocations."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator

from scitoolkit.core.errors import ConfigError

_ALLOCATORS = ("can't allocate memory", "out of memory", "unable to allocate", "storage size")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_BYTES = re.compile(r"(\d{6,}) bytes")


def machine_memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def readable_bytes(count: float) -> str:
    """Format a number of bytes with a binary unit.

    Example:
        >>> readable_bytes(5.732e12)
        '5.2 TiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def return_freed_memory() -> None:
    """Make glibc return freed blocks of 64 KiB and more to the system.

    By default glibc raises this threshold to the size of the largest freed block and keeps smaller
    blocks in its heap. The fixed threshold costs system time at every allocation.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        allocator = ctypes.CDLL(None)
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            allocator.mallopt(option, 1 << 16)


@contextlib.contextmanager
def memory_errors(
    where: str = "", fix: str = "smaller sizes in `model`, or a smaller training.batch_size"
) -> Iterator[None]:
    """Turn failed allocations inside the context into a ConfigError with the requested size.

    Args:
        where: the file.
        fix: what needs less memory.

    Raises:
        ConfigError: the model or a batch does not fit into the memory.

    Example:
        >>> try:
        ...     with memory_errors("train.yaml"):
        ...         raise MemoryError("Unable to allocate 7.28 TiB")
        ... except ConfigError as error:
        ...     print(error.what)
        the model or a batch does not fit into the memory
    """
    try:
        yield
    except (MemoryError, RuntimeError, OverflowError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not _is_allocation(text):
            raise
        asked = _BYTES.search(text)
        amount = f" ({readable_bytes(int(asked[1]))} requested at once)" if asked else ""
        raise ConfigError(
            f"the model or a batch does not fit into the memory{amount}",
            where=where,
            allowed=f"the {readable_bytes(machine_memory())} of this machine",
            fix=fix,
        ) from error


def _is_allocation(text: str) -> bool:
    return any(phrase in text.lower() for phrase in _ALLOCATORS)
