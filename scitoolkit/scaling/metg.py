"""METG(50 %): minimum effective task granularity, the shortest step with 50 % efficiency.

Source: Slaughter et al. 2020, Task Bench, section IV.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

HALF = 0.5


def crossing(seconds: Sequence[float], efficiencies: Sequence[float]) -> float | None:
    """Return the time of a step at which the efficiency reaches one half.

    Interpolated log-log. If the first step is already above one half, its time is an upper bound of
    METG and is returned.

    Args:
        seconds: time per step, by increasing work.
        efficiencies: useful share of each step, in the same order.

    Returns:
        Seconds, or None if no step reaches an efficiency of one half.

    Example:
        >>> crossing([1.0, 2.0], [0.25, 0.75]) == 2.0 ** (math.log(2) / math.log(3))
        True
        >>> crossing([1.0], [0.1]) is None
        True
    """
    if efficiencies and efficiencies[0] >= HALF:
        return seconds[0]
    pairs = itertools.pairwise(zip(seconds, efficiencies, strict=True))
    for (before, low), (after, high) in pairs:
        if low < HALF <= high:
            share = math.log(HALF / low) / math.log(high / low)
            return math.exp((1 - share) * math.log(before) + share * math.log(after))
    return None
