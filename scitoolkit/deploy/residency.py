"""Cache of weights with a memory budget, and its eviction policy.

The entry of least value is evicted: seconds of reading it again, times its frequency of use, per
byte. The frequency is an exponentially decaying count of uses with a half-life of ten calls per
surrogate in the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from scitoolkit.deploy.packed import aligned

PAGE = 4096
SURPRISE = 1.5
"""Largest factor by which the estimated seconds of a read grow in one read."""
FORGETTING = 10
"""Half-life of a use, in calls per surrogate of the pool."""


@dataclass(eq=False)
class Entry:
    """A surrogate in a pool.

    Attributes:
        name: in the pool.
        size: bytes of memory of its weights.
        memory: the weights; None if they are not in memory.
        users: number of calls in progress.
        loading: whether a thread is reading them.
        leaving: whether they are to be evicted, so that no further call may begin.
        awaited: whether they were prefetched and not used yet.
        seconds: estimated time of reading them.
    """

    name: str
    size: int
    memory: np.ndarray | None = None
    users: int = 0
    loading: bool = False
    leaving: bool = False
    awaited: bool = False
    seconds: float = 0.0
    _uses: float = 0.0
    _last: int = 0

    @property
    def resident(self) -> bool:
        """Whether a call can use the weights immediately."""
        return self.memory is not None and not self.loading and not self.leaving

    def use(self, now: int, half_life: float) -> None:
        """Record a use at call number `now`."""
        self._uses = 1 + self._uses * 0.5 ** ((now - self._last) / half_life)
        self._last, self.awaited = now, False

    def worth(self, now: int, half_life: float) -> float:
        """Return seconds of reading times decayed uses per byte."""
        uses = self._uses * 0.5 ** ((now - self._last) / half_life)
        return max(self.seconds, 1e-9) * uses / self.size


@dataclass
class Residency:
    """Memory for weights. Not thread-safe: the pool holds its lock.

    Attributes:
        budget: bytes.
        held: bytes of all memory in use or retained for reuse.
        evictions: number of evicted entries.
    """

    budget: int
    held: int = 0
    evictions: int = 0
    _rate: float = 0.0
    _calls: int = 0
    _half_life: float = FORGETTING
    _entries: list[Entry] = field(default_factory=list)
    _kept: dict[int, list[np.ndarray]] = field(default_factory=dict)

    def use(self, entry: Entry, models: int) -> None:
        """Record a use of an entry; `models` is the number of entries in the pool."""
        self._calls += 1
        self._half_life = FORGETTING * max(models, 1)
        entry.use(self._calls, self._half_life)

    def read(self, entry: Entry, seconds: float) -> None:
        """Record the seconds of reading an entry.

        The growth per read is limited, as a single slow read may be due to a busy machine.
        """
        expected = entry.seconds or self._rate * entry.size or seconds
        entry.seconds = min(seconds, SURPRISE * expected)
        rate = entry.seconds / entry.size
        self._rate = 0.9 * self._rate + 0.1 * rate if self._rate else rate

    def take(self, entry: Entry, *, ahead: bool = False) -> bool:
        """Allocate memory for an entry; return False if calls in progress must end first.

        If memory is short, entries of least value are evicted. If all are in use, those of least
        value are marked, so that no further call begins with them until `unmark`.

        Args:
            entry: an entry without memory.
            ahead: for prefetching: mark nothing, and do not evict prefetched entries.
        """
        while not self._fits(entry.size):
            if self._drop_kept(entry.size):
                continue
            free = [e for e in self._entries if not (e.users or e.loading or (ahead and e.awaited))]
            if not free:
                if not ahead:
                    self._mark(entry.size)
                return False
            self.evictions += 1
            self.release(min(free, key=lambda e: (not e.leaving, e.awaited, self._worth(e))))
        buffers = self._kept.get(entry.size)
        if buffers:
            entry.memory = buffers.pop()
        else:
            entry.memory = aligned(entry.size)
            self.held += entry.size
        self._entries.append(entry)
        return True

    def release(self, entry: Entry) -> None:
        """Release the memory of an entry that is not in use."""
        if entry.memory is not None:
            self._entries.remove(entry)
            self._kept.setdefault(entry.size, []).append(entry.memory)
        entry.memory, entry.leaving, entry.awaited = None, False, False

    def unmark(self) -> None:
        """Remove the marks of entries to be evicted."""
        for entry in self._entries:
            entry.leaving = False

    def resident_bytes(self) -> int:
        """Return the bytes of the weights in memory."""
        return _bytes(self._entries)

    def _worth(self, entry: Entry) -> float:
        return entry.worth(self._calls, self._half_life)

    def _fits(self, size: int) -> bool:
        return bool(self._kept.get(size)) or self.held + size <= self.budget

    def _drop_kept(self, size: int) -> bool:
        """Free memory retained for entries of another size."""
        for other, arrays in self._kept.items():
            if other != size and arrays:
                arrays.pop()
                self.held -= other
                return True
        return False

    def _mark(self, size: int) -> None:
        """Mark entries of least value until their sizes suffice, including those already marked."""
        marked = _bytes(e for e in self._entries if e.leaving)
        missing = size - (self.budget - self.held) - marked
        for entry in sorted(self._entries, key=self._worth):
            if missing > 0 and not entry.leaving:
                entry.leaving = True
                missing -= entry.size


def _bytes(entries: Iterable[Entry]) -> int:
    return sum(e.size for e in entries)


def rounded(size: int) -> int:
    """Return the bytes of memory for weights, in whole pages so that memory can be reused.

    Example:
        >>> rounded(1), rounded(4097)
        (4096, 8192)
    """
    return max(PAGE, size + -size % PAGE)
