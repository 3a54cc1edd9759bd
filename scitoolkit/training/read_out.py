"""Communication-avoiding ridge regression of read-out layers with samples spread over ranks.

A read-out is the linear last layer of a fixed feature map: a reservoir, random features, or the
columns of a kernel matrix. Block coordinate descent updates a block of its weights per step, which
needs one all-reduce per step. In the s-step variant one message carries the Gram matrix and the
gradient of the blocks of `unrolled` steps, which are then taken locally with the same iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scitoolkit.core.errors import ConfigError, DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReadOut:
    """Weights of a read-out and the communication of the fit.

    Attributes:
        weights: (features, targets), float64.
        messages: number of sums over the ranks.
        numbers: float64 numbers in these sums, on each rank.
    """

    weights: Array
    messages: int
    numbers: int


def fit_read_out(
    features: Array,
    targets: Array,
    penalty: float,
    *,
    block: int = 8,
    steps: int = 400,
    unrolled: int = 1,
    seed: int = 0,
    total: Callable[[Array], Array] | None = None,
) -> ReadOut:
    """Minimise ``|A w - y|^2 + penalty |w|^2`` by block coordinate descent from zero.

    Use it if the samples do not fit one process and latency dominates bandwidth: a message of s
    unrolled steps holds (s b)^2 + s b k numbers for blocks of b features and k targets. On one
    process, or for few features, solve the normal equations instead.

    Args:
        features: (samples, n) this rank's rows of A.
        targets: (samples, k) this rank's rows of y.
        penalty: weight of the squared norm of the weights, > 0.
        block: features updated per step, drawn without replacement.
        steps: total number of steps.
        unrolled: steps per message.
        seed: seed of the blocks, the same on all ranks.
        total: sums an array over the ranks; None for one process.

    Raises:
        DataError: shapes differ, or a value is not finite.
        ConfigError: a setting is out of range.

    Source: Devarakonda et al. 2019, https://arxiv.org/abs/1612.04003 (s-step block coordinate
    descent).

    Example:
        >>> a = np.random.default_rng(0).standard_normal((50, 6))
        >>> y = a @ np.arange(6.0)[:, None]
        >>> found = fit_read_out(a, y, 1e-9, block=3, steps=60, unrolled=5)
        >>> np.round(found.weights[:, 0], 3).tolist(), found.messages
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 12)
    """
    _check(features, targets, penalty, block, steps, unrolled)
    count = features.shape[1]
    weights = np.zeros((count, targets.shape[1]))
    rest = -np.asarray(targets, dtype=np.float64)
    generator = np.random.default_rng(seed)
    picks = [generator.choice(count, block, replace=False) for _ in range(steps)]
    messages = numbers = 0
    for begin in range(0, steps, unrolled):
        group = picks[begin : begin + unrolled]
        columns = np.asarray(features[:, np.concatenate(group)], dtype=np.float64)
        sums = np.hstack([columns.T @ columns, columns.T @ rest])
        sums = total(sums) if total is not None else sums
        messages, numbers = messages + 1, numbers + sums.size
        width = columns.shape[1]
        moves = _local_steps(sums[:, :width], sums[:, width:], group, weights, penalty)
        rest += columns @ moves
    return ReadOut(weights, messages, numbers)


def _local_steps(
    gram: Array, gradient: Array, group: list[NDArray[np.int64]], weights: Array, penalty: float
) -> Array:
    """Update `weights` in place block by block; return the update of each column of the message."""
    moves = np.zeros_like(gradient)
    block = len(group[0])
    for number, index in enumerate(group):
        here, done = slice(number * block, (number + 1) * block), slice(0, number * block)
        # The gradient of the message, corrected for the steps taken since. `weights` already
        # includes these, also if a feature was in an earlier block.
        now = gradient[here] + gram[here, done] @ moves[done] + penalty * weights[index]
        moves[here] = -np.linalg.solve(gram[here, here] + penalty * np.eye(block), now)
        weights[index] += moves[here]
    return moves


def _check(
    features: Array, targets: Array, penalty: float, block: int, steps: int, unrolled: int
) -> None:
    if features.ndim != 2 or targets.ndim != 2 or len(features) != len(targets):
        raise DataError(
            f"features {features.shape} and targets {targets.shape} do not fit",
            allowed="(samples, features) and (samples, targets)",
        )
    for name, array in (("features", features), ("targets", targets)):
        if not np.isfinite(array).all():
            raise DataError(f"{name} hold NaN or Inf", fix="mask or repair the data")
    if not penalty > 0:
        raise ConfigError(f"penalty {penalty}", allowed="above 0", fix="penalty=1e-6")
    if not 1 <= block <= features.shape[1]:
        raise ConfigError(f"block {block}", allowed=f"1 to {features.shape[1]}, the features")
    if min(steps, unrolled) < 1:
        raise ConfigError(f"steps {steps}, unrolled {unrolled}", allowed="at least 1")
