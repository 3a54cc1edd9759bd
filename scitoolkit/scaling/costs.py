"""Performance model of a training step on any number of ranks.

The alpha-beta model: a collective takes (number of messages) alpha + (bytes) beta. Messages and
bytes are those counted by `training.traffic` on few ranks; their growth with the number of ranks
follows from the algorithm of the collective. No parameter is fitted to a training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

REDUCTIONS = {"all_reduce": 2, "reduce_scatter_single": 1, "reduce_scatter_tensor": 1}
"""Passes around the ring, by collective; 1 for all others."""


@dataclass(frozen=True)
class Interconnect:
    """Cost of communication.

    Attributes:
        latency: seconds per message (alpha).
        seconds_per_byte: seconds per received byte (beta).
    """

    latency: float
    seconds_per_byte: float

    def seconds(self, messages: float, size: float) -> float:
        """Return the time of `messages` messages with `size` bytes in total."""
        return messages * self.latency + size * self.seconds_per_byte


def fitted(points: Sequence[tuple[float, float, float]]) -> Interconnect:
    """Fit latency and bandwidth to measured collectives.

    Non-negative least squares of the relative errors.

    Args:
        points: messages, bytes and seconds of each measurement.

    Example:
        >>> found = fitted([(2, 0, 4e-5), (2, 1e6, 1.04e-3), (6, 1e6, 1.12e-3)])
        >>> round(found.latency * 1e6, 3), round(found.seconds_per_byte * 1e9, 3)
        (20.0, 1.0)
    """
    from scipy.optimize import nnls

    data = np.array(points, dtype=float)
    # Scale the columns to similar magnitudes: nnls has an absolute tolerance.
    scale = np.array([1e-6, 1e-10])
    # Rows over their measured seconds: |(n alpha + s beta) / t - 1|^2 is minimised, in which a
    # collective of a microsecond counts as much as one of a millisecond.
    weighted = data[:, :2] * scale / data[:, 2:]
    coefficients, _ = nnls(weighted, np.ones(len(data)))
    latency, per_byte = coefficients * scale
    return Interconnect(float(latency), float(per_byte))


def ring_counts(name: str, calls: float, size: float, ranks: int) -> tuple[float, float]:
    """Return messages and bytes that a rank receives in calls of a collective.

    Args:
        name: name of the function in `torch.distributed`.
        calls: number of calls.
        size: bytes of the whole tensors of all calls.
        ranks: number of participating ranks.

    Example:
        >>> ring_counts("all_reduce", 1, 1000.0, 4)
        (6, 1500.0)
    """
    # A ring of P ranks needs P - 1 rounds, in each of which a rank receives 1 / P of the tensor; an
    # all-reduce is a reduce-scatter followed by an all-gather.
    rounds = REDUCTIONS.get(name, 1)
    return rounds * calls * (ranks - 1), rounds * size * (ranks - 1) / ranks


def whole_size(name: str, received: float, ranks: int) -> float:
    """Return the bytes of the whole tensors from the bytes received; inverse of `ring_counts`."""
    return received * ranks / (REDUCTIONS.get(name, 1) * (ranks - 1))


@dataclass(frozen=True)
class StepModel:
    """Cost model of a step of one strategy, by parts with known scaling in the number of ranks.

    Attributes:
        compute: seconds of forward and backward pass over a rank's samples.
        optimizer: seconds of the optimizer step over all parameters.
        fixed: part of `optimizer` that does not grow with the size of the parameters.
        copies: seconds of copying gradients and weights into and out of buckets.
        loop: remaining seconds of the trainer's loop.
        sharded: whether each rank updates only its part of the parameters.
        collectives: by name, calls per step and bytes of their whole tensors.
        overlaps: whether idle cores can communicate while others compute.
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
        """Mean seconds of arithmetic between two collectives."""
        calls = sum(calls for calls, _ in self.collectives.values())
        return self.compute / max(calls, 1.0)

    def exchange(self, ranks: int, networks: Mapping[str, Interconnect]) -> float:
        """Return the seconds of all collectives of a step, without overlap."""
        if ranks == 1:
            return 0.0
        return sum(
            networks.get(name, networks[""]).seconds(*ring_counts(name, calls, size, ranks))
            for name, (calls, size) in self.collectives.items()
        )

    def seconds(self, ranks: int, networks: Mapping[str, Interconnect]) -> float:
        """Return the seconds of a step.

        With overlap, up to the duration of the backward pass (two thirds of the arithmetic) of the
        exchange is hidden.

        Args:
            ranks: number of processes.
            networks: network by collective, "" for all others.
        """
        exchange = self.exchange(ranks, networks)
        if self.overlaps:
            exchange = max(0.0, exchange - 2 / 3 * self.compute)
        share = ranks if self.sharded else 1
        optimizer = self.fixed + max(self.optimizer - self.fixed, 0.0) / share
        return self.compute + optimizer + self.copies + self.loop + exchange
