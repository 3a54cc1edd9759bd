"""Multi-objective ranking: dominance, Pareto fronts, non-dominated ranks, crowding distance.

Points have shape (point, objective); all objectives are minimised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = Sequence[float]


def dominates(a: Point, b: Point) -> bool:
    """Return whether `a` dominates `b`: nowhere worse and somewhere better.

    Example:
        >>> dominates((1, 2), (1, 3)), dominates((1, 3), (2, 1))
        (True, False)
    """
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the non-dominated points, ordered by the first objective.

    Example:
        >>> pareto_front([(3, 1), (1, 3), (2, 2), (3, 3)])
        [1, 2, 0]
    """
    order = sorted(range(len(points)), key=lambda i: tuple(points[i]))
    front: list[int] = []
    for i in order:
        if len(points[i]) == 2:  # sorted by the first: only the last of the front can dominate
            beaten = bool(front) and dominates(points[front[-1]], points[i])
        else:
            beaten = any(dominates(points[j], points[i]) for j in front)
        if not beaten:
            front.append(i)
    return front


def ranks(points: Sequence[Point]) -> list[int]:
    """Return non-dominated ranks: 0 for the front, 1 for the front of the rest, and so on.

    Source:
        NSGA-II, Deb et al. 2002, doi:10.1109/4235.996017.
    """
    out, left, rank = [0] * len(points), list(range(len(points))), 0
    while left:
        front = {left[k] for k in pareto_front([points[i] for i in left])}
        for i in front:
            out[i] = rank
        left = [i for i in left if i not in front]
        rank += 1
    return out


def crowding(points: Sequence[Point]) -> list[float]:
    """Return the crowding distance of each point; infinite at the ends of each objective.

    Source:
        NSGA-II, Deb et al. 2002, doi:10.1109/4235.996017.
    """
    distance = [0.0] * len(points)
    if not points:
        return distance
    for objective in range(len(points[0])):
        order = sorted(range(len(points)), key=lambda i: points[i][objective])
        span = points[order[-1]][objective] - points[order[0]][objective]
        distance[order[0]] = distance[order[-1]] = math.inf
        for before, here, after in zip(order, order[1:], order[2:], strict=False):
            if span > 0:
                distance[here] += (points[after][objective] - points[before][objective]) / span
    return distance


def best_of(points: Sequence[Point]) -> int:
    """Return the index of the best point: the minimum, or the least crowded of the front."""
    if len(points[0]) == 1:
        return min(range(len(points)), key=lambda i: points[i][0])
    front = pareto_front(points)
    spread = crowding([points[i] for i in front])
    return front[max(range(len(front)), key=lambda k: spread[k])]
