"""Which weights are in memory under a budget of bytes, and which leave it for others.

What leaves is worth least: seconds of reading it again, times how often it is used, per byte. How
often is a count of calls that halves with every ten calls a surrogate, so that habits of long ago
are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from scitoolkit.deploy.packed import aligned

PAGE = 4096
SURPRISE = 1.5
"""Largest growth of the seconds of reading from one read to the next."""
FORGETTING = 10
"""Calls a surrogate after which a use counts half."""


@dataclass(eq=False)
class Entry:
    """A surrogate in a pool.

    Attributes:
        name: in the pool.
        size: bytes of memory that its weights take.
        memory: the weights; None while they are not in memory.
        users: calls that read them now.
        loading: a thread reads them from the file.
        leaving: no further call may begin before they have left.
        awaited: read ahead and not used yet.
        seconds: of reading the weights.
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
        """Whether a call may use the weights at once."""
        return self.memory is not None and not self.loading and not self.leaving

    def use(self, now: int, half_life: float) -> None:
        """Count a use at call number `now`."""
        self._uses = 1 + self._uses * 0.5 ** ((now - self._last) / half_life)
        self._last, self.awaited = now, False

    def worth(self, now: int, half_life: float) -> float:
        """Return seconds of reading x uses per byte."""
        uses = self._uses * 0.5 ** ((now - self._last) / half_life)
        return max(self.seconds, 1e-9) * uses / self.size


@dataclass
class Residency:
    """Memory for weights. Not thread-safe: the pool holds its lock.

    Attributes:
        budget: bytes.
        held: bytes of all memory in use or kept for reuse.
        evictions: entries that left for others.
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
        """Count a use of an entry, one of so many in the pool."""
        self._calls += 1
        self._half_life = FORGETTING * max(models, 1)
        entry.use(self._calls, self._half_life)

    def read(self, entry: Entry, seconds: float) -> None:
        """Note what reading an entry took.

        One slow read, of a busy machine, is believed in part: if it is the file that is slow, the
        reads after it say so too.
        """
        expected = entry.seconds or self._rate * entry.size or seconds
        entry.seconds = min(seconds, SURPRISE * expected)
        rate = entry.seconds / entry.size
        self._rate = 0.9 * self._rate + 0.1 * rate if self._rate else rate

    def take(self, entry: Entry, *, ahead: bool = False) -> bool:
        """Give an entry memory, or tell that calls in progress must end before.

        Where memory is short, entries of least worth leave. If all are in use, those of least
        worth are marked, so that no further call begins with them until `unmark`.

        Args:
            entry: without memory.
            ahead: nothing is marked, and what was itself read ahead and not used yet may stay.
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
        kept = self._kept.get(entry.size)
        if kept:
            entry.memory = kept.pop()
        else:
            entry.memory = aligned(entry.size)
            self.held += entry.size
        self._entries.append(entry)
        return True

    def release(self, entry: Entry) -> None:
        """Take the memory of an entry that no call uses."""
        if entry.memory is not None:
            self._entries.remove(entry)
            self._kept.setdefault(entry.size, []).append(entry.memory)
        entry.memory, entry.leaving, entry.awaited = None, False, False

    def unmark(self) -> None:
        """Let calls begin again with the entries that were to leave."""
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
        """Free memory kept for entries of another size."""
        for other, arrays in self._kept.items():
            if other != size and arrays:
                arrays.pop()
                self.held -= other
                return True
        return False

    def _mark(self, size: int) -> None:
        """Mark entries of least worth whose bytes suffice; those marked before count."""
        marked = _bytes(e for e in self._entries if e.leaving)
        missing = size - (self.budget - self.held) - marked
        for entry in sorted(self._entries, key=self._worth):
            if missing > 0 and not entry.leaving:
                entry.leaving = True
                missing -= entry.size


def _bytes(entries: Iterable[Entry]) -> int:
    return sum(e.size for e in entries)


def rounded(size: int) -> int:
    """Return the bytes of memory for weights: whole pages, so that equal models share memory.

    Example:
        >>> rounded(1), rounded(4097)
        (4096, 8192)
    """
    return max(PAGE, size + -size % PAGE)
