"""Exact multiple-choice knapsack: one entry per group, least cost within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SLOTS = 2000
"""Resolution of the budget; sizes are rounded up to whole slots, so that the budget holds."""


def least_cost(
    sizes: Sequence[Sequence[float]], costs: Sequence[Sequence[float]], budget: float
) -> list[int] | None:
    """Return one entry per group with the least total cost and a total size within the budget.

    Dynamic programming over groups and slots (Kellerer et al. 2004, Knapsack Problems, 11.5).

    Args:
        sizes: of the entries of each group, not negative.
        costs: likewise.
        budget: of the sum of sizes; each group's size is rounded up to 1/SLOTS of it.

    Returns:
        One index per group, or None if nothing fits.

    Example:
        >>> least_cost([[3, 1], [3, 2]], [[0, 5], [0, 1]], 5)
        [0, 1]
    """
    if budget <= 0:
        return None
    best = np.zeros(SLOTS + 1)
    picks = []
    for own, prices in zip(sizes, costs, strict=True):
        table = np.full((len(own), SLOTS + 1), np.inf)
        for k, (size, price) in enumerate(zip(own, prices, strict=True)):
            slots = int(np.ceil(size / budget * SLOTS - 1e-9))
            if slots <= SLOTS:
                table[k, slots:] = best[: SLOTS + 1 - slots] + price
        pick = table.argmin(0)
        best = table[pick, np.arange(SLOTS + 1)]
        picks.append((pick, own))
    if not np.isfinite(best[SLOTS]):
        return None
    chosen, slot = [], SLOTS
    for pick, own in reversed(picks):
        k = int(pick[slot])
        chosen.append(k)
        slot -= int(np.ceil(own[k] / budget * SLOTS - 1e-9))
    return chosen[::-1]
