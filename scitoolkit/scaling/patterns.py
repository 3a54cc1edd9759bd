"""Dependence patterns of Task Bench between the ranks, from one training step to the next.

Patterns in which the number of tasks changes from step to step (tree) are omitted, because all
ranks take part in every training step.

Source: Slaughter et al. 2020, Task Bench, https://arxiv.org/abs/1908.05790, Table 2.
"""

from __future__ import annotations

from collections.abc import Callable

RADIX = 5
"""Dependencies of a rank in `nearest` and `spread`, itself included, as in the paper's figures."""

Dependencies = Callable[[int, int, int], set[int]]


def _trivial(step: int, rank: int, ranks: int) -> set[int]:
    return set()


def _stencil(step: int, rank: int, ranks: int) -> set[int]:
    return {rank - 1, rank, rank + 1}


def _periodic(step: int, rank: int, ranks: int) -> set[int]:
    return {neighbour % ranks for neighbour in _stencil(step, rank, ranks)}


def _sweep(step: int, rank: int, ranks: int) -> set[int]:
    return {rank - 1, rank}


def _fft(step: int, rank: int, ranks: int) -> set[int]:
    distance = 1 << step % max(1, (ranks - 1).bit_length())
    return {rank - distance, rank, rank + distance}


def _nearest(step: int, rank: int, ranks: int) -> set[int]:
    return set(range(rank - RADIX // 2, rank + (RADIX + 1) // 2))


def _spread(step: int, rank: int, ranks: int) -> set[int]:
    shift = step % ranks
    return {(rank + i * ranks // RADIX + (shift if i else 0)) % ranks for i in range(RADIX)}


def _all_to_all(step: int, rank: int, ranks: int) -> set[int]:
    return set(range(ranks))


PATTERNS: dict[str, Dependencies] = {
    "trivial": _trivial,
    "stencil_1d": _stencil,
    "stencil_1d_periodic": _periodic,
    "dom": _sweep,
    "fft": _fft,
    "nearest": _nearest,
    "spread": _spread,
    "all_to_all": _all_to_all,
}


def dependencies(pattern: str, step: int, rank: int, ranks: int) -> list[int]:
    """Return the other ranks on whose output of the previous step `rank` depends.

    Args:
        pattern: a key of `PATTERNS`.
        step: number of the step, on which some patterns depend.
        rank: the dependent rank.
        ranks: number of ranks.

    Example:
        >>> dependencies("stencil_1d", 0, 3, 4), dependencies("fft", 1, 0, 4)
        ([2], [2])
    """
    sources = PATTERNS[pattern](step, rank, ranks)
    return sorted(other for other in sources if 0 <= other < ranks and other != rank)
