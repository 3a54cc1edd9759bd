"""Reference-counted buffers of rows that are cached between batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_LARGE_ROW = 16 << 10


class RowBuffer:
    """Reference-counted buffer of rows of one variable in one block of memory.

    Args:
        num_rows: number of rows of the variable.
        capacity: number of rows that fit into the buffer.
        row_shape: shape of a row.
        dtype: of the values.

    Attributes:
        slot: (num_rows,) int64, position of each row in `pool`, or -1.
        count: (num_rows,) int32, reference counts.
        free: unused positions in `pool`.
        pool: (capacity, *row_shape), the rows.

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
        """Update the reference counts of rows, and allocate and free slots.

        Returns:
            The new rows, sorted, and their slots in `pool`, which the caller must fill.
        """
        # `add.at` counts rows that repeat, which `+=` would count once. Both counts change before
        # slots are freed, so that a row that leaves one sample and enters another keeps its slot.
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
        """Remove all rows."""
        self.slot[:] = -1
        self.count[:] = 0
        self.free = list(range(len(self.pool) - 1, -1, -1))


def copy_rows(values: np.ndarray, which: np.ndarray, out: np.ndarray, at: np.ndarray) -> None:
    """Copy `values[which[i]]` to `out[at[i]]`.

    Fancy indexing on both sides makes an intermediate copy, which is slower than a loop for large
    rows.
    """
    if out[:1].nbytes < _LARGE_ROW:
        out[at] = values[which]
        return
    for source, target in zip(which.tolist(), at.tolist(), strict=True):
        out[target] = values[source]


Found = Iterable[tuple[np.ndarray, np.ndarray]]
"""Pairs of rows, sorted and distinct, and their values."""


def scatter(found: Found, rows: np.ndarray, at: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Copy the values of `rows[i]` to `out[at[i]]` if they are in `found`.

    Args:
        found: available rows and their values.
        rows: (n,) required rows, in any order.
        at: (n,) positions in `out`.
        out: destination.

    Returns:
        (n,) bool, True for rows that were not found.

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
        # All of these rows are at most have[-1], so that none is placed behind the end.
        where = np.searchsorted(have, ordered[low:high])
        hit = have[where] == ordered[low:high]
        copy_rows(values, where[hit], out, target[low:high][hit])
        lost[order[low:high][hit]] = False
    return lost
