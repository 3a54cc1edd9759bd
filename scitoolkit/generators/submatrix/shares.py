"""Distribution of work over the ranks of a job by cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Return the items of each rank, assigned greedily by cost to the least loaded rank.

    Example:
        >>> shares([1.0, 5.0, 3.0, 2.0], 2)
        [[1, 0], [2, 3]]
    """
    loads, assigned = [0.0] * ranks, [list[int]() for _ in range(ranks)]
    for number in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        rank = min(range(ranks), key=lambda r: (loads[r], r))
        loads[rank] += costs[number]
        assigned[rank].append(number)
    return assigned


def shared(costs: Sequence[float], work: Callable[[int], T]) -> list[T]:
    """Compute `work(i)` for each item, shared by the ranks; return all results on every rank.

    The bits of the results do not depend on the number of ranks.

    Raises:
        ScitoolkitError: the error of the first rank on which `work` failed, on all ranks.
    """
    from scitoolkit.training.processes import share_work

    parts = share_work(
        lambda rank, ranks: {number: work(number) for number in shares(costs, ranks)[rank]}
    )
    merged = {number: value for part in parts for number, value in part.items()}
    return [merged[number] for number in range(len(costs))]
