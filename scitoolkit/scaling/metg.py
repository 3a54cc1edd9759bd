"""METG(50 %): the shortest step that is half useful (Slaughter et al. 2020, section IV)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

HALF = 0.5


def crossing(seconds: Sequence[float], efficiencies: Sequence[float]) -> float | None:
    """Return the time of a step at which the efficiency passes one half.

    Interpolated between the logarithms of times and efficiencies; where it is above one half from
    the first step on, METG is that step's time or less, and this time is returned.

    Args:
        seconds: of a step, by growing work.
        efficiencies: useful share of each step, by the same work.

    Returns:
        Seconds, or None where no step was half useful.

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
