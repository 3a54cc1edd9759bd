"""Ridge regression of read-outs whose samples are spread over ranks, with few messages.

A read-out is the linear last layer of a fixed feature map: a reservoir, random features, or the
columns of a kernel matrix. Block coordinate descent updates some of its weights at a time, which
needs one message a step. Unrolling `unrolled` steps, one message carries the Gram matrix and the
gradient of all their blocks, and the steps are then taken locally: the iterates are the same.
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
    """Weights of a read-out and what they cost.

    Attributes:
        weights: (features, targets).
        messages: sums over the ranks.
        numbers: float64 numbers of these sums, on each rank.
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

    Use it where ranks hold more samples than one process takes, and a message costs more than the
    numbers in it: a message of s unrolled steps holds (s b)^2 + s b k numbers for blocks of b
    features and k targets. On one process, or for few features, solve the normal equations.

    Args:
        features: (samples, n) this rank's rows of A.
        targets: (samples, k) this rank's rows of y.
        penalty: of the squared weights.
        block: features that a step updates, drawn without repetition.
        steps: updates in all.
        unrolled: steps that one message serves.
        seed: of the blocks, the same on all ranks.
        total: sums an array over the ranks; None for one process.

    Raises:
        DataError: shapes do not fit, or a value is not finite.
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
        columns = features[:, np.concatenate(group)]
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
    """Update `weights` block by block; return the changes of the columns of the message."""
    moves = np.zeros_like(gradient)
    block = len(group[0])
    for number, index in enumerate(group):
        here, done = slice(number * block, (number + 1) * block), slice(0, number * block)
        # The gradient at the message, moved by the steps since; `weights` has them already, also
        # where a feature was in an earlier block.
        now = gradient[here] + gram[here, done] @ moves[done] + penalty * weights[index]
        moves[here] = -np.linalg.solve(gram[here, here] + penalty * np.eye(block), now)
        weights[index] += moves[here]
    return moves


def _check(
    features: Array, targets: Array, penalty: float, block: int, steps: int, unrolled: int
) -> None:
    if features.ndim != 2 or targets.ndim != 2 or len(features) != len(targets):
        raise DataError(
            f"features {features.shape} and targets {targets.shape} are no read-out",
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
