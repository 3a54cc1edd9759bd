"""Threads over blocks and slabs: the work is C, which runs without Python's lock."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def threads() -> int:
    """Return how many threads share the work: $OMP_NUM_THREADS, else one a processor."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(told) if told.isdigit() and int(told) else len(os.sched_getaffinity(0))


def map_in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yield the results in order; no more items are taken than workers have in hand, plus one.

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
