"""What stays in memory between batches: rows, each once, however many samples share it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_LARGE_ROW = 16 << 10


class RowBuffer:
    """Rows of one variable in one block of memory, which is touched only as far as it is used.

    Args:
        num_rows: rows that the variable has.
        capacity: rows that fit in.
        row_shape: shape of a row.
        dtype: of the values.

    Example:
        >>> buffer = RowBuffer(num_rows=9, capacity=2, row_shape=(), dtype=np.dtype("f4"))
        >>> new, slots = buffer.update(enter=np.array([4, 7, 4]), leave=np.array([], int))
        >>> buffer.pool[slots] = [40.0, 70.0]
        >>> new.tolist(), buffer.pool[buffer.slot[[7, 4]]].tolist()
        ([4, 7], [70.0, 40.0])
    """

    slot: np.ndarray
    count: np.ndarray
    free: list[int]

    def __init__(
        self, num_rows: int, capacity: int, row_shape: Sequence[int], dtype: np.dtype
    ) -> None:
        self.pool: np.ndarray = np.empty((capacity, *row_shape), dtype)
        self.slot = np.full(num_rows, -1, np.int64)
        self.count = np.zeros(num_rows, np.int32)
        self.free = list(range(capacity - 1, -1, -1))

    def update(self, enter: np.ndarray, leave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Let rows in and out, each as often as samples ask for it.

        Returns:
            The rows that were not there before, sorted, and the slots for the caller to fill.
        """
        np.add.at(self.count, enter, 1)
        np.subtract.at(self.count, leave, 1)
        touched = np.unique(np.concatenate([enter, leave]))
        gone = touched[(self.count[touched] == 0) & (self.slot[touched] >= 0)]
        self.free.extend(self.slot[gone].tolist())
        self.slot[gone] = -1
        new = touched[(self.count[touched] > 0) & (self.slot[touched] < 0)]
        self.slot[new] = [self.free.pop() for _ in range(len(new))]
        return new, self.slot[new]

    def clear(self) -> None:
        """Hold nothing."""
        self.slot[:] = -1
        self.count[:] = 0
        self.free = list(range(len(self.pool) - 1, -1, -1))


def copy_rows(values: np.ndarray, which: np.ndarray, out: np.ndarray, at: np.ndarray) -> None:
    """Put `values[which[i]]` into `out[at[i]]`.

    Indexing by arrays on both sides would make a copy in between, which for large rows costs more
    than a loop does.
    """
    if out[:1].nbytes < _LARGE_ROW:
        out[at] = values[which]
        return
    for source, target in zip(which.tolist(), at.tolist(), strict=True):
        out[target] = values[source]


Found = Iterable[tuple[np.ndarray, np.ndarray]]
"""Pairs of rows, sorted and distinct, and their values."""


def scatter(found: Found, rows: np.ndarray, at: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Put the values of `rows[i]` into `out[at[i]]`, as far as they were found.

    Args:
        found: what there is.
        rows: wanted rows, in any order, shape (n,).
        at: where each belongs, shape (n,).
        out: destination.

    Returns:
        Which of `rows` were not found, bool, shape (n,).

    Example:
        >>> out = np.zeros(3)
        >>> found = [(np.array([2, 5]), np.array([20.0, 50.0]))]
        >>> scatter(found, np.array([5, 2, 9]), np.array([0, 1, 2]), out).tolist(), out.tolist()
        ([False, False, True], [50.0, 20.0, 0.0])
    """
    order = np.argsort(rows, kind="stable")
    ordered, target = rows[order], at[order]
    lost = np.ones(len(rows), bool)
    for have, values in found:
        low, high = np.searchsorted(ordered, (have[0], have[-1] + 1))
        if low == high:
            continue
        where = np.searchsorted(have, ordered[low:high])
        hit = have[where] == ordered[low:high]
        copy_rows(values, where[hit], out, target[low:high][hit])
        lost[order[low:high][hit]] = False
    return lost
