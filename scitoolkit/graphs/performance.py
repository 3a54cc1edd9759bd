"""Performance model of an epoch from counts of nonzeros, words and messages."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from scitoolkit.graphs.plan import Forecast
from scitoolkit.ops.spmm import SparseMatrix, spmm


@dataclass(frozen=True)
class Machine:
    """Machine parameters of the performance model.

    Attributes:
        latency: seconds per message (alpha).
        seconds_per_word: seconds per 4-byte number received (beta).
        seconds_per_nonzero: seconds per nonzero and column of the sparse product.
    """

    latency: float
    seconds_per_word: float
    seconds_per_nonzero: float


def measured_rate(width: int = 64, nodes: int = 20_000, degree: int = 20) -> float:
    """Measure the CPU seconds per nonzero and column of a sparse product on this machine."""
    r = np.random.default_rng(0)
    count = nodes * degree
    matrix = SparseMatrix.from_coo(
        r.integers(nodes, size=count),
        r.integers(nodes, size=count),
        torch.ones(count),
        (nodes, nodes),
    )
    x = torch.ones(nodes, width)
    spmm(matrix, x)
    begin = time.process_time()
    for _ in range(5):
        spmm(matrix, x)
    return (time.process_time() - begin) / (5 * count * width)


def predicted_seconds(costs: Forecast, widths: tuple[int, ...], machine: Machine) -> float:
    """Return the predicted seconds of the slowest rank's products, forward and backward.

    Overlap of communication and computation is neglected, so this is an upper estimate.
    """
    # T = nonzeros x columns gamma + words beta + messages alpha for each rank; forward and backward
    # pass multiply the same block, and a slice of the columns each.
    columns = 2 * sum(widths) / costs.grid.slices
    work = costs.nonzeros * columns * machine.seconds_per_nonzero
    moved = costs.words * machine.seconds_per_word + costs.messages * machine.latency
    return float((work + moved).max())
