"""Thread pool over blocks and slabs; their C code runs without the GIL."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from scitoolkit.core.processes import available_cores

T = TypeVar("T")
R = TypeVar("R")


def threads() -> int:
    """Return the number of threads: $OMP_NUM_THREADS, by default one per available processor."""
    stated = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(stated) if stated.isdigit() and int(stated) else available_cores()


def map_in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yield results in order; at most `workers` items and results are in memory at a time.

    Example:
        >>> list(map_in_order(abs, [-3, 2, -1], 2))
        [3, 2, 1]
    """
    if workers < 2:
        yield from map(work, items)
        return
    source, waiting = iter(items), deque[Future[R]]()
    with ThreadPoolExecutor(workers) as pool:
        for item in itertools.islice(source, workers):
            waiting.append(pool.submit(work, item))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in itertools.islice(source, 1))
            yield done
