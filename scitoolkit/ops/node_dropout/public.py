"""Dropout of node features: arguments checked, then run by the backend that dispatch picks."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import GeneratedC, Operation
from scitoolkit.ops.node_dropout import cpu, reference

OPERATION = Operation(
    "node_dropout",
    "dropout whose mask depends on seed, row number and column alone",
    reference.node_dropout,
    None,
    "scitoolkit.ops.node_dropout.examples:examples",
)
GeneratedC.serve("node_dropout", prepare=cpu.kernels)(cpu.node_dropout)


def node_dropout(x: Tensor, rows: Tensor, p: float, seed: int, *, backend: str = "auto") -> Tensor:
    """Zero each number with probability p and scale the others by 1 / (1 - p).

    Whether a number is dropped depends on (seed, row number, column) alone, so the rows of a
    matrix may be distributed over processes in any order.

    Args:
        x: shape (n, width), float32 or float64.
        rows: number of each row in the whole matrix, shape (n,), int64.
        p: probability, in [0, 1); resolved to 2^-24.
        seed: any integer; another one for every call of a training.
        backend: auto, or the name of a kernel backend.

    Raises:
        ConfigError: p out of range.
        DataError: rows that do not fit x.

    Example:
        >>> import torch
        >>> x = torch.ones(4, 6)
        >>> whole = node_dropout(x, torch.arange(4), 0.5, seed=3)
        >>> part = node_dropout(x[:2], torch.tensor([3, 1]), 0.5, seed=3)
        >>> bool((part == whole[[3, 1]]).all())
        True
    """
    if not 0 <= p < 1:
        raise ConfigError(f"dropout p={p}", allowed="0 <= p < 1")
    if x.ndim != 2 or tuple(rows.shape) != (x.shape[0],):
        raise DataError(f"x of shape {tuple(x.shape)} with {tuple(rows.shape)} row numbers")
    run = OPERATION.choose("", x, backend)
    return run(x, rows, reference.signed(seed), round(p * 2**24), 1.0 / (1.0 - p))
