"""Means of named numbers over the samples of all ranks, whatever names each rank reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.training.processes import gather_objects
from scitoolkit.training.strategies.base import TrainingStrategy

Sums = Mapping[str, list[float]]
"""{name: [sum of values times samples, number of samples]} of one rank."""


def add(sums: dict[str, list[float]], name: str, value: Any, count: int) -> None:
    """Add the mean of `count` samples to the sums; a filler without samples reports its name.

    Raises:
        DataError: the value is no number.
    """
    try:
        value = float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f" {value!r}"
        raise DataError(
            f"{name} is a {type(value).__name__}{shape}",
            where="the numbers that the task reports",
            allowed="a number, or a tensor with one element",
        ) from None
    entry = sums.setdefault(name, [0.0, 0.0])
    if count:
        entry[0] += value * count
        entry[1] += count


def agreed_means(
    sums: Sums, total: float, strategy: TrainingStrategy
) -> tuple[dict[str, float], float]:
    """Return means over the samples for which a name was reported, and the number of samples.

    Names are exchanged only if they differ between the ranks, so that the usual case is one sum.

    Args:
        sums: of this rank.
        total: number of samples of this rank.
        strategy: sums over the ranks; every rank calls this function.

    Returns:
        {name: mean}, equal on all ranks; a name without samples on any rank is 0.
    """
    names = sorted(sums)
    if strategy.world > 1:
        names = _agreed_names(names, strategy)
    counts = [sums[n][1] if n in sums else 0.0 for n in names]
    # Where every rank reports a name for each of its samples, its count is `total`.
    values = [sums[n][0] if n in sums else 0.0 for n in names]
    *both, total_all = strategy.sum([*values, *counts, total])
    sums_all, counts_all = both[: len(names)], both[len(names) :]
    means = {
        n: value / count if count else 0.0
        for n, value, count in zip(names, sums_all, counts_all, strict=True)
    }
    return means, total_all


def _agreed_names(names: list[str], strategy: TrainingStrategy) -> list[str]:
    """Return the names that any rank reports, in one order on all ranks."""
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    numbers = [float(int.from_bytes(digest[k : k + 2], "big")) for k in (0, 2)]
    # Equal numbers x have P * sum(x^2) = sum(x)^2, exact in float64 for 16 bits.
    *first, a, b = strategy.sum([*numbers, *(n * n for n in numbers)])
    if all(strategy.world * q == n * n for n, q in zip(first, (a, b), strict=True)):
        return names
    lists = gather_objects(names)
    return sorted({name for reported in lists for name in reported})
