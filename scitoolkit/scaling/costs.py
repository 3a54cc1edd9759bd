"""Seconds of a step on any number of ranks, from latency, bandwidth and rate of arithmetic.

The alpha-beta model: a collective takes (its messages) alpha + (its bytes) beta. Messages and bytes
are those of `training.traffic`, whose numbers a step were counted on few ranks; how they grow with
the number of ranks follows from the collective. Nothing is fitted to a training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

REDUCTIONS = {"all_reduce": 2, "reduce_scatter_single": 1, "reduce_scatter_tensor": 1}
"""Collectives that go around a ring, and how often."""


@dataclass(frozen=True)
class Network:
    """What a message costs.

    Attributes:
        latency: seconds of a message (alpha).
        seconds_per_byte: received (beta).
    """

    latency: float
    seconds_per_byte: float

    def seconds(self, messages: float, size: float) -> float:
        """Return the time of messages that bring `size` bytes together."""
        return messages * self.latency + size * self.seconds_per_byte


def fitted(points: Sequence[tuple[float, float, float]]) -> Network:
    """Return latency and bandwidth that explain measured collectives.

    Least squares of relative errors, both parameters at least 0.

    Args:
        points: messages, bytes and seconds of each.

    Example:
        >>> found = fitted([(2, 0, 4e-5), (2, 1e6, 1.04e-3), (6, 1e6, 1.12e-3)])
        >>> round(found.latency * 1e6, 3), round(found.seconds_per_byte * 1e9, 3)
        (20.0, 1.0)
    """
    from scipy.optimize import nnls

    data = np.array(points, dtype=float)
    # Columns of like size: nnls stops by an absolute tolerance.
    scale = np.array([1e-6, 1e-10])
    weighted = data[:, :2] * scale / data[:, 2:]
    found, _ = nnls(weighted, np.ones(len(data)))
    latency, per_byte = found * scale
    return Network(float(latency), float(per_byte))


def ring_counts(name: str, calls: float, size: float, ranks: int) -> tuple[float, float]:
    """Return messages and bytes that a rank receives in calls of a collective.

    Args:
        name: of the function of `torch.distributed`.
        calls: of it.
        size: bytes of the whole tensors of all calls.
        ranks: that take part.

    Example:
        >>> ring_counts("all_reduce", 1, 1000.0, 4)
        (6, 1500.0)
    """
    rounds = REDUCTIONS.get(name, 1)
    return rounds * calls * (ranks - 1), rounds * size * (ranks - 1) / ranks


def whole_size(name: str, received: float, ranks: int) -> float:
    """Return the bytes of whole tensors of which a rank has received its part: the inverse."""
    return received * ranks / (REDUCTIONS.get(name, 1) * (ranks - 1))


@dataclass(frozen=True)
class StepModel:
    """A step of one strategy, as parts whose growth with the number of ranks is known.

    Attributes:
        compute: seconds of forward and backward pass of a rank's samples.
        optimizer: seconds of the optimizer's step over all parameters.
        fixed: of them, what does not grow with the parameters' size.
        copies: seconds of copying gradients and weights into and out of buckets.
        loop: seconds of the trainer beside all this.
        sharded: whether each rank steps its part of the parameters alone.
        collectives: by name, calls of a step and bytes of their whole tensors.
        overlaps: whether there are idle cores that exchange while others compute.
    """

    compute: float
    optimizer: float
    sharded: bool
    collectives: Mapping[str, tuple[float, float]]
    overlaps: bool
    fixed: float = 0.0
    copies: float = 0.0
    loop: float = 0.0

    @property
    def between(self) -> float:
        """Seconds of arithmetic between two collectives."""
        calls = sum(calls for calls, _ in self.collectives.values())
        return self.compute / max(calls, 1.0)

    def exchange(self, ranks: int, networks: Mapping[str, Network]) -> float:
        """Return the seconds of all collectives of a step."""
        if ranks == 1:
            return 0.0
        return sum(
            networks.get(name, networks[""]).seconds(*ring_counts(name, calls, size, ranks))
            for name, (calls, size) in self.collectives.items()
        )

    def seconds(self, ranks: int, networks: Mapping[str, Network]) -> float:
        """Return the seconds of a step.

        Args:
            ranks: number of processes.
            networks: by collective, "" for those that are not in it.

        With overlap the exchange is hidden behind the backward pass, two thirds of the
        arithmetic, as far as that is longer.
        """
        exchange = self.exchange(ranks, networks)
        if self.overlaps:
            exchange = max(0.0, exchange - 2 / 3 * self.compute)
        share = ranks if self.sharded else 1
        optimizer = self.fixed + max(self.optimizer - self.fixed, 0.0) / share
        return self.compute + optimizer + self.copies + self.loop + exchange
